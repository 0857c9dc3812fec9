"""Loading states into modules: all of them, or none. Layer: agents.

::

    plan    make every value, and change nothing
    apply   assign the values, and call the modules that override load_state_dict
    undo    if one of these fails, restore the fields
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from versioned_state.agents.modules.containers import ATOMS, copied
from versioned_state.agents.modules.kinds import (
    LEVELS,
    Function,
    Overrides,
    before_init,
    contains_itself,
    is_module,
    nested_in,
    overrides,
    registered_in,
)
from versioned_state.arguments import instance_of
from versioned_state.errors import UnknownPathError

_MISSING: Final = object()

_TRIES: Final = 3
"""Attempts at an undo step that is interrupted: a module may raise an interrupt of its own each time."""


Fields = tuple[dict[str, Any], dict[str, Any]]
"""The ``__dict__`` of a module, and values for it: a step that cannot fail."""

Call = Callable[["_Undo"], None]
"""A step that runs code of the module's class, and first records how to undo it."""

Name = tuple[Any, str] | None
"""The name of a module in errors: that of the module around it, and its own. Put together if it is needed."""


def load_states(
    states: Iterable[tuple[Any, Any, str]], *, strict: bool = True, whole: bool = True, owned: bool = False
) -> None:
    """Load states into modules: all of them, or none if one raises.

    An interrupted load happens as a whole or not at all.

    Args:
        states: for each module the module, its state, and its name in errors, which is "" for a module by itself.
        strict: raise ``KeyError`` for a key that is missing.
        whole: call the ``load_state_dict`` of a module whose class overrides it. False in the base method, which such
            an override calls.
        owned: whether the states have no other references, so that their containers need no copies.
    """
    plan = _Plan(strict=strict, owned=owned)
    for module, state, name in states:
        if whole and overrides(type(module), "load_state_dict"):
            plan.add_foreign(module, state)
        else:
            plan.add(module, state, (None, name) if name else None)
    if plan.calls:
        _apply_steps(plan.steps)
        return
    steps = cast("list[Fields]", plan.steps)
    at, interrupt = 0, None
    while at < len(steps):
        try:
            for at in range(at, len(steps)):  # noqa: B020 - from where an interrupt came
                there, fields = steps[at]
                there.update(fields)
            at = len(steps)
        except BaseException as error:  # noqa: BLE001 - an interrupt, since nothing here can fail: the load is ended first
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _apply_steps(steps: list[Fields | Call]) -> None:
    undo = _Undo()
    try:
        for step in steps:
            if isinstance(step, tuple):
                fields, new = step
                undo.steps.append(partial(fields.update, {key: fields[key] for key in new}))
                fields.update(new)
            else:
                step(undo)
    except BaseException as error:
        undo.run(error)
        raise


class _Plan:
    """The steps to load states, nested modules first.

    Making the plan runs the functions of registered attributes, and changes nothing.

    Attributes:
        steps: the steps.
        calls: whether one of them is a ``Call``.
    """

    def __init__(self, *, strict: bool, owned: bool) -> None:
        self.steps: list[Fields | Call] = []
        self.calls = False
        self._strict = strict
        self._owned = owned
        self._overrides = Overrides("load_state_dict")
        self._plain = _PlainAttributes()
        self._below: list[tuple[Any, Any, Name, set[int]]] = []

    def add_foreign(self, module: Any, state: Any) -> None:
        """Add a module whose class loads its state itself."""
        self.calls = True
        state = state if self._owned else copied(state)
        load: Callable[[], object] = partial(module.load_state_dict, state)
        if not self._strict:
            # An override may have no parameter but the state: then ``strict`` is not passed.
            with suppress(TypeError, ValueError):
                inspect.signature(module.load_state_dict).bind(state, strict=False)
                load = partial(module.load_state_dict, state, strict=False)
        self.steps.append(partial(_load, module, load))

    def add(self, module: Any, state: Any, name: Name) -> None:
        """Add a module, and the modules in it to any depth."""
        before = self.steps
        self._below.append((module, state, name, set()))
        parts = []
        while self._below:
            self.steps = []
            self._add(*self._below.pop(), LEVELS)
            parts.append(self.steps)
        for part in reversed(parts):  # deeper modules come first
            before += part
        self.steps = before

    def _add(self, module: Any, state: Any, name: Name, path: set[int], levels: int) -> None:
        if type(state) is not dict and not isinstance(state, Mapping):
            whose = _text(name) or type(module).__name__
            instance_of(f"the state of {whose}", state, Mapping)
        there = module.__dict__  # not by registered_in: it is the inner loop
        try:
            attributes, modules = there["_attribute_dict"], there["_module_dict"]
        except KeyError:
            raise before_init(module, "using its state") from None
        if modules:
            self._add_nested(module, modules, state, name, path, levels)
        plain = self._plain[type(module)]
        fields: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for key in tuple(attributes):
            value = state.get(key, _MISSING)
            load_json = attributes[key].load_json
            if key in modules:
                continue
            if value is _MISSING:
                if self._strict:
                    raise _missing(name, key)
            elif type(value) in ATOMS and load_json is None and key in plain and key in there:
                fields[key] = value
            else:
                value = self._value(value, load_json)
                is_plain = plain.has(key) and key in there and not is_module(value)
                (fields if is_plain else others)[key] = value
        if others:
            self.steps.append(partial(_assign, module, others, fields))
            self.calls = True
        elif fields:
            self.steps.append((there, fields))

    def _value(self, value: Any, load_json: Function | None) -> Any:
        if not self._owned:
            value = copied(value)
        return value if load_json is None else load_json(value)

    def _add_nested(
        self, module: Any, modules: Mapping[str, Any], state: Mapping[str, Any], name: Name, path: set[int], levels: int
    ) -> None:
        if id(module) in path:
            raise contains_itself(module)
        path.add(id(module))
        for key in tuple(modules):
            nested = getattr(module, key, None)
            is_override = self._overrides[type(nested)]
            if is_override is None:
                continue
            below = state.get(key, _MISSING)
            if below is _MISSING:
                if self._strict:
                    raise _missing(name, key)
            elif is_override:
                self.add_foreign(nested, below)
            elif levels:
                self._add(nested, below, (name, key), path, levels - 1)
            else:
                self._below.append((nested, below, (name, key), path.copy()))
        path.discard(id(module))


class _Plain(set[str]):
    """The attributes of a class whose assignment only sets a value in ``__dict__``, as far as they were looked up."""

    def __init__(self, cls: type) -> None:
        super().__init__()
        self._cls = cls

    def has(self, key: str) -> bool:
        if key not in self and not overrides(self._cls, "__setattr__") and not hasattr(self._cls, key):
            self.add(key)
        return key in self


class _PlainAttributes(dict[type, _Plain]):
    def __missing__(self, cls: type) -> _Plain:
        self[cls] = found = _Plain(cls)
        return found


def _assign(module: Any, values: dict[str, Any], fields: dict[str, Any], undo: _Undo) -> None:
    """Assign values that are not plain entries of ``vars(module)``: properties, slots, a custom ``__setattr__``."""
    undo.remember(module, values)
    for key in registered_in(module)[0]:
        if key in values:
            setattr(module, key, values[key])
        elif key in fields:
            vars(module)[key] = fields[key]


def _load(module: Any, load: Callable[[], object], undo: _Undo) -> None:
    undo.remember_all(module)
    load()


def _missing(name: Name, key: str) -> UnknownPathError:
    return UnknownPathError(
        _text((name, key)), at="the state dict", hint="strict=False leaves what is missing as it is"
    )


def _text(name: Name) -> str:
    parts = []
    while name is not None:
        name, part = name
        parts.append(part)
    return ".".join(reversed(parts))


class _Undo:
    """The undo steps of a load, last one first."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], object]] = []

    def remember(self, module: Any, keys: Iterable[str] = ()) -> None:
        """Remember the fields of a module, and attributes outside of its ``__dict__``."""
        fields = dict(vars(module))
        elsewhere = {key: getattr(module, key, _MISSING) for key in keys if key not in fields}
        self.steps.append(partial(_put_back, module, fields, elsewhere))

    def remember_all(self, module: Any) -> None:
        """Remember a module that loads itself, and the modules in it: fields, containers in them, and its own state."""
        below, todo = {id(module): module}, [module]
        while todo:
            for _, nested in nested_in(todo.pop()):
                if id(nested) not in below:
                    below[id(nested)] = nested
                    todo.append(nested)
        for each in below.values():
            self.remember(each, getattr(each, "_attribute_dict", ()))
        for container in _containers([vars(each) for each in below.values()]):
            self.steps.append(partial(_fill, container, container.copy()))
        # Last, so that it is undone first: it restores values that only the module can reach, such as the objects in
        # its fields.
        try:
            state = copied(module.state_dict())
        except Exception:  # noqa: BLE001 - a module without a state yet may load one all the same, and its fields are remembered
            return
        self.steps.append(partial(module.load_state_dict, state))

    def run(self, error: BaseException) -> None:
        """Undo everything, even after an interrupt, and raise the last interrupt afterwards."""
        interrupt: BaseException | None = None
        tries = 0
        while self.steps:
            try:
                self.steps[-1]()
            except BaseException as failure:  # noqa: BLE001 - the caller gets the error that came first, and this one as a note
                tries += 1
                if not isinstance(failure, Exception):
                    interrupt = failure
                    if tries < _TRIES:
                        continue  # after Ctrl-C, repeat the step
                error.add_note(f"the state of a module could not be restored: {failure!r}")
            tries = 0
            self.steps.pop()
        if interrupt is not None:
            raise interrupt


def _put_back(module: Any, fields: dict[str, Any], elsewhere: dict[str, Any]) -> None:
    for key, value in elsewhere.items():
        if value is not _MISSING:
            setattr(module, key, value)
        elif getattr(module, key, _MISSING) is not _MISSING:
            object.__delattr__(module, key)
    there = vars(module)
    there.update(fields)
    for key in [key for key in there if key not in fields]:
        del there[key]


def _containers(roots: list[Any]) -> list[Any]:
    """Return the lists, dicts, sets and the like in some dicts, to any depth, without the dicts themselves."""
    seen: dict[int, Any] = {}
    todo = [value for root in roots for value in root.values()]
    while todo:
        value = todo.pop()
        if not isinstance(value, list | dict | tuple | set | deque | bytearray) or id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, dict):
            todo += value.values()
        elif not isinstance(value, set | bytearray):
            todo += value
    return [value for value in seen.values() if not isinstance(value, tuple)]


def _fill(container: Any, before: Any) -> None:
    """Restore the elements of a container."""
    if isinstance(container, list | bytearray):
        container[:] = before
    elif len(container) != len(before) or any(
        a is not b for a, b in zip(_parts(container), _parts(before), strict=True)
    ):
        container.clear()
        (container.extend if isinstance(container, deque) else container.update)(before)


def _parts(container: Any) -> list[Any]:
    return [part for pair in container.items() for part in pair] if isinstance(container, dict) else list(container)
