"""Events as entries of a series in the state: their names, which are in order of time, and their cells. Layer: agents.

An entry is a list: the event, the address of the commit, the names of the calls, the agent, and the namespace that the
call worked in.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

from versioned_state.agents.events.classes import TaskStartEvent
from versioned_state.agents.events.stamps import Stamp
from versioned_state.errors import CorruptObjectError
from versioned_state.objects.address import ADDRESS_SIZE
from versioned_state.repository.history.commit import EARLIEST
from versioned_state.values.cells import Code, array_header, extension, map_header, pack_text
from versioned_state.values.encode.inline import head_of, plain_cell
from versioned_state.values.keys import ENGINE, namespace_prefix

EVENTS: Final = ENGINE + b"events"
"""The engine key of the series."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_IN_ORDER: Final = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TO_ORDER: Final = bytes.maketrans(_BASE64, _IN_ORDER)
_FROM_ORDER: Final = bytes.maketrans(_IN_ORDER, _BASE64)


def name_of(time: int, call: str) -> str:
    """Return the name of an event's entry.

    Names sort by time, and those of one microsecond by the ids of their calls.
    """
    data = ((time - EARLIEST) << 32 | int(call[:8], 16)).to_bytes(12, "big")
    return str(b2a_base64(data, newline=False).translate(_TO_ORDER), "ascii")


def first_name(time: int) -> str:
    """Return the least name that an event of a time, or later, can have."""
    return name_of(max(time, EARLIEST), "00000000")


def time_of(name: str) -> datetime:
    """Return the time in the name of an entry."""
    data = a2b_base64(name.encode("ascii", "replace").translate(_FROM_ORDER))
    return _EPOCH + timedelta(microseconds=int.from_bytes(data[:8], "big") + EARLIEST)


def event_cell(cls: type, fields: bytes) -> bytes:
    """Return the cell of an event of a class in ``classes``, from the cell of a dict of its fields sorted by name.

    It equals the cell of an instance, but no instance is made.
    """
    return head_of(cls.__name__) + fields


def start_cell(inputs: Mapping[str, Any], message: str, task_name: str) -> bytes | None:
    """Return the cell of a ``TaskStartEvent``, or None if a part of it is not JSON.

    Cost: packing the inputs, since the rest is the same for each call of a task.
    """
    rest, cell = _rest_of_start(message, task_name), plain_cell(inputs)
    return None if rest is None or cell is None else _START + cell + rest


@lru_cache(256)
def _rest_of_start(message: str, task_name: str) -> bytes | None:
    """Return the fields of a ``TaskStartEvent`` after its inputs."""
    cell = plain_cell({"message": message, "task_name": task_name})
    return None if cell is None else cell[len(map_header(2)) :]


_START: Final = head_of(TaskStartEvent.__name__) + map_header(3) + pack_text("inputs")


def entry_cell(event: bytes, commit: bytes, namespace: str, agent: str, space: str) -> bytes:
    """Return the cell of an entry. ``event`` is the cell of the event itself."""
    return _HEADER + event + _COMMIT + commit + _names(namespace, agent, space)


_HEADER: Final = array_header(5)
_COMMIT: Final = extension(Code.BYTES, bytes(ADDRESS_SIZE))[:-ADDRESS_SIZE]


@lru_cache(256)
def _names(namespace: str, agent: str, space: str) -> bytes:
    return b"".join(map(pack_text, (namespace, agent, space)))


class Entry(NamedTuple):
    """An event as it was stored."""

    event: Any
    stamp: Stamp
    space: str


def read_entry(name: str, stored: Any) -> Entry:
    """Return the event of an entry. Raises ``CorruptObjectError``."""
    try:
        event, commit, namespace, agent, space = stored
        return Entry(event, Stamp(time_of(name), agent, namespace, commit.hex()), space)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptObjectError("(an event)", f"its entry cannot be read: {error}") from error


def prefix_of(space: str) -> bytes:
    """Return the prefix of the root keys of a namespace, which is written as ``space_of`` returns it."""
    return b"".join(map(namespace_prefix, space.split("\0"))) if space else b""


def space_of(prefix: bytes) -> str:
    """Return the namespaces in the prefix of root keys, as an entry holds them: with NUL between their names."""
    return prefix[1:-1].replace(b"\0n", b"\0").decode("utf-8", "surrogatepass")
