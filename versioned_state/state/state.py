"""``State``, the base of every kind of state, and paths in live values. Layer: state."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar

from versioned_state.errors import UnknownPathError
from versioned_state.state.aio.caller import HandleLock, locked
from versioned_state.values.keys import user_key
from versioned_state.values.paths.path import Key, Namespace, StatePath, Step, as_path

if TYPE_CHECKING:
    from versioned_state.state.sequence import StateSequence

M = TypeVar("M")

_NONE: Final = object()

_FIELDS_SHOWN: Final = 12
"""The fields that an error names: for most classes, all of them."""

_KEYS_COMPARED: Final = 1000
"""The keys among which an error searches for similar ones."""


class State(MutableMapping[str, Any]):
    """A dict of plain values under string keys, in sorted order. ``|`` gives a plain dict.

    ``Live``, ``Versioned`` and the namespaces of either are states, and one swaps for another. Calls are locked, so
    each is atomic for the threads that share a state.
    """

    _lock: HandleLock

    def _check_open(self) -> None:
        """Raise ``HandleClosedError`` if the state was closed."""

    @abstractmethod
    def iter_keys(
        self,
        prefix: str = "",
        *,
        start: str | None = None,
        end: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[str]:
        """Iterate over the present keys that begin with ``prefix`` and lie in [start, end), in order.

        Cost: two paths, and those keys.

        Args:
            start, end: whole keys, which need not be there; the range has the first and not the last.
            reverse: from the last key back.
            limit: the most keys to list.
        """

    @abstractmethod
    def _last_key(self) -> str | None:
        """Return the last key, or None if there is none."""

    @abstractmethod
    def namespace(self, name: str) -> State:
        """Return the part of the state under a name, a state of its own.

        Its keys never collide with those of another, or of this one.
        """

    @abstractmethod
    def namespaces(self) -> list[str]:
        """Return the names of the namespaces that hold a key, in order."""

    @abstractmethod
    def sequence(self, key: str) -> StateSequence:
        """Return the list under a key, to read and edit it without loading it.

        A call on it costs O(log n) and the elements that it touches.
        """

    @abstractmethod
    def release(self, key: str) -> bool:
        """Stop tracking a loaded value that has not changed, which also saves comparing it.

        Returns whether the key is no longer loaded.

        The state no longer sees changes that are made through remaining references to the value.
        """

    def __iter__(self) -> Iterator[str]:
        return self.iter_keys()

    def at(self, path: str | StatePath) -> Any:
        """Return the live value at a path, such as ``messages[17].content``: changes to it are changes of the state.

        Loads the key.

        Raises:
            InvalidPathError: the path does not parse.
            UnknownPathError: nothing is there.
        """
        if self._lock.is_leased_here:
            return value_at(self, as_path(path))  # a loaded value can be read during the call that is under way
        return self._at(as_path(path))

    @locked
    def _at(self, path: StatePath) -> Any:
        return value_at(self, path)

    def typed(self, model: type[M]) -> M:
        """Return the state as an instance of a class, for type checkers.

        The fields of the class are attributes, which read and write the keys: ``state.typed(AppState).messages`` is
        ``state["messages"]``. Its methods and properties work on them. A missing key has the default of its field,
        which is put into the state if it can change in place. Nothing is validated: ``schema=`` does that. Cost: none.

        Args:
            model: a dataclass, a pydantic model, an attrs class, or a ``TypedDict``, for which the state itself is
                returned.

        Raises:
            InvalidArgumentError: it is another class.
            AttributeError: of an attribute: the class has no such field, or there is neither a key nor a default.
        """
        from versioned_state.values.typed.view import typed_view

        return typed_view(self, model)

    @locked
    def pop(self, key: str, default: Any = _NONE) -> Any:
        """Remove a key and return its value, or the default if there is no key.

        Raises ``KeyError`` if there is neither.
        """
        try:
            value = self[key]
        except KeyError:
            if default is _NONE:
                raise
            return default
        del self[key]
        return value

    @locked
    def popitem(self) -> tuple[str, Any]:
        """Remove the last key in their order and return it with its value. Raises ``KeyError`` if there is none."""
        key = self._last_key()
        if key is None:
            raise KeyError("popitem(): the state is empty")
        return key, self.pop(key)

    @locked
    def clear(self) -> None:
        """Remove every key. Namespaces stay."""
        for key in self.iter_keys():
            del self[key]

    @locked
    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, which is set to the default if it does not exist."""
        if key in self:
            return self[key]
        self[key] = default
        return default

    @locked
    def update(self, other: Any = (), /, **values: Any) -> None:
        """Set the keys of a mapping, of pairs and of keywords.

        All of them are set, or none if one cannot be a key or ``other`` cannot be read.
        """
        given = dict(other, **values)
        for key in given:
            user_key(key)
        for key, value in given.items():
            self[key] = value

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self}

    def __reversed__(self) -> Iterator[str]:
        """Iterate over the keys, from the last one back."""
        return self.iter_keys(reverse=True)

    def __ior__(self, other: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Self:
        self.update(other)
        return self

    @abstractmethod
    def _previews(self, limit: int) -> Iterator[tuple[str, str]]:
        """Iterate over the first keys, at most ``limit`` of them, each with its value on one line."""

    def _repr_html_(self) -> str:
        from versioned_state.repository.shown import notebook

        return notebook.values(repr(self)[1:-1], self._previews(notebook.ROWS + 1))

    def __setattr__(self, name: str, value: Any) -> None:
        # A user's subclass may have attributes. On the library's own classes an assignment would be lost silently.
        if name[:1] != "_" and type(self).__module__.startswith("versioned_state.") and not hasattr(type(self), name):
            raise AttributeError(f"a state keeps values under keys: write state[{name!r}] = ...", name=name, obj=self)
        super().__setattr__(name, value)

    def _ipython_key_completions_(self) -> list[str]:
        """Return the keys that a notebook offers behind ``state["``, at most a thousand."""
        return list(self.iter_keys(limit=1000))

    def __reduce_ex__(self, protocol: object, /) -> NoReturn:
        # Of copy and pickle: a state is a connection to a store, with locks.
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: copy() gives its values as a dict")

    def copy(self) -> dict[str, Any]:
        """Return the keys and live values as a plain dict. The values are not copied."""
        return dict(self.items())


def value_at(state: State, path: StatePath) -> Any:
    """Return the live value at a path. Raises ``UnknownPathError``, which names the missing part of the path."""
    value: Any = state
    for count, step in enumerate(path.steps, 1):
        try:
            value = step_into(value, step)
        except LookupError as error:
            (hint,) = error.args
            raise UnknownPathError(str(StatePath(path.steps[:count])), at="the state", hint=hint) from None
    return value


def step_into(value: Any, step: Step) -> Any:
    """Return the live value that one step leads to.

    Raises ``LookupError`` with a hint. Adds nothing to a ``defaultdict``.
    """
    if isinstance(step, Namespace):
        if isinstance(value, State):
            return value.namespace(step.name)
    elif isinstance(step, Key):
        if isinstance(value, State | dict):
            key = key_of(step)
            if key in value:
                return value[key]
            raise LookupError(_near_hint(value, key))
        from versioned_state.values.typed.registry import fields_of

        fields = fields_of(value)
        if fields is not None:
            key = key_of(step)
            if key in fields:
                return fields[key]
            raise LookupError(_fields_hint(value, fields))
    elif isinstance(value, list | tuple | deque) or _is_column(value):
        if -len(value) <= step.index < len(value):
            return value[step.index]
        raise LookupError(length_hint(value))
    raise LookupError(f"a value of type {type(value).__name__} has no such part")


def _is_column(value: Any) -> bool:
    """Return whether a value is an array of numpy with one dimension, or one of pandas' own."""
    from versioned_state.values.codec.arrays import is_array
    from versioned_state.values.tables import layouts as tables

    return value.ndim == 1 if is_array(value) else tables.is_array(value)


def _near_hint(value: State | dict[Any, Any], key: Any) -> str:
    """Return a hint with keys that are similar to a missing one. Cost: a thousand keys at most."""
    from difflib import get_close_matches

    keys = value.iter_keys(limit=_KEYS_COMPARED) if isinstance(value, State) else islice(value, _KEYS_COMPARED)
    near = get_close_matches(str(key), [each for each in keys if type(each) is str], n=3)
    return f"did you mean {', '.join(str(StatePath().key(each)) for each in near)}?" if near else ""


def _fields_hint(value: Any, fields: dict[Any, Any]) -> str:
    """Return the fields of an instance, for an error about a missing field."""
    from versioned_state.values.typed.tagged import Tagged

    name = value.name.rpartition(":")[2] if type(value) is Tagged else type(value).__name__
    shown = [str(field) for field in islice(fields, _FIELDS_SHOWN)]
    more = ["…"] if len(fields) > _FIELDS_SHOWN else []
    return f"the {name} has {', '.join(shown + more) or 'no fields'}"


def length_hint(value: list[Any] | tuple[Any, ...] | deque[Any]) -> str:
    """Return the length of a list, for an error about a missing index."""
    return f"the {type(value).__name__} has {len(value)} element{'' if len(value) == 1 else 's'}"


def key_of(step: Key) -> Any:
    """Return the key of a dict that a step leads to."""
    if step.cell is None:
        return step.key
    from versioned_state.values.decode.decoder import decode_inline

    return decode_inline(step.cell, classes="loaded")
