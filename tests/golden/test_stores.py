"""Each backend's store of an earlier release: this one works on it, and a reader written from the page reads it all."""

from __future__ import annotations

import ast
import shutil
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from cryptography.exceptions import InvalidSignature

from tests.golden import reader as page
from tests.golden.cases import INDEXED, STORE, VALUES
from tests.golden.stores import FOLDER, KEY, SIGNER, SMALL, fill, load_bucket, load_postgres, load_redis
from tests.support.exact import exact
from tests.support.stores import SharedMemory
from versioned_state import Disk, KVStore, Memory, Repository, Tagged, Versioned, effects, events
from versioned_state.errors import FormatError, UnsafeStoreError
from versioned_state.repository.database import Database
from versioned_state.repository.format import write_format
from versioned_state.repository.maintenance.upgrade import upgrade
from versioned_state.repository.refs.ref import NOTHING
from versioned_state.storage import DiskCache, Encrypted, Postgres, Redis
from versioned_state.values.cells import Code

pytestmark = pytest.mark.every_case

BACKENDS = ("disk", "diskcache", "redis", "postgresql", "s3")


@pytest.fixture(params=BACKENDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KVStore]:
    """The store of each backend, at a place where it may be changed."""
    name = request.param
    opened: KVStore
    if name in ("disk", "diskcache"):
        (tmp_path / name).mkdir(mode=0o700)
        for each in (FOLDER / name).iterdir():
            shutil.copy(each, tmp_path / name)
            (tmp_path / name / each.name).chmod(0o600)
        opened = (Disk if name == "disk" else DiskCache)(tmp_path / name)
    elif name == "redis":
        server = request.getfixturevalue("redis_server")
        prefix = server.fresh_prefix()
        load_redis(server.url, prefix, page.load(FOLDER / "redis.json.xz"))
        opened = Redis(server.url, prefix=prefix)
    elif name == "postgresql":
        server = request.getfixturevalue("postgres_server")
        schema = server.fresh_schema()
        load_postgres(server.url, schema, page.load(FOLDER / "postgresql.json.xz"))
        opened = Postgres(server.url, schema=schema)
    else:
        server = request.getfixturevalue("s3_server")
        load_bucket(server, str(tmp_path.name), page.load(FOLDER / "s3.json.xz"))
        opened = server.open(str(tmp_path.name))
    with opened:
        yield opened


# This release, on what an earlier one left


def test_this_release_reads_all_of_it(store: KVStore) -> None:
    repository = Repository(store, classes=["tests.golden.cases"])
    assert repository.fsck().findings == ()
    first = repository.snapshot("v1")
    assert list(first) == sorted(SMALL)
    assert {name: exact(first[name]) for name in SMALL} == {name: exact(value) for name, value in SMALL.items()}
    assert dict(store.items()) == page.from_disk(FOLDER / "disk" / "store.sqlite3"), "each backend has the same keys"


def test_this_release_goes_on_with_it(store: KVStore) -> None:
    repository = Repository(store, pickle="refuse")
    state = Versioned(repository)
    state["tall list"].append("new")
    state["tall map"]["k0007"]["n"] = "new"
    commit = state.commit("goes on")
    fresh = Versioned(Memory())
    fresh["tall list"] = [*SMALL["tall list"], "new"]
    fresh["tall map"] = SMALL["tall map"] | {"k0007": {"n": "new"}}
    fresh.commit()
    assert repository.commit("main").id == commit.id
    assert {key: state.copy()[key] for key in fresh} == dict(fresh)
    if store.max_expected is None:
        repository.gc()
    assert repository.fsck().ok
    store.set("ref/remote/main", b"of a later release")
    with pytest.raises(UnsafeStoreError, match="ref/remote/main" if store.max_expected is None else "one condition"):
        repository.gc()


def test_an_upgrade_to_a_made_up_version_is_kept_by_each_backend(store: KVStore) -> None:
    state = Versioned(store, pickle="refuse")
    head = state.head
    upgrade(Database(store), steps={2: lambda _: NOTHING}, force=True)
    with pytest.raises(FormatError, match="format version 2"):
        Repository(store)
    if store.max_expected is None:
        state["new"] = 1
        with pytest.raises(FormatError):
            state.commit()
        state.discard()
    assert page.Reader({**dict(store.items()), "format": write_format(1)}).ref("branch", "main").head == bytes.fromhex(
        head.id
    )


RANDOM = ("gc-marks/", "keepers", "lock/", "note/", "ref/branch/main", "ref/branch/objects", "record/side")
"""Keys whose values have the id of a call or an owner, a salt, a pickle, or a frame of zstd's release."""


def test_this_release_writes_the_same_records() -> None:
    written = Memory()
    fill(written)
    old, new = keys_of("disk"), dict(written.items())
    differ = {key for key in old.keys() | new.keys() if not key.startswith("o/") and old.get(key) != new.get(key)}
    assert {key for key in differ if not key.startswith(RANDOM)} == set()
    assert len([key for key in old if not key.startswith(("o/", *RANDOM))]) > 40
    reader = page.Reader(new)
    assert sorted(map(repr, reader.notes().values())) == sorted(map(repr, page.Reader(old).notes().values()))
    assert reader.records() == page.Reader(old).records()
    assert reader.lock("main")[2:4] == page.Reader(old).lock("main")[2:4]


# The reader of the page


def keys_of(backend: str) -> dict[str, bytes]:
    """The keys of a store, as the page says where each backend keeps them."""
    if backend == "disk":
        return page.from_disk(FOLDER / "disk" / "store.sqlite3")
    if backend == "diskcache":
        return page.from_diskcache(FOLDER / "diskcache" / "cache.db")
    read = {"redis": page.from_redis, "postgresql": page.from_tables, "s3": page.from_bucket}[backend]
    return read(page.load(FOLDER / f"{backend}.json.xz"))


@pytest.fixture
def reader() -> page.Reader:
    return page.Reader(keys_of("disk"))


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_it_finds_the_same_keys_in_each_backend(backend: str) -> None:
    assert keys_of(backend) == keys_of("disk")


def plain(value: Any) -> Any:
    """A value of ours in the form in which the reader has it."""
    if isinstance(value, Tagged):
        return page.Typed(value.name, plain(value.fields), plain(dict(value.notes)) if value.notes else None)
    if isinstance(value, BaseException):
        parts = {"args": value.args, "__cause__": value.__cause__, "__notes__": getattr(value, "__notes__", None)}
        if value.__suppress_context__ and value.__cause__ is None:
            parts["__suppress_context__"] = True
        data = {name: plain(parts[name]) for name in sorted(parts) if parts[name] is not None}
        return page.Typed(f"builtins:{type(value).__name__}", data, None)
    if type(value) in _COLLECTIONS:
        notes: Any = {"maxlen": value.maxlen} if isinstance(value, deque) and value.maxlen is not None else None
        notes = {"factory": "list"} if isinstance(value, defaultdict) else notes
        return page.Typed(type(value).__name__, plain(list(value) if isinstance(value, deque) else dict(value)), notes)
    if isinstance(value, np.ndarray):
        return page.Array(np.lib.format.dtype_to_descr(value.dtype), value.shape, value.tobytes())
    if isinstance(value, np.generic):
        return page.Scalar(np.lib.format.dtype_to_descr(value.dtype), value.tobytes())
    if type(value) is dict:
        return {page.hashable(plain(key)): plain(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    if type(value) in (set, frozenset):
        return type(value)(page.hashable(plain(each)) for each in value)
    return value


_COLLECTIONS = (OrderedDict, Counter, defaultdict, deque)


def same(found: Any, wanted: Any) -> bool:
    """Whether two values in the reader's form are equal in type and content."""
    if type(found) is not type(wanted):
        return False
    if isinstance(found, dict):
        return list(found) == list(wanted) and all(same(found[key], wanted[key]) for key in found)
    if isinstance(found, list | tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(exact(found) == exact(wanted))


def copied(reader: page.Reader) -> Repository:
    """The store that the reader reads, where no class is trusted."""
    store = SharedMemory()
    for key, value in reader.keys.items():
        store.set(key, value)
    return Repository(store, pickle="refuse", classes=["none.at.all"])


def test_it_reads_every_value_of_every_head(reader: page.Reader) -> None:
    repository = copied(reader)
    refs = {kind: reader.refs(kind) for kind in ("branch", "tag")}
    assert {name for name, ref in refs["branch"].items() if ref.head} == set(repository.branches)
    assert {name for name, ref in refs["tag"].items() if ref.head} == set(repository.tags)
    for name, ref in [*refs["branch"].items(), *refs["tag"].items()]:
        if ref.head is None or name == "objects":
            continue
        state = reader.state(reader.commit(ref.head))
        own = {path[0]: value for path, value in state.items() if len(path) == 1}
        wanted = {key: plain(value) for key, value in repository.snapshot(name).items()}
        assert own.keys() == wanted.keys()
        assert [key for key in own if not same(own[key], wanted[key])] == []
    main = reader.state(reader.commit(refs["branch"]["main"].head or b""))
    assert main["@space", "@inner", "k"] == {"deep": [1]}


def test_it_reads_objects_and_events(reader: page.Reader) -> None:
    repository = copied(reader)
    (found,) = reader.state(reader.commit(reader.ref("branch", "objects").head or b""))[("object",)]
    assert (found.type, found.mac, found.buffers) == ("builtins.slice", None, ())
    assert found.data.startswith(b"\x80\x05")
    kept = reader.series(reader.state(reader.commit(reader.ref("branch", "main").head or b""))["engine", "events"])
    assert [entry[0].name for entry in kept.values()] == [
        type(event).__name__ for event in events(repository.snapshot("main"))
    ]


def test_it_reads_history(reader: page.Reader) -> None:
    repository = copied(reader)
    for name, ref in reader.refs("branch").items():
        if ref.head is None:
            assert reader.reflog(ref)[0].action == {"deleted": "delete", "topic": "rename to renamed/topic"}[name]
            continue
        found = reader.history(ref.head)
        wanted = list(repository.log(name))
        assert {commit.id.hex() for commit in found} <= {commit.id for commit in wanted} | {
            repository.commit(name).id,
            page.ROOT.hex(),
        }
        by_id = {commit.id: commit for commit in wanted}
        for commit in found:
            ours = by_id.get(commit.id.hex())
            if ours is not None:
                assert (commit.time, commit.author, commit.message, commit.tag) == (
                    ours.time,
                    ours.author,
                    ours.message,
                    ours.tag,
                )
                assert same(commit.meta or {}, plain(dict(ours.meta)))
    assert len(reader.history(reader.ref("branch", "pruned").head or b"")) < 10
    assert reader.cuts()
    annotation = repository.tags.annotation("v1")
    assert annotation is not None
    first = reader.reflog(reader.ref("tag", "v1"))[0]
    assert (first.action, first.author) == (f"tag: {annotation.message}", "annotator")
    assert [entry.action for entry in reader.reflog(reader.ref("branch", "main"))].count("reset") == 1
    root = reader.commit(page.ROOT)
    assert (root.parents, root.time, root.size, root.message) == ((), 0, 0, "")


def test_it_checks_signatures(reader: page.Reader) -> None:
    signed = reader.history(reader.ref("branch", "signed").head or b"")[:2]
    assert [commit.message for commit in signed] == ["signed again", "signed"]
    assert [commit.tag for commit in signed] == [None, "v3"]
    for commit in signed:
        reader.signed_by(commit, SIGNER.public_key)
        with pytest.raises(InvalidSignature):
            reader.signed_by(commit._replace(raw=commit.raw[:40] + b"\0" + commit.raw[41:]), SIGNER.public_key)


def test_it_reads_what_lies_beside_history(reader: page.Reader) -> None:
    repository = copied(reader)
    assert {address.hex(): note for address, note in reader.notes().items()} == {
        id: dict(note) for id, note in repository.notes.items()
    }
    assert reader.records() == {name: dict(record) for name, record in repository.records.items()}
    assert {key: result for key, _, owner, result, _ in reader.effects() if owner is None} == {"pay:1": {"receipt": 1}}
    assert [each.key for each in effects(repository) if each.status == "in doubt"] == [
        key for key, _, owner, *_ in reader.effects() if owner == b""
    ]
    assert reader.policies() == repository.merge_policies
    token, _, held, ttl, _, _, wanted = reader.lock("main")
    assert (token, held, ttl, wanted) == (1, False, 5_000_000, False)
    assert reader.ref("branch", "side").ttl == 3_600_000_000
    record = reader.gc()
    assert (record["owner"], record["hold"], record["version"]) == (None, False, 1)
    assert record["marking"] > 0
    assert any(names for names in reader.shared().values())
    keepers = reader.keepers()
    assert len(keepers) > 100
    assert {"o/" + address.hex() for address in keepers} <= set(reader.keys)


def test_every_kind_of_key_of_the_page_is_there(reader: page.Reader) -> None:
    there = {key.partition("/")[0] for key in reader.keys}
    kinds = {
        "o",
        "format",
        "ref",
        "cuts",
        "gc",
        "effect",
        "note",
        "record",
        "gc-marks",
        "moved",
        "keepers",
        "lock",
        "shared",
        "recent",
    }
    assert there == kinds | {"due", "gone", "born", "merge"}
    objects = {reader.object(bytes.fromhex(key[2:]), *range(256))[0] for key in reader.keys if key.startswith("o/")}
    assert objects == {1, 2, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15}
    assert {value[0] for key, value in reader.keys.items() if key.startswith("o/")} == {0, 1, 2, 3}, (
        "all forms of an envelope"
    )


def test_it_reads_the_index_of_meta(reader: page.Reader) -> None:
    assert reader.gc()["indexed"] == []
    indexed = page.Reader(page.from_disk(INDEXED / "store.sqlite3"))
    assert indexed.gc()["searchable"] == ["run"]
    assert len(indexed.meta_index()) == 5
    wrong = min(key for key in indexed.keys if key.startswith("meta/"))
    with pytest.raises(page.Damage, match="the index of meta"):
        page.Reader({key: value for key, value in indexed.keys.items() if key != wrong}).meta_index()


def test_it_reads_every_size_of_value() -> None:
    """The larger store, which has both sides of each limit."""
    reader = page.Reader(page.from_disk(STORE / "store.sqlite3"))
    state = reader.state(reader.commit(reader.ref("tag", "v1").head or b""))
    repository = copied(reader)
    wanted = {key: plain(value) for key, value in repository.snapshot("v1").items()}
    assert [name for name in VALUES if not same(state[name,], wanted[name])] == []


class _Recording(page.Reader):
    """A reader that notes the codes that it meets."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        super().__init__(keys)
        self.codes: set[int] = set()

    def _of_code(self, code: int, payload: bytes) -> Any:
        self.codes.add(code)
        return super()._of_code(code, payload)


def test_every_code_of_a_value_is_pinned_by_a_golden_hash() -> None:
    reader = _Recording(page.from_disk(STORE / "store.sqlite3"))
    for kind, name in (("tag", "v1"), ("branch", "objects")):
        reader.state(reader.commit(reader.ref(kind, name).head or b""))
    assert reader.codes == set(Code)


def test_it_notices_every_flipped_byte_of_an_object() -> None:
    keys = page.from_disk(FOLDER / "disk" / "store.sqlite3")
    for key in sorted(keys):
        if key.startswith("o/") and len(keys[key]) < 200:
            for at in range(0, len(keys[key]), 7):
                damaged = bytearray(keys[key])
                damaged[at] ^= 0x40
                reader = page.Reader({**keys, key: bytes(damaged)})
                try:
                    raw = reader.object(bytes.fromhex(key[2:]), *range(256))
                except Exception:  # noqa: BLE001 - whatever the codec says
                    continue
                assert blake3(raw).digest(length=24).hex() == key[2:], "another frame of the same bytes"


def test_an_encrypted_store_is_read_by_this_release_and_by_the_page(tmp_path: Path) -> None:
    wanted = {"messages": [*({"n": n} for n in range(200)), "more"], "nothing": None, "text": "line\n" * 3000}
    (tmp_path / "store").mkdir(mode=0o700)
    shutil.copy(FOLDER / "encrypted" / "store.sqlite3", tmp_path / "store")
    (tmp_path / "store" / "store.sqlite3").chmod(0o600)
    with Versioned(Encrypted(Disk(tmp_path / "store"), KEY)) as state:
        assert dict(state) == wanted
        assert state.repository.fsck().findings == ()
        state["messages"].append("goes on")
        state.commit()
    reader = page.Reader(page.from_encrypted(page.from_disk(FOLDER / "encrypted" / "store.sqlite3"), KEY))
    head = reader.commit(reader.ref("tag", "a-tag/of-two-parts").head or b"")
    assert reader.state(head) == {(key,): value for key, value in wanted.items()}
    assert list(reader.notes().values()) == [{"score": 1}]


def test_the_reader_uses_nothing_of_this_library() -> None:
    tree = ast.parse(Path(page.__file__).read_text("utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} & {"versioned_state", "tests", "versioned_state_fast"} == set()
