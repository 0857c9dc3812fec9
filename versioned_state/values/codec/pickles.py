"""Objects: values that are not data are pickled if the policy allows it. Layer: values.

Unpickling runs code chosen by the writer of the bytes. ``PicklePolicy`` decides when it is allowed; only this module
unpickles.
"""

from __future__ import annotations

import io
import operator
import pickle
from collections.abc import Callable
from functools import cache
from io import BytesIO
from typing import Any, Final, Literal

from blake3 import blake3

from versioned_state.arguments import one_of
from versioned_state.errors import InvalidArgumentError, PickleRefusedError
from versioned_state.records import dataclass
from versioned_state.values.codec import arrays
from versioned_state.values.codec.exceptions import reduce_exception
from versioned_state.values.codec.trust import TrustedClasses

PickleMode = Literal["own", "allow", "refuse"]

IN_BAND = 1024
"""Bytes up to which a buffer stays inside its pickle: an object of its own would cost more than it could ever share."""


@dataclass(frozen=True, slots=True)
class Pickled:
    """A pickled object: its type's name, the pickle, and its out-of-band buffers (writable or not, and the bytes)."""

    type_name: str
    data: bytes
    buffers: list[tuple[bool, memoryview]]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """A description of a stored object, made without unpickling it. It is shown in place of the object.

    Attributes:
        type_name: the qualified name of its type when it was stored.
        size: bytes of its pickle and buffers.
        imports: the names that unpickling it would import, if the pickle was read.
    """

    type_name: str
    size: int
    imports: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<object {self.type_name}, {self.size} bytes>"


class PicklePolicy:
    """When objects are pickled and unpickled.

    Args:
        mode: ``"own"`` if the store is private, ``"allow"`` always, ``"refuse"`` never.
        private: whether only this user can write to the store.
        key: with a key, each pickle carries a MAC that is bound to this use, and a pickle without one is refused;
            ``mode`` is then ignored.
        classes: the modules whose classes a typed value may have, whatever the mode.
    """

    __slots__ = ("classes", "key", "mode", "private")

    def __init__(
        self,
        mode: PickleMode = "own",
        *,
        private: bool,
        key: bytes | None = None,
        classes: TrustedClasses | None = None,
    ) -> None:
        one_of("pickle", mode, PickleMode)
        if key is not None and type(key) is not bytes:
            raise TypeError(f"pickle_key must be bytes, not {type(key).__name__}")
        if key is not None and len(key) < 16:
            raise InvalidArgumentError(f"pickle_key has {len(key)} bytes: it takes 16 or more")
        self.mode = mode
        self.private: Final = private
        self.classes: Final = classes
        self.key: Final = (
            None if key is None else blake3(key, derive_key_context="versioned-state 2026 pickle mac").digest()
        )

    @property
    def allowed(self) -> bool:
        return self.key is not None or self.mode == "allow" or (self.mode == "own" and self.private)

    @property
    def imports(self) -> bool:
        """Whether the class of a typed value may be imported. A key is not enough: typed values carry no MAC."""
        return self.mode == "allow" or (self.mode == "own" and self.private)

    def check_write(self, path: str, type_name: str) -> None:
        """Raise ``PickleRefusedError`` unless objects may be written."""
        if not self.allowed:
            raise PickleRefusedError(
                f"{path} of type {type_name} is not data and would have to be pickled, which is refused {self._why()}",
                remains="nothing was changed",
                policy=self.mode,
                path=path,
                type_name=type_name,
                hint="store data instead, register() the type, or open with pickle_key=… or pickle='allow' "
                "if you trust every writer",
            )

    def check_read(self, type_name: str) -> None:
        """Raise ``PickleRefusedError`` unless objects may be unpickled."""
        if not self.allowed:
            raise PickleRefusedError(
                f"an object of type {type_name} would have to be unpickled, which is refused {self._why()}",
                policy=self.mode,
                type_name=type_name,
                hint="unpickling runs code: open with pickle_key=… or pickle='allow' "
                "only if you trust every writer of this store",
            )

    def mac(self, content: bytes) -> bytes | None:
        return None if self.key is None else blake3(content, key=self.key).digest(length=16)

    def check_mac(self, mac: bytes | None, content: bytes, type_name: str) -> None:
        """Raise ``PickleRefusedError`` if a key is set and the MAC is missing or does not match."""
        import hmac

        expected = self.mac(content)
        if expected is not None and (mac is None or not hmac.compare_digest(mac, expected)):
            raise PickleRefusedError(
                f"an object of type {type_name} was not written with this pickle_key, and is not unpickled",
                policy="key",
                type_name=type_name,
                hint="open with the key that it was written with",
            )

    def _why(self) -> str:
        if self.mode == "refuse":
            return "by pickle='refuse'"
        return "by pickle='own', since others may write to this store"


def type_name_of(value: Any) -> str:
    """Return the module and qualified name of a value's type."""
    cls = type(value)
    return f"{cls.__module__}.{cls.__qualname__}"


def dump(value: Any) -> Pickled:
    """Pickle by cloudpickle, protocol 5, large buffers out of band. Raises whatever the value's own code raises."""
    buffers: list[tuple[bool, memoryview]] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes <= IN_BAND:
            return True
        buffers.append((not view.readonly, view))
        return False

    return Pickled(type_name_of(value), dump_whole(value, keep), buffers)


def dump_whole(value: Any, keep: Callable[[pickle.PickleBuffer], bool] | None = None) -> bytes:
    """Return what ``dump`` does, with all buffers in band except those that ``keep`` takes."""
    file = BytesIO()
    _pickler_class()(file, protocol=5, buffer_callback=keep).dump(value)
    return file.getvalue()


@cache
def _pickler_class() -> Any:
    import cloudpickle  # 30 ms, and most states are data

    class ObjectPickler(cloudpickle.Pickler):  # type: ignore[misc]
        """A cloudpickle pickler that refuses open files and memory views, and pickles exceptions so that they load."""

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, io.IOBase) and not isinstance(value, io.StringIO | io.BytesIO):
                # cloudpickle would store the content of a text file, and a name for a standard stream.
                raise TypeError(f"cannot pickle an open file ({type(value).__name__})")
            if isinstance(value, memoryview):
                # cloudpickle would store bytes, whose type, format and shape are others.
                raise TypeError("cannot pickle a memoryview; store bytes(view), or what it is a view of")
            if arrays.is_record(value):
                # numpy's own way gives back a record that drops what is assigned to its fields.
                return operator.getitem, (value.reshape(1), 0)
            reduced = reduce_exception(value)
            return super().reducer_override(value) if reduced is NotImplemented else reduced

    return ObjectPickler


def load(data: bytes, buffers: list[bytes | bytearray]) -> Any:
    """Unpickle. Callers check the policy first."""
    return pickle.loads(data, buffers=buffers)  # noqa: S301 - the one place that unpickles, behind PicklePolicy


def imported_names(data: bytes) -> tuple[str, ...]:
    """Return the names that a pickle would import, found by reading its opcodes: nothing is run."""
    names: dict[str, None] = {}
    strings: list[str] = []
    memo: dict[int, str] = {}
    try:
        import pickletools

        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "GLOBAL":
                names[str(argument).replace(" ", ".")] = None
            elif opcode.name == "STACK_GLOBAL" and len(strings) > 1:
                names[".".join(strings[-2:])] = None
            elif opcode.name == "MEMOIZE":
                memo[len(memo)] = strings[-1] if strings else ""
            elif opcode.name in ("BINGET", "LONG_BINGET"):
                strings.append(memo.get(int(argument or 0), ""))
            elif isinstance(argument, str):
                strings.append(argument)
    except Exception:  # noqa: BLE001 - damaged opcodes: the names found so far are still worth showing
        return (*names, "?")
    return tuple(names)
