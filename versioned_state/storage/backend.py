"""``Backend``, the base of stores that hold bytes.

It checks the arguments of every call, so that backends need not. Layer: storage.

The checks are part of every commit. They loop without function calls, because a call costs more than the check itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NoReturn

from versioned_state.errors import InvalidArgumentError, StoreClosedError
from versioned_state.storage.base import OBJECT_PREFIX, KVStore, check_iterable, may_list_objects
from versioned_state.storage.kept import drop_kept


class Backend(KVStore):
    """A ``KVStore`` made of five methods, called with checked arguments on an open store only.

    ::

        class Mine(Backend):
            def _get(self, key): ...            # bytes, or None if there is none
            def _get_many(self, keys): ...      # a tuple without repeats -> dict of those that exist
            def _keys(self, prefix): ...        # an iterator
            def _apply(self, expected, puts, deletes, objects): ...   # see KVStore.apply
            def _close(self): ...               # idempotent

    A thread may close the store while another is within one of them.
    """

    _closed = False

    @abstractmethod
    def _get(self, key: str) -> bytes | None:
        """Do ``KVStore.get`` for a key that was checked, while the store is open."""

    @abstractmethod
    def _get_many(self, keys: tuple[str, ...]) -> dict[str, bytes]:
        """Do ``KVStore.get_many`` for keys that do not repeat, of which there may be none."""

    @abstractmethod
    def _keys(self, prefix: str) -> Iterator[str]:
        """Do ``KVStore.keys``. A step after ``close()`` raises ``StoreClosedError``, unless all keys are in memory."""

    @abstractmethod
    def _apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes],
    ) -> bool:
        """Do ``KVStore.apply`` for a batch that was checked, while the store is open."""

    def _page(self, prefix: str, after: str | None, limit: int, *, reverse: bool) -> list[str]:
        """Do ``KVStore.page``. A store that keeps its keys in order does better."""
        return KVStore.page(self, prefix, after=after, limit=limit, reverse=reverse)

    def _page_items(self, prefix: str, after: str | None, limit: int, *, reverse: bool) -> dict[str, bytes | None]:
        """Do ``KVStore.page_items``. A store that gives keys and values in one request does better."""
        return KVStore.page_items(self, prefix, after=after, limit=limit, reverse=reverse)

    def _sizes(self, keys: tuple[str, ...]) -> dict[str, int] | None:
        """Do ``KVStore.sizes`` for keys that do not repeat."""
        return None

    @abstractmethod
    def _close(self) -> None:
        """Do ``KVStore.close``.

        Called by each ``close()``, because an earlier ``close()`` may have been interrupted.
        """

    def get(self, key: str) -> bytes | None:
        check_key(key)
        if self._closed:
            raise_closed()
        return self._get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = check_keys(keys)
        if self._closed:
            raise_closed()
        return self._get_many(wanted)

    def sizes(self, keys: Iterable[str]) -> dict[str, int] | None:
        wanted = check_keys(keys)
        if self._closed:
            raise_closed()
        return self._sizes(wanted)

    def keys(self, prefix: str = "") -> Iterator[str]:
        check_key(prefix)
        if self._closed:
            raise_closed()
        return self._keys(prefix)

    def page(self, prefix: str = "", *, after: str | None = None, limit: int, reverse: bool = False) -> list[str]:
        self._check_page(prefix, after)
        if may_list_objects(prefix):  # a store may keep an odd object among its mutable keys
            return KVStore.page(self, prefix, after=after, limit=limit, reverse=reverse)
        return self._page(prefix, after, limit, reverse=reverse)

    def page_items(
        self, prefix: str = "", *, after: str | None = None, limit: int, reverse: bool = False
    ) -> dict[str, bytes | None]:
        self._check_page(prefix, after)
        if may_list_objects(prefix):
            return KVStore.page_items(self, prefix, after=after, limit=limit, reverse=reverse)
        return self._page_items(prefix, after, limit, reverse=reverse)

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        added: Mapping[str, bytes] = objects or {}
        check_batch(expected, puts, deletes, added, self.max_expected)
        if self._closed:
            raise_closed()
        return self._apply(expected, puts, deletes, added)

    def _check_page(self, prefix: str, after: str | None) -> None:
        check_key(prefix)
        if after is not None:
            check_key(after)
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise_closed()

    def close(self) -> None:
        self._closed = True
        drop_kept(self)
        self._close()


def raise_closed() -> NoReturn:
    """Raise ``StoreClosedError``."""
    raise StoreClosedError


def check_key(key: str) -> None:
    """Raise ``TypeError`` unless ``key`` is a ``str``, and ``InvalidArgumentError`` unless it encodes to UTF-8."""
    if type(key) is not str:
        _refuse_key(key)
    if not key.isascii():
        _check_encode((key,))


def check_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the keys without repeats, each checked as by ``check_key``."""
    check_iterable(keys)
    # The types come before the dict: a key may be unhashable.
    checked = tuple(keys)
    for key in checked:
        if type(key) is not str:
            _refuse_key(key)
    if not "".join(checked).isascii():
        _check_encode(checked)
    return tuple(dict.fromkeys(checked))


def check_batch(
    expected: Mapping[str, bytes | None],
    puts: Mapping[str, bytes],
    deletes: Collection[str],
    objects: Mapping[str, bytes],
    max_expected: int | None,
) -> None:
    """Raise for the arguments that ``KVStore.apply`` forbids."""
    for value in expected.values():
        if value is not None and type(value) is not bytes:
            _refuse_value(value)
    for value in (*puts.values(), *objects.values()):
        if type(value) is not bytes:
            _refuse_value(value)
    for key in (*expected, *puts):
        if type(key) is not str:
            _refuse_key(key)
        if key[:2] == OBJECT_PREFIX:
            raise InvalidArgumentError(
                f"{key!r} is an object: it has no expectation, and is passed in objects=, not in puts"
            )
    if objects:
        _check_objects(objects)
    if not "".join((*expected, *puts, *objects)).isascii():
        _check_encode((*expected, *puts, *objects))
    if deletes:
        _check_deletes(deletes, puts, objects)
    if max_expected is not None and len(expected) > max_expected:
        raise InvalidArgumentError(
            f"this store carries at most {max_expected} conditions in one batch, not {len(expected)}"
        )


def _check_objects(keys: Iterable[str]) -> None:
    for key in keys:
        if type(key) is not str:
            _refuse_key(key)
        if key[:2] != OBJECT_PREFIX:
            raise InvalidArgumentError(f"{key!r} is not an object: it belongs in puts, not in objects=")


def _check_deletes(deletes: Collection[str], puts: Mapping[str, bytes], objects: Mapping[str, bytes]) -> None:
    if not isinstance(deletes, Collection):
        raise TypeError("deletes must be a collection: checking an iterator would use it up")
    for key in check_keys(deletes):
        if key in puts or key in objects:
            raise InvalidArgumentError(f"{key!r} is both stored and deleted in one batch")


def _check_encode(keys: tuple[str, ...]) -> None:
    for key in keys:
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"a key must encode to UTF-8: {key!r} has a lone surrogate") from error


def _refuse_key(key: object) -> NoReturn:
    raise TypeError(f"a key must be a str, not {type(key).__name__}")


def _refuse_value(value: object) -> NoReturn:
    # A bytearray could change after it was stored.
    raise TypeError(f"a value must be bytes, not {type(value).__name__}")
