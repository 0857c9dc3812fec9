"""Loading states into modules: all of them, or none. Layer: agents.

::

    plan    every value is made, and nothing is changed
    take on the values are assigned, and modules with a load_state_dict of their own are called
    undo    if one of these fails, the fields are as before

"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from versioned_state.agents.modules.containers import ATOMS, copied
from versioned_state.agents.modules.kinds import Kinds, Registered, contains_itself, is_module, nested_in, overrides, registered_in
from versioned_state.errors import InvalidArgumentError, UnknownPathError

_MISSING: Final = object()

_TRIES: Final = 3
"""Attempts at a step of the way back that is interrupted; a module may raise an interrupt of its own each time."""


Fields = tuple[dict[str, Any], dict[str, Any]]
"""The ``__dict__`` of a module, and values for it: a step that cannot fail."""

Call = Callable[["_Undo"], None]
"""A step that runs code of the module's class, and first tells how it is undone."""

Name = tuple[Any, str] | None
"""The name of a module in errors: that of the module around it, and its own. Put together if it is needed."""


def load_states(states: Iterable[tuple[Any, Any, str]], *, strict: bool = True, whole: bool = True, owned: bool = False) -> None:
    """Load states into modules: all of them, or none if one raises. An interrupted load happens or does not.

    Args:
        states: a module, its state, and its name in errors; "" is a module by itself.
        strict: raise ``KeyError`` for a key that is missing.
        whole: ask a module whose class overrides ``load_state_dict``. False in the base method itself, which is what such a class calls.
        owned: nobody else refers to the states, so that their containers need no copies.
    """
    plan = _Plan(strict=strict, owned=owned)
    for module, state, name in states:
        if whole and _loads_itself(module):
            plan.add_foreign(module, state)
        else:
            plan.add(module, state, (None, name) if name else None)
    if plan.calls:
        _take_on(plan.steps)
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


def _take_on(steps: list[Fields | Call]) -> None:
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
        undo.take_back(error)
        raise


def _loads_itself(module: Any) -> bool:
    kind = Kinds()[type(module)]
    return kind is None or kind.loads_itself


class _Plan:
    """The steps to load states, nested modules first. To make it runs the functions of registered attributes, and changes nothing.

    Attributes:
        steps: the steps.
        calls: whether one of them is a ``Call``.
    """

    def __init__(self, *, strict: bool, owned: bool) -> None:
        self.steps: list[Fields | Call] = []
        self.calls = False
        self._strict = strict
        self._owned = owned
        self._kinds = Kinds()
        # By class and attribute: is an assignment no more than a new value in the __dict__?
        self._is_plain: dict[type, dict[str, bool]] = {}
        self._todo: list[tuple[Any, Any, Name]] = []
        self._path: set[int] = set()

    def add_foreign(self, module: Any, state: Any) -> None:
        """Add a module whose class loads its state itself."""
        self.steps.append(self._foreign(module, state))

    def add(self, module: Any, state: Any, name: Name) -> None:
        """Add a module, and the modules in it to any depth."""
        start, todo = len(self.steps), self._todo
        todo.append((module, state, name))
        while todo:
            module, state, name = todo.pop()
            if state is _MISSING:  # everything in it is planned
                self._path.discard(id(module))
                continue
            if type(state) is not dict and not isinstance(state, Mapping):
                whose = _text(name) or type(module).__name__
                raise InvalidArgumentError(f"the state of {whose} is a dict, not {type(state).__name__}", remains="nothing was changed")
            attributes, modules = registered_in(module)
            # Put together in the opposite order: the steps of a module come after those of the modules in it.
            foreign = self._enter(module, modules, state, name) if modules else ()
            self._add_attributes(module, attributes, modules, state, name)
            self.steps += reversed(foreign)
        self.steps[start:] = reversed(self.steps[start:])

    def _enter(self, module: Any, modules: Mapping[str, Any], state: Mapping[str, Any], name: Name) -> Sequence[Call]:
        """Put the modules in a module on the list of those to do. Returns the steps of those that load themselves."""
        if id(module) in self._path:
            raise contains_itself(module)
        self._path.add(id(module))
        self._todo.append((module, _MISSING, None))
        foreign = []
        for key in tuple(modules):
            nested = getattr(module, key, None)
            kind = self._kinds[type(nested)]
            if kind is None:
                continue
            below = state.get(key, _MISSING)
            if below is _MISSING:
                if self._strict:
                    raise _missing(name, key)
            elif kind.loads_itself:
                foreign.append(self._foreign(nested, below))
            else:
                self._todo.append((nested, below, (name, key)))
        return foreign

    def _add_attributes(
        self, module: Any, attributes: Mapping[str, Registered], modules: Mapping[str, Any], state: Mapping[str, Any], name: Name
    ) -> None:
        cls, there = type(module), module.__dict__
        is_plain = self._is_plain.get(cls)
        if is_plain is None:
            is_plain = self._is_plain[cls] = {}
        fields: dict[str, Any] = {}
        others: dict[str, Any] | None = None
        for key, registered in tuple(attributes.items()):
            if modules and key in modules:
                continue
            value = state.get(key, _MISSING)
            if value is _MISSING:
                if self._strict:
                    raise _missing(name, key)
                continue
            if type(value) not in ATOMS and not self._owned:
                value = copied(value)
            if registered.load_json is not None:
                value = registered.load_json(value)
            if key not in is_plain:
                is_plain[key] = not overrides(cls, "__setattr__") and not hasattr(cls, key)
            if is_plain[key] and key in there and (type(value) in ATOMS or not is_module(value)):
                fields[key] = value
            else:
                others = others or {}
                others[key] = value
        if others is not None:
            self.steps.append(partial(_assign, module, others, fields))
            self.calls = True
        elif fields:
            self.steps.append((there, fields))

    def _foreign(self, module: Any, state: Any) -> Call:
        """The step of a module whose class loads its state itself."""
        self.calls = True
        state = state if self._owned else copied(state)
        load: Callable[[], object] = partial(module.load_state_dict, state)
        if not self._strict:
            # An override that takes nothing but the state cannot be told.
            with suppress(TypeError, ValueError):
                inspect.signature(module.load_state_dict).bind(state, strict=False)
                load = partial(module.load_state_dict, state, strict=False)
        return partial(_load, module, load)


def _assign(module: Any, values: dict[str, Any], fields: dict[str, Any], undo: _Undo) -> None:
    """Give a module values that it takes by other ways than its ``__dict__``: properties, slots, a ``__setattr__`` of its own."""
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
    return UnknownPathError(_text((name, key)), at="the state dict", hint="strict=False leaves what is missing as it is")


def _text(name: Name) -> str:
    parts = []
    while name is not None:
        name, part = name
        parts.append(part)
    return ".".join(reversed(parts))


class _Undo:
    """The way back from a load that fails: steps, the last one first."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], object]] = []

    def remember(self, module: Any, keys: Iterable[str] = ()) -> None:
        """Remember the fields of a module, and attributes that are kept elsewhere."""
        fields = dict(vars(module))
        elsewhere = {key: getattr(module, key, _MISSING) for key in keys if key not in fields}
        self.steps.append(partial(_put_back, module, fields, elsewhere))

    def remember_all(self, module: Any) -> None:
        """Remember a module that loads itself, with the modules in it: fields, containers in them, and its own state."""
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
        # Last, so it is the first to be undone: it reaches what only the module knows, such as the objects in its fields.
        try:
            state = copied(module.state_dict())
        except Exception:  # noqa: BLE001 - a module that cannot say its state yet may load one all the same; its fields are remembered
            return
        self.steps.append(partial(module.load_state_dict, state))

    def take_back(self, error: BaseException) -> None:
        """Undo everything. An interrupt does not end it; the last one is raised afterwards."""
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
                        continue  # Ctrl-C: the step is done again
                error.add_note(f"a module could not be given its state back: {failure!r}")
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
    """The lists, dicts, sets and the like in some dicts, to any depth; not the dicts themselves."""
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
    """Give a container its elements back."""
    if isinstance(container, list | bytearray):
        container[:] = before
    elif len(container) != len(before) or any(a is not b for a, b in zip(_parts(container), _parts(before), strict=True)):
        container.clear()
        (container.extend if isinstance(container, deque) else container.update)(before)


def _parts(container: Any) -> list[Any]:
    return [part for pair in container.items() for part in pair] if isinstance(container, dict) else list(container)
