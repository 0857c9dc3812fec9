"""Bytes that distinguish two runs of values, for fingerprints. Nothing reads them back. Layer: values.

A value counts as it is stored. Data counts by value alone, and an instance of an ordinary class by its identity too.
cloudpickle stores an object with a memo, so it also counts which of its mutable parts are the same object; for equal
strings that does not count, as no reader could tell. A function or class counts by name if it is stored by name.
Otherwise it counts as a whole: one of a script, a notebook or a function.
"""

from __future__ import annotations

import datetime as dt
import os
import pickle
import sys
from collections.abc import Callable
from io import BytesIO
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final
from weakref import ReferenceType
from zoneinfo import ZoneInfo

import msgpack
from xxhash import xxh3_128_digest

from versioned_state.values.cells import PACKER_BYTES
from versioned_state.values.codec import arrays
from versioned_state.values.codec.exceptions import reduce_exception
from versioned_state.values.codec.pickles import dump_whole
from versioned_state.values.codec.scalars import WRITERS, NotDataError
from versioned_state.values.typed.enums import EnumLayout
from versioned_state.values.typed.layout import Layout, NotPlainDataError
from versioned_state.values.typed.registry import layout_of
from versioned_state.values.typed.tagged import Tagged

_DATA: Final = frozenset({*WRITERS, float, bool, type(None)})
_IMMUTABLE: Final = (_DATA - {bytearray}) | {tuple, frozenset}
"""Types of which one value and two equal values differ by ``is`` alone."""

_MANY: Final = 128
"""The number of parts from which an object is first pickled whole and looked up: checking each part takes 90 ns."""

_KEPT: Final = 1024
"""Digests that are kept, at about 200 bytes each."""

_MEMBERS_KEPT: Final = 4096
"""Members of Enums, and time zones, whose bytes are kept."""

_SEED: Final = int.from_bytes(os.urandom(8), "big")  # so that no user can craft two objects with the same digest


_MARK: Final = os.urandom(8)
"""Begins each list that stands for a value of another type: no value has it."""

_BINARY: Final = (bytes, bytearray, memoryview, msgpack.ExtType, msgpack.Timestamp)
"""Types that MessagePack writes without calling its hook, and of which two values of two types have the same bytes."""

_CANNOT_PACK: Final = (TypeError, OverflowError, ValueError, RecursionError)

_only_scalars = frozenset({str, int, float, bool, type(None)}).issuperset

StandIn = Callable[[Any], list[Any] | bytes]


class ExactPacker:
    """A packer of runs of values of any type. Not for two threads at once.

    Args:
        identities: count instances of ordinary classes by identity. If not, equal instances count as the same.
    """

    def __init__(self, *, identities: bool = True) -> None:
        self._identities = identities
        self._members: dict[int, bytes] = {}
        self._met: dict[int, tuple[int, Any]] = {}  # the instances that have an identity: a run has each of them once
        self._stand_in = _make_stand_in({}, {}, self._members, self._met, identities=identities)
        self._queues: dict[type, _Queue | None] = {}
        self._waiting: list[_Queue] = []
        self._places: dict[int, int] = {}
        # keeps the values that are made for packing alive until the run is packed, so that no id is reused
        self._gathered: list[Any] = []
        self._pack = msgpack.Packer(strict_types=True, buf_size=PACKER_BYTES, default=self._make_gather()).pack

    def pack(self, run: list[Any]) -> bytes | None:
        """Return the bytes of a run, or None if it has values that MessagePack cannot write or tell apart.

        Cost: about 250 ns an instance.

        A run that holds no binary value and one that does never have the same bytes.
        """
        try:
            packed: bytes = self._pack(self._as_one(run))
            return packed + self._pack_waiting() if self._waiting else packed
        except _CANNOT_PACK:
            return None
        except Exception:  # noqa: BLE001 - code of the values' own types runs here; encoding them gives the error its path
            return None
        finally:
            self._met.clear()
            if self._places:
                self._places.clear()
                self._gathered.clear()
                for queue in self._queues.values():
                    if queue is not None:
                        queue.values = []
                self._waiting.clear()

    def _as_one(self, run: list[Any]) -> list[Any]:
        """Return a run of instances of one class as a few lists, or any other run unchanged."""
        types = set(map(type, run))
        if len(types) == 1:
            layout = layout_of(types.pop())
            packed = None if layout is None else layout.pack_run(run, identities=self._identities)
            if packed is not None:
                return packed
        return run

    def _make_gather(self) -> StandIn:
        """Make the hook of MessagePack. It queues an instance inside another one, and packs a mark in its place."""
        members, queues, waiting, stand_in = self._members, self._queues, self._waiting, self._stand_in
        places, gathered = self._places, self._gathered

        def gather(value: Any) -> list[Any] | bytes:
            member = members.get(id(value))
            if member is not None:
                return member
            cls = type(value)
            if cls not in queues:
                queues[cls] = _queue_for(cls)
            queue = queues[cls]
            if queue is None:
                return stand_in(value)
            place = places.get(id(value))
            if place is not None:  # an instance that was packed already, or a value that contains itself
                return [_MARK, place]
            places[id(value)] = len(places)
            gathered.append(value)
            if not queue.values:
                waiting.append(queue)
            queue.values.append(value)
            return queue.mark

        return gather

    def _pack_waiting(self) -> bytes:
        """Pack the queued instances, level by level."""
        parts: list[bytes] = []
        while self._waiting:
            level = [(queue, queue.values) for queue in self._waiting]
            self._waiting.clear()
            for queue, values in level:
                queue.values = []
                parts.append(self._pack(queue.layout.pack_run(values, identities=self._identities)))
        return b"".join(parts)

    def pickle(self, run: list[Any]) -> memoryview | None:
        """Return the bytes of any run, or None if it cannot be packed. Cost: about 2 us an instance."""
        file = BytesIO()
        pickler = _RunPickler(file, self._stand_in)
        pickler.fast = True
        try:
            pickler.dump(run)
        except Exception:  # noqa: BLE001 - the same
            return None
        finally:
            self._met.clear()
        return file.getbuffer()

    def pack_object(self, value: Any) -> bytes | None:
        """Return the bytes of a value stored as an object, whatever its type, or None if it cannot be packed."""
        try:
            return _pack_object(value, {}, _Code())
        except Exception:  # noqa: BLE001 - the same
            return None


class _Queue:
    """The queued instances of one class."""

    __slots__ = ("layout", "mark", "values")

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.mark = layout.mark
        self.values: list[Any] = []


def _queue_for(cls: type) -> _Queue | None:
    """Return a queue for a class whose instances are values that pack at once, or None for any other."""
    layout = layout_of(cls)
    return (
        None
        if layout is None or layout.has_identity or layout.pack_run([], identities=False) is None
        else _Queue(layout)
    )


def _make_stand_in(
    known: dict[bytes, bytes],
    stand_ins: dict[type, StandIn],
    members: dict[int, bytes],
    met: dict[int, tuple[int, Any]],
    *,
    identities: bool,
) -> StandIn:
    """Make the function that returns a list to pack in place of a value that is not of a JSON type.

    Args:
        known: digests of large objects.
        stand_ins: the function for each type; a new type is added when it first occurs.
        members: the bytes of members of Enums, and of time zones, by the id of each.
        met: by id, the instances in the run so far that have an identity, each with its number.
    """
    kept: list[Any] = []  # keeps the members alive, so that no id is reused

    def stand_in(value: Any) -> list[Any] | bytes:
        member = members.get(id(value))
        if member is not None:
            return member
        cls = type(value)
        how = stand_ins.get(cls)
        if how is None:
            how = _find_stand_in(cls, known, met, identities=identities)
            stand_ins[cls] = how
        packed = how(value)
        if type(packed) is bytes and len(kept) < _MEMBERS_KEPT:  # for a member of an Enum, or for a time zone
            kept.append(value)
            members[id(value)] = packed
        return packed

    return stand_in


def _find_stand_in(
    cls: type, known: dict[bytes, bytes], met: dict[int, tuple[int, Any]], *, identities: bool
) -> StandIn:
    def of_object(value: Any) -> list[Any]:
        code = _Code()
        if _is_pickled_by_itself(value, code):
            return [_MARK, "pickle", pickle.dumps(value, 5)]
        return [_MARK, "object", _pack_object(value, known, code)]

    if cls in WRITERS:
        return _stand_in_of_scalar(cls, of_object)
    if cls is ReferenceType:
        return lambda value: [_MARK, "weak reference", id(value()) if identities else None]
    if cls in (tuple, set, frozenset):
        name = cls.__name__
        return lambda value: [_MARK, name, *value]
    if cls is Tagged:
        return lambda value: [_MARK, "tagged", value.name, value.fields, value.notes]
    layout = layout_of(cls)
    if layout is None:
        return of_object
    if type(layout) is EnumLayout:
        return lambda member: _MARK + msgpack.packb(layout.pack(member))
    pack = layout.pack

    def of_typed(value: Any) -> list[Any] | bytes:
        try:
            return pack(value)
        except (NotPlainDataError, AttributeError):
            return of_object(value)

    return _once(of_typed, met, identities=identities) if layout.has_identity else of_typed


def _once(of_typed: StandIn, met: dict[int, tuple[int, Any]], *, identities: bool) -> StandIn:
    """Return a ``StandIn`` for instances that have an identity.

    A run packs each of them once, since many paths may lead to one instance.
    """

    def of_one(value: Any) -> list[Any] | bytes:
        again = met.get(id(value))
        if again is not None:
            return [_MARK, "again", id(value) if identities else again[0]]
        met[id(value)] = len(met), value
        return [id(value), of_typed(value)] if identities else of_typed(value)

    return of_one


def _stand_in_of_scalar(cls: type, of_object: StandIn) -> StandIn:
    if cls is dt.datetime:
        return _stand_in_of_datetime(of_object)
    write = WRITERS[cls]
    is_shared = cls is dt.timezone or cls is ZoneInfo  # many values share a few of them, so their bytes are kept

    def of_scalar(value: Any) -> list[Any] | bytes:
        try:
            return _MARK + write(value) if is_shared else [_MARK, write(value)]
        except NotDataError:
            return of_object(value)

    return of_scalar


def _stand_in_of_datetime(of_object: StandIn) -> StandIn:
    """Pack a datetime by the bytes of its pickle state, at a third of its cell's cost: most messages have one."""

    def of_datetime(value: Any) -> list[Any] | bytes:
        zone = value.tzinfo
        if zone is not None and type(zone) not in WRITERS:
            return of_object(value)
        return [_MARK, value.__reduce_ex__(5)[1][0], zone]

    return of_datetime


def _is_pickled_by_itself(value: Any, code: _Code) -> bool:
    """Return whether pickle alone describes a value fully: code stored by name, and numpy values without objects."""
    cls = type(value)
    if cls is FunctionType or issubclass(cls, type):
        return code.is_by_name(value)
    return (cls is BuiltinFunctionType and isinstance(value.__self__, type | ModuleType | None)) or arrays.is_data(
        value
    )


def holds_binary(values: Any, met: dict[int, Any] | None = None) -> bool:
    """Return whether some values hold a binary value, which MessagePack packs without calling its hook.

    Cost: each part that is not a JSON scalar.

    ``met``: the instances with an identity that the walk has passed.
    """
    met = {} if met is None else met
    types = set(map(type, values))
    if _only_scalars(types):
        return False
    if not types.isdisjoint(_BINARY):
        return True
    return any(holds_binary(parts, met) for value in values for parts in _inside(value, met))


def _inside(value: Any, met: dict[int, Any]) -> tuple[Any, ...]:
    """Return the collections of a value's parts, or none for an instance with an identity that the walk has passed."""
    cls = type(value)
    if cls is dict:
        return value, value.values()
    if cls in (list, tuple, set, frozenset):
        return (value,)
    if cls is Tagged:
        return ([value.fields, value.notes],)
    layout = None if cls in WRITERS else layout_of(cls)
    if layout is None or type(layout) is EnumLayout or id(value) in met:
        return ()
    if layout.has_identity:
        met[id(value)] = value
    try:
        return (layout.parts(value),)
    except Exception:  # noqa: BLE001 - the same
        return ()


class _RunPickler(pickle.Pickler):
    """A pickler in fast mode, without a memo.

    ``reducer_override`` gets every value except exact built-in containers and scalars.
    """

    def __init__(self, file: BytesIO, stand_in: StandIn) -> None:
        super().__init__(file, 5)
        self._stand_in = stand_in

    def reducer_override(self, value: Any) -> Any:
        cls = type(value)
        if cls in _DATA or (cls is type and value is _Object):
            return NotImplemented
        return _Object, (self._stand_in(value),)


def _pack_object(value: Any, known: dict[bytes, bytes], code: _Code) -> bytes:
    if not code.is_by_name(type(value)):
        return dump_whole(value)
    try:
        return bytes(_pack_parts(value, code, _MANY))
    except _LargeError:
        pass
    except Exception:  # noqa: BLE001 - code that is stored as a whole, or a value that only cloudpickle can pickle
        return dump_whole(value)
    file = BytesIO()
    pickler = _WholePickler(file, 5)
    pickler.code = code
    try:
        pickler.dump(value)
    except Exception:  # noqa: BLE001 - the same
        return dump_whole(value)
    # Equal bytes mean equal parts. Different bytes may differ only in the identity of equal strings.
    whole = xxh3_128_digest(file.getbuffer(), _SEED)
    if whole not in known:
        if len(known) >= _KEPT:
            known.clear()
        known[whole] = xxh3_128_digest(_pack_parts(value, code, None), _SEED)
    return known[whole]


class _Object:
    """The place of an object."""


class _LargeError(Exception):
    """An object of many parts."""


class _CodeError(Exception):
    """The value holds a function or class that is stored as a whole."""


def _pack_parts(value: Any, code: _Code, most: int | None) -> memoryview:
    file = BytesIO()
    pickler = _PartsPickler(file, 5)
    pickler.fast = True
    pickler.code, pickler.seen, pickler.most = code, {}, sys.maxsize if most is None else most
    pickler.dump(value)
    return file.getbuffer()


class _WholePickler(pickle.Pickler):
    """A pickler that does as cloudpickle does for a value without code."""

    code: _Code

    def reducer_override(self, value: Any) -> Any:
        self.code.check(value)
        return reduce_exception(value)


class _PartsPickler(pickle.Pickler):
    """A pickler in fast mode, with a memo of mutable parts only.

    Raises ``_LargeError`` if there are more than about ``most`` of them.
    """

    code: _Code
    most: int
    seen: dict[int, tuple[int, Any]]  # with the values, so that no id of a value that was made for pickling is reused

    def persistent_id(self, value: Any) -> int | None:
        cls = type(value)
        if cls in _IMMUTABLE:
            return None
        seen = self.seen.get(id(value))
        if seen is not None:
            return seen[0]
        if cls is list or cls is dict or cls is set:
            self.most -= 1 + len(value)
            if self.most < 0:
                raise _LargeError
        else:
            self.code.check(value)
            if isinstance(value, FunctionType | type):
                return None
            self.most -= 1
        self.seen[id(value)] = len(self.seen), value
        return None

    def reducer_override(self, value: Any) -> Any:
        return reduce_exception(value)


class _Code:
    """The stored forms of functions and classes, kept while one run is packed."""

    def __init__(self) -> None:
        self._by_name: dict[int, bool] = {}

    def is_by_name(self, value: Any) -> bool:
        """Return whether cloudpickle certainly stores a function or class by its name.

        False is always correct, but costs more.
        """
        found = self._by_name.get(id(value))
        if found is None:
            found = self._by_name[id(value)] = _is_by_name(value)
        return found

    def check(self, value: Any) -> None:
        """Raise ``_CodeError`` for a function, method or class that is stored as a whole."""
        if isinstance(value, FunctionType | MethodType | type) and not self.is_by_name(
            getattr(value, "__func__", value)
        ):
            raise _CodeError


def _is_by_name(value: Any) -> bool:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module == "__main__" or not isinstance(module, str) or not isinstance(name, str):
        return False
    cloudpickle = sys.modules.get("cloudpickle")  # nothing can be registered with it before it is imported
    by_value = () if cloudpickle is None else cloudpickle.list_registry_pickle_by_value()
    if any(module == other or module.startswith(other + ".") for other in by_value):
        return False
    inside: Any = sys.modules.get(module)
    for part in name.split("."):
        inside = getattr(inside, part, None)
    return inside is value
