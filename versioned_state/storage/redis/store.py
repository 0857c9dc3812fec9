"""``Redis``, a store on a Redis or Valkey server: the layout of its keys, and its two server-side scripts.

Layer: storage.

``connection`` owns the connections and the retries. docs/design has the reasons and the figures.

    {prefix}:o:00 ... :3f    64 hashes, bytes of an address -> object; the name ends with the first 6 bits of the
                             address
    {prefix}:entries         a hash, key -> value, of all other keys
    {prefix}:names           a sorted set of those keys, to list them by prefix in order
    {prefix}:layout          "1"

The braces are a hash tag of Redis Cluster: it keeps all keys of a store on one server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Literal

from versioned_state.errors import (
    CorruptStoreError,
    FormatError,
    InvalidArgumentError,
    LimitExceededError,
    NotAStoreError,
    ReadOnlyError,
    StateError,
    StorageError,
    StoreBusyError,
    StoreNotFoundError,
    UnsafeStoreError,
)
from versioned_state.storage.backend import Backend, check_batch, check_key
from versioned_state.storage.base import OBJECT_PREFIX, Batch, may_list_objects
from versioned_state.storage.byte_keys import page_range, raw_key
from versioned_state.storage.redis.connection import Command, Link

Persistence = Literal["aof", "snapshots", "none", "unknown"]

LAYOUT = 1
OLDEST = (6, 2)

# A script blocks the whole server while it runs. These bound one run to a millisecond or two.
_SCRIPT_BYTES = 1024 * 1024
_SCRIPT_OBJECTS = 250

# Bytes sent in one round trip. A server closes a connection whose pending requests exceed 1 GiB.
_BATCH_BYTES = 8 * 1024 * 1024

# Values fetched, and keys listed, in one round trip.
_GETS = 1000
_PAGE = 1000
_BUCKET_PAGE = 5000

# The server's own limits, at their defaults: bytes of a value, words of a command.
MAX_VALUE_BYTES = 512 * 1024 * 1024
_MAX_WORDS = 1_000_000

# KEYS: entries, names, layout, then the buckets of objects; ARGV refers to a bucket by its index in KEYS. ARGV: the
# layout, five counts, then the objects to add, the objects that must exist, the expectations, the deletes and the puts.
# The server runs a script as one step. If memory is full, a script fails at its first write, and only there. That write
# is SETNX or a delete, so a failed script has changed nothing.
_APPLY = """
local at = 7
local function take() at = at + 1; return ARGV[at - 1] end
local function bucket() return KEYS[tonumber(take())] end
local entries, names = KEYS[1], KEYS[2]
local objects, required, expected = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local deletes, puts = tonumber(ARGV[5]), tonumber(ARGV[6])

if objects > 0 then redis.call('SETNX', KEYS[3], ARGV[1]) end
for _ = 1, objects do
  local hash, field, value = bucket(), take(), take()
  if redis.call('HSETNX', hash, field, value) == 1 and hash == entries then redis.call('ZADD', names, 0, field) end
end
local complete = true
for _ = 1, required do
  if redis.call('HEXISTS', bucket(), take()) == 0 then complete = false end
end
for _ = 1, expected do
  local found, wanted = redis.call('HGET', entries, take()), take()
  if (found and '=' .. found or '') ~= wanted then return 0 end
end
if not complete then return -1 end
for _ = 1, deletes do
  local hash, field = bucket(), take()
  redis.call('HDEL', hash, field)
  if hash == entries then redis.call('ZREM', names, field) end
end
if puts > 0 and objects == 0 then redis.call('SETNX', KEYS[3], ARGV[1]) end
for _ = 1, puts do
  local field = take()
  if redis.call('HSET', entries, field, take()) == 1 then redis.call('ZADD', names, 0, field) end
end
return 1
"""

# Lists whole buckets of KEYS until there are at least ARGV[1] addresses, and returns the number of buckets and the
# addresses. A bucket is listed in one step: SCAN may repeat or omit keys while a hash grows.
_LIST = """
local found = {}
for number, hash in ipairs(KEYS) do
  for _, field in ipairs(redis.call('HKEYS', hash)) do found[#found + 1] = field end
  if #found >= tonumber(ARGV[1]) then return {number, found} end
end
return {#KEYS, found}
"""

_APPLY_SHA, _LIST_SHA = (hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest() for script in (_APPLY, _LIST))

# What _APPLY returns; it also returns -1 if a required object is missing.
_DONE, _EXPECTATION_FAILED = 1, 0


class Redis(Backend):
    """The store named ``prefix`` on the server at ``url``.

    ``url`` is ``redis://``, ``rediss://`` (TLS) or ``unix://``, as in redis-py.

    Redis 6.2 or newer, or Valkey. ``options`` are passed to redis-py's connections: ``password``,
    ``credential_provider``, ``ssl_ca_certs`` and so on. For a Redis Cluster, name any of its servers; one server holds
    the whole store.

    ``timeout`` is how many seconds to wait for an answer. Until then, reads and writes that had no effect are sent
    again. A write whose reply was lost raises ``UnknownOutcomeError`` and is never sent again.

    Opening checks the server once and writes nothing. A server that is too old, or that evicts (its
    ``maxmemory-policy`` is not ``noeviction``), raises ``UnsafeStoreError``; a replica raises ``ReadOnlyError``. With
    ``create=False``, an empty store raises ``StoreNotFoundError``.

    The server's configuration decides what an acknowledged write survives: see ``persistence`` and docs/operations.md.
    Anyone who may write to the server can change the stored values, so this store is not ``private`` and pickles are
    refused by default.
    """

    private = False
    sends_together = True

    def __init__(
        self, url: str, *, prefix: str = "versioned-state", timeout: float = 10.0, create: bool = True, **options: Any
    ) -> None:
        check_key(prefix)
        if not prefix or "{" in prefix or "}" in prefix:
            raise InvalidArgumentError(f"a prefix must not be empty or contain braces: {prefix!r}")
        self.prefix = prefix
        self._entries, self._names, self._layout = (self._key(name) for name in ("entries", "names", "layout"))
        buckets = [self._key(f"o:{number:02x}") for number in range(64)]
        self._bucket_of = [buckets[first >> 2] for first in range(256)]  # by the first byte of an address
        self._link = Link(url, timeout=timeout, options=options, scripts=(_APPLY, _LIST))
        try:
            self._check(create=create)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Redis {self._link.place} {self.prefix!r}>"

    @property
    def persistence(self) -> Persistence:
        """The writes that the server restores after a crash. Makes a request.

        - ``"aof"``: every acknowledged write, or all but those of the last second or two, depending on its
          ``appendfsync``;
        - ``"snapshots"``: the last snapshot;
        - ``"none"``: nothing;
        - ``"unknown"``: the server refuses this user the answer.
        """
        try:
            (info,) = self._link.run([("INFO", "persistence")])
            if _info(info).get("aof_enabled") == "1":
                return "aof"
            ((_, save),) = self._link.run([("CONFIG", "GET", "save")])
        except (StorageError, ValueError):
            self._link.check_open()
            return "unknown"
        return "snapshots" if save else "none"

    def _get(self, key: str) -> bytes | None:
        hash, field = self._slot(key)
        value: bytes | None = self._link.run([("HGET", hash, field)])[0]
        return value

    def _get_many(self, keys: tuple[str, ...]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for start in range(0, len(keys), _GETS):
            groups: dict[bytes, dict[bytes, str]] = {}
            for key in keys[start : start + _GETS]:
                hash, field = self._slot(key)
                groups.setdefault(hash, {})[field] = key
            replies = self._link.run([("HMGET", hash, *names) for hash, names in groups.items()])
            for names, values in zip(groups.values(), replies, strict=True):
                found.update(
                    (key, value) for key, value in zip(names.values(), values, strict=True) if value is not None
                )
        return found

    def _sizes(self, keys: tuple[str, ...]) -> dict[str, int]:
        found: dict[str, int] = {}
        for start in range(0, len(keys), _GETS):
            page = keys[start : start + _GETS]
            lengths = self._link.run([("HSTRLEN", *self._slot(key)) for key in page])
            found.update((key, length) for key, length in zip(page, lengths, strict=True) if length)
            # The length is 0 for a value without bytes, and for none.
            empty = [key for key, length in zip(page, lengths, strict=True) if not length]
            if empty:
                exist = self._link.run([("HEXISTS", *self._slot(key)) for key in empty])
                found.update((key, 0) for key, exists in zip(empty, exist, strict=True) if exists)
        return found

    def _keys(self, prefix: str) -> Iterator[str]:
        # Page by page, each starting after the last name, so that writes in between neither repeat a name nor hide one.
        page = self._page(prefix, None, _PAGE, reverse=False)
        yield from page
        while len(page) == _PAGE:
            page = self._page(prefix, page[-1], _PAGE, reverse=False)
            yield from page
        if not may_list_objects(prefix):
            return
        digits = prefix[len(OBJECT_PREFIX) :]
        buckets = list(
            dict.fromkeys(hash for first, hash in enumerate(self._bucket_of) if f"{first:02x}".startswith(digits[:2]))
        )
        while buckets:
            ((done, fields),) = self._link.run([("EVALSHA", _LIST_SHA, len(buckets), *buckets, _BUCKET_PAGE)])
            for field in fields:
                key = OBJECT_PREFIX + field.hex()
                if key.startswith(prefix):
                    yield key
            buckets = buckets[done:]

    def _page(self, prefix: str, after: str | None, limit: int, *, reverse: bool) -> list[str]:
        first, beyond = page_range(prefix, after, reverse=reverse)
        start, end = b"[" + first, b"+" if beyond is None else b"(" + beyond
        if reverse:
            (page,) = self._link.run([("ZREVRANGEBYLEX", self._names, end, start, "LIMIT", 0, limit)])
        else:
            (page,) = self._link.run([("ZRANGEBYLEX", self._names, start, end, "LIMIT", 0, limit)])
        return [self._text(name) for name in page]

    def _text(self, name: bytes) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            raise CorruptStoreError(f"{self!r} is damaged: it holds a key that is not UTF-8, {name!r}") from error

    def _apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes],
    ) -> bool:
        # One round trip if the objects have at most 8 MiB.
        for values in (puts, objects):
            for key, value in values.items():
                if len(value) > MAX_VALUE_BYTES:
                    raise LimitExceededError("a value for Redis", limit=MAX_VALUE_BYTES, path=key)
        deadline = monotonic() + self._link.timeout
        while True:
            outcome = self._send(expected, puts, deletes, objects)
            if outcome in (_DONE, _EXPECTATION_FAILED):
                return outcome == _DONE
            # Another client deleted an object of this batch before the batch ended. Nothing was put.
            if monotonic() > deadline:
                raise StoreBusyError(
                    f"other clients delete objects from {self._link.place} while they are stored",
                    remains="nothing was published",
                )

    def apply_each(self, batches: Sequence[Batch]) -> list[bool | StateError]:
        """Do ``KVStore.apply_each``. Cost: one round trip, and those of each batch that is large."""
        commands: dict[int, Command] = {}
        left = _BATCH_BYTES
        for number, (expected, puts, deletes, objects) in enumerate(batches):
            size = sum(map(len, objects.values())) + sum(map(len, puts.values()))
            if size <= _SCRIPT_BYTES and len(objects) <= _SCRIPT_OBJECTS and size <= left and not self._closed:
                with suppress(StateError):  # which ``apply`` raises
                    check_batch(expected, puts, deletes, objects, self.max_expected)
                    commands[number] = self._script(objects, (), expected, puts, deletes)
                    left -= size
        replies: dict[int, int | StateError] = {}
        if len(commands) > 1:
            replies.update(zip(commands, self._link.run_each([*commands.values()]), strict=True))
        outcomes: list[bool | StateError] = []
        for number, batch in enumerate(batches):
            reply = replies.get(number)
            if reply is None:
                outcomes += super().apply_each([batch])
            else:
                outcomes.append(reply if isinstance(reply, StateError) else reply == _DONE)
        return outcomes

    def _send(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes],
    ) -> int:
        parts = list(_parts(objects))
        last = parts.pop() if parts else {}
        batch: list[Command] = []
        size = 0
        for part in parts:
            part_size = sum(map(len, part.values()))
            if batch and size + part_size > _BATCH_BYTES:
                self._link.run(batch)
                batch, size = [], 0
            batch.append(self._script(part, (), {}, {}, ()))
            size += part_size
        if batch and size + sum(map(len, last.values())) > _BATCH_BYTES:
            self._link.run(batch)
            batch = []
        # The last run publishes. It requires the objects of the earlier runs: one may have failed, or a sweep may have
        # come between.
        batch.append(self._script(last, [key for part in parts for key in part], expected, puts, deletes))
        outcome: int = self._link.run(batch, repeatable=not puts and not deletes, done=_DONE)[-1]
        return outcome

    def _script(
        self,
        objects: Mapping[str, bytes],
        required: Collection[str],
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
    ) -> Command:
        """Return the command that runs ``_APPLY``."""
        names = {self._entries: 1, self._names: 2, self._layout: 3}
        words: list[bytes | int] = [LAYOUT, len(objects), len(required), len(expected), len(deletes), len(puts)]

        def name(key: str) -> None:
            hash, field = self._slot(key)
            words.append(names.setdefault(hash, len(names) + 1))
            words.append(field)

        for key, value in objects.items():
            name(key)
            words.append(value)
        for key in required:
            name(key)
        for key, wanted in expected.items():
            words += (key.encode(), b"" if wanted is None else b"=" + wanted)
        for key in deletes:
            name(key)
        for key, value in puts.items():
            words += (key.encode(), value)
        if len(words) > _MAX_WORDS:
            raise LimitExceededError("the number of keys in one batch", limit=_MAX_WORDS // 2)
        return ("EVALSHA", _APPLY_SHA, len(names), *names, *words)

    def _close(self) -> None:
        self._link.close()

    def _key(self, name: str) -> bytes:
        return f"{{{self.prefix}}}:{name}".encode()

    def _slot(self, key: str) -> tuple[bytes, bytes]:
        """Return the hash that holds ``key``, and its field there.

        An object whose key is not an address is among the entries.
        """
        raw = raw_key(key)
        return (self._bucket_of[raw[0]], raw) if raw else (self._entries, key.encode())

    def _check(self, *, create: bool) -> None:
        """Refuse a server that may lose data, and keys that are not ours.

        One round trip, which also loads the scripts.
        """
        info, layout, *kinds, _, _ = self._link.run(
            [
                ("INFO",),
                ("GET", self._layout),
                *(("TYPE", key) for key in (self._entries, self._names, self._layout)),
                ("SCRIPT", "LOAD", _APPLY),
                ("SCRIPT", "LOAD", _LIST),
            ],
            patient=False,
        )
        check_server(_info(info), self._link.place)
        for kind, wanted in zip(kinds, (b"hash", b"zset", b"string"), strict=True):
            if kind not in (wanted, b"none"):
                raise NotAStoreError(f"{self!r}: the prefix is in use by another program", hint="choose another prefix")
        if layout is None:
            if not create:
                raise StoreNotFoundError(f"{self!r}: there is no store")
        elif not layout.isdigit():
            raise NotAStoreError(f"{self!r}: the prefix is in use by another program", hint="choose another prefix")
        elif int(layout) > LAYOUT:
            raise FormatError(int(layout), LAYOUT)


def check_server(info: Mapping[str, str], place: str) -> None:
    """Refuse a server that is too old, evicts or is a replica, by its ``INFO``."""
    version = info.get("redis_version", "")
    numbers = tuple(int(number) for number in version.split(".")[:2] if number.isdigit())
    if numbers < OLDEST:
        raise UnsafeStoreError(
            f"{place} runs Redis {version or 'of an unknown version'}; "
            f"a store needs {'.'.join(map(str, OLDEST))} or newer, or Valkey",
            hint="upgrade the server",
        )
    policy = info.get("maxmemory_policy")
    if policy != "noeviction":
        what = f"has maxmemory-policy {policy}" if policy else "does not report its maxmemory-policy"
        raise UnsafeStoreError(
            f"{place} {what}: it may delete stored keys when its memory is full",
            hint="CONFIG SET maxmemory-policy noeviction",
        )
    if info.get("role") == "slave":
        raise ReadOnlyError(f"{place} is a replica, which takes no writes", hint="connect to the primary")


def _info(text: bytes) -> dict[str, str]:
    lines = text.decode(errors="replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}


def _parts(objects: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Split the objects into parts, one for each run of the script.

    An object larger than a part is a part of its own.
    """
    part: dict[str, bytes] = {}
    size = 0
    for key, value in objects.items():
        if part and (size + len(value) > _SCRIPT_BYTES or len(part) == _SCRIPT_OBJECTS):
            yield part
            part, size = {}, 0
        part[key] = value
        size += len(value)
    if part:
        yield part
