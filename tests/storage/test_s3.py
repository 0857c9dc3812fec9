"""`S3` beyond its contract: its requests, its errors when the server fails, and files of others in the bucket."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.data import Message
from tests.support.processes import run
from tests.support.servers.s3 import SECRET, Fault, S3Server
from versioned_state import Versioned
from versioned_state.errors import (
    CorruptObjectError,
    CorruptStoreError,
    InvalidArgumentError,
    MissingObjectError,
    ReadOnlyError,
    StateError,
    StorageError,
    StorageFullError,
    StoreBusyError,
    StoreClosedError,
    StoreNotFoundError,
    UnreachableStoreError,
    UnsafeStoreError,
)
from versioned_state.storage import S3, Cache, open_store
from versioned_state.storage.s3.format import name_of

FOREVER = 10**9


@pytest.fixture
def store(s3_server: S3Server, place: str) -> Iterator[S3]:
    with s3_server.open(place, timeout=6, client_options={"timeout": "20s", "connect_timeout": "20s"}) as store:
        yield store


def open_hasty(server: S3Server, place: str, **options: Any) -> S3:
    return server.open(place, timeout=0.5, client_options={"timeout": "20s", "connect_timeout": "20s"}, **options)


# What it asks of the server


def asked(server: S3Server, place: str) -> Counter[str]:
    """Return how many requests of each kind there were since the last call: `PUT o`, `GET e`, `GET` (a listing)."""
    return Counter(f"{method} {key.removeprefix(place)[1:2]}".strip() for method, key in server.requests())


def test_requests_of_a_commit_and_of_reads(s3_server: S3Server, place: str, store: S3):
    s3_server.requests()
    objects = {f"o/{number:048x}": b"v" for number in range(10)}
    assert store.apply({"ref": None}, {"ref": b"0"}, objects=objects)
    # The first write tries out the conditions: once where the first one must create what it tries them on, twice there.
    assert asked(s3_server, place) == {"PUT t": 3, "PUT o": 10, "PUT e": 1}
    assert store.apply({"ref": b"0"}, {"ref": b"1"}, objects={f"o/{number:048x}": b"v" for number in range(20, 30)})
    assert asked(s3_server, place) == {"PUT o": 10, "PUT e": 1}

    assert len(store.get_many([*objects, "ref"])) == 11
    assert asked(s3_server, place) == {"GET o": 10, "GET e": 1}
    assert store.apply({"ref": b"1"}, {})
    assert asked(s3_server, place) == {"GET e": 1}

    # One who did not see the ref must read it first.
    with s3_server.open(place) as other:
        assert asked(s3_server, place) == {"GET t": 1}
        assert other.apply({"ref": b"1"}, {"ref": b"2"})
        assert asked(s3_server, place) == {"PUT t": 2, "GET e": 1, "PUT e": 1}

    # And one whose sight is stale finds out by the refusal, or by a look.
    assert not store.apply({"ref": b"1"}, {"ref": b"3"})
    assert asked(s3_server, place) == {"PUT e": 1, "GET e": 2}
    assert not store.apply({"ref": b"1"}, {"ref": b"3"})
    assert asked(s3_server, place) == {"GET e": 1}


def test_requests_of_a_branch_that_is_born(s3_server: S3Server, place: str, store: S3):
    store.set("other", b"")
    s3_server.requests()
    assert store.apply({"ref/a": None}, {"ref/a": b"r", "born/a": b"b"}, objects={"o/aa": b"v"})
    assert asked(s3_server, place) == {"PUT o": 1, "PUT e": 4, "PUT t": 1, "DELETE t": 1}
    # The next commit is one request again.
    assert store.apply({"ref/a": b"r"}, {"ref/a": b"s"})
    assert asked(s3_server, place) == {"PUT e": 1}


def test_a_listing_costs_its_pages(s3_server: S3Server, place: str, store: S3):
    store.apply({}, {}, objects={f"o/{number:06x}": b"v" for number in range(2500)})
    store.set("ref/branch/a", b"1")
    s3_server.requests()
    assert len(list(store.keys("o/"))) == 2500
    assert asked(s3_server, place) == {"GET": 3}
    assert list(store.keys("ref/")) == ["ref/branch/a"]
    assert asked(s3_server, place) == {"GET": 1}
    assert len(list(store.keys("o/0000a"))) == 16
    assert asked(s3_server, place) == {"GET": 1}


def test_long_prefixes_list_long_keys(store: S3):
    everything = {kind + "k" * length for kind in ("", "o/") for length in (490, 500, 501, 550, 600, 601, 650, 2000)}
    store.set_many(dict.fromkeys(everything, b"v"))
    for prefix in (
        kind + "k" * length for kind in ("", "o/") for length in (1, 499, 500, 501, 549, 600, 601, 640, 650, 1999, 2001)
    ):
        assert sorted(store.keys(prefix)) == sorted(key for key in everything if key.startswith(prefix))


# What it says where the server fails


def test_bucket_that_is_missing(s3_server: S3Server):
    with pytest.raises(StoreNotFoundError, match="bucket does not exist"):
        S3("elsewhere", **s3_server.options())


def test_server_that_is_missing(s3_server: S3Server):
    for endpoint in ("http://127.0.0.1:1", "http://nowhere.invalid", "https://127.0.0.1:1"):
        with pytest.raises(UnreachableStoreError, match="cannot be reached"):
            open_hasty(s3_server, "a", endpoint=endpoint)


def test_endpoint_that_speaks_another_protocol(s3_server: S3Server):
    with pytest.raises(UnreachableStoreError, match="cannot be reached"):
        open_hasty(s3_server, "a", endpoint=s3_server.endpoint.replace("http:", "https:"))


@pytest.mark.parametrize(
    ("status", "error"), [(403, StorageError), (503, StoreBusyError), (500, UnreachableStoreError), (400, StorageError)]
)
def test_open_that_the_server_refuses(s3_server: S3Server, place: str, status: int, error: type[StateError]):
    with (
        s3_server.faults(Fault(path=place, times=FOREVER, apply="never", answer=status)),
        pytest.raises(error) as failure,
    ):
        open_hasty(s3_server, place)
    assert type(failure.value) is error
    assert str(status) in str(failure.value)
    assert failure.value.__cause__ is not None


@pytest.mark.parametrize(
    ("status", "error"),
    [(403, ReadOnlyError), (503, StoreBusyError), (409, StoreBusyError), (507, StorageFullError), (400, StorageError)],
)
@pytest.mark.parametrize("path", ["e/", "o/", "t/[0-9a-f]"])
def test_write_that_the_server_refuses_changes_nothing(
    s3_server: S3Server, place: str, store: S3, path: str, status: int, error: type[StateError]
):
    store.set("ref", b"1")
    with open_hasty(s3_server, place) as other:
        other.set("ref", b"1")
        with s3_server.faults(Fault("PUT", f"{place}/{path}", times=FOREVER, apply="never", answer=status)):
            with pytest.raises(error) as failure:
                other.apply({"ref": b"1"}, {"ref": b"2", "new": b"n"}, objects={"o/aa": b"v"})
            assert type(failure.value) is error
            assert other.get("ref") == b"1"
    assert store.apply({"ref": b"1"}, {"ref": b"3"}, objects={"o/aa": b"v"})
    assert store.get_many(["ref", "new", "o/aa"]) == {"ref": b"3", "o/aa": b"v"}


def test_server_that_hangs_is_given_up(s3_server: S3Server, place: str, store: S3):
    store.set("ref", b"1")
    hangs = Fault("GET", "e/ref!", times=FOREVER, answer="stall")
    with (
        s3_server.open(place, timeout=0.6) as hasty,
        s3_server.faults(hangs),
        pytest.raises(UnreachableStoreError, match="did not answer"),
    ):
        hasty.get("ref")


def test_failure_of_one_of_many_ends_the_others(s3_server: S3Server, place: str):
    with open_hasty(s3_server, place, concurrency=2) as store:
        store.set("ref", b"1")
        s3_server.requests()
        with (
            s3_server.faults(Fault("PUT", "/o/", times=FOREVER, apply="never", answer=403)),
            pytest.raises(ReadOnlyError),
        ):
            store.apply({}, {}, objects={f"o/{number:04x}": b"v" for number in range(3000)})
        assert len(s3_server.requests()) < 2000


@pytest.mark.parametrize("ignored", [0, 2], ids=["all conditions", "If-Match"])
def test_server_that_ignores_conditions_is_refused_before_anything_is_written(
    s3_server: S3Server, place: str, ignored: int
):
    with (
        s3_server.open(place) as store,
        s3_server.faults(Fault("PUT", skip=ignored, times=FOREVER, apply="blindly", answer="real")),
    ):
        for write in (
            lambda: store.set("k", b"1"),
            lambda: store.apply({"ref": None}, {"ref": b"1"}, objects={"o/aa": b"v"}),
        ):
            with pytest.raises(UnsafeStoreError, match="ignores the conditions"):
                write()
            if ignored:
                break  # the second time, other requests would be the first two
        assert s3_server.names(place) == [f"{place}/t/conditions!"]
        assert list(store.keys()) == []


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + str(error) + str(getattr(error, "hint", ""))


def test_secrets_are_never_shown(s3_server: S3Server, place: str, store: S3):
    assert repr(store) == f"<S3 's3://states/{place}'>"
    failing: list[Callable[[], object]] = [
        lambda: open_hasty(s3_server, place, endpoint="http://127.0.0.1:1"),
        lambda: open_hasty(s3_server, place, endpoint=f"http://me:{SECRET}@127.0.0.1:1"),
        lambda: open_hasty(s3_server, place, endpoint=SECRET),
        lambda: open_hasty(s3_server, place, nonsense=SECRET),
        lambda: open_hasty(s3_server, place, request_payer=SECRET),
        lambda: S3("elsewhere", **s3_server.options()),
        lambda: S3("states", **{**s3_server.options(), "session_token": f"{SECRET}\n"}),
    ]
    for call in failing:
        with pytest.raises(StateError) as failure:
            call()
        assert SECRET not in shown(failure.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: S3(""),
        lambda: S3("a/b"),
        lambda: S3("bucket", "/a"),
        lambda: S3("bucket", "a//b"),
        lambda: S3("bucket", "a/../b"),
        lambda: S3("bucket", "a b"),
        lambda: S3("bucket", "é"),
        lambda: S3("bucket", "p" * 301),
        lambda: S3("bucket", timeout=0),
        lambda: S3("bucket", concurrency=0),
        lambda: S3("bucket", endpoint="localhost:9000"),
        lambda: S3("bucket", nonsense="1"),
        lambda: S3("bucket", retry_config={}),
        lambda: S3("bucket", client_options={"nonsense": 1}),
    ],
)
def test_bad_argument_is_refused(call: Callable[[], S3]):
    with pytest.raises(InvalidArgumentError):
        call()


def test_url(s3_server: S3Server, place: str, store: S3, monkeypatch: pytest.MonkeyPatch):
    store.set("k", b"v")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with open_store(f"s3://states/{place}?endpoint={s3_server.endpoint}&region=eu-central-1&timeout=9") as other:
        assert other.get("k") == b"v"
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with open_store(f"s3://states/{place}") as other:
        assert other.get("k") == b"v"


# Processes


def test_forked_child_gets_an_error_and_does_not_hang(s3_server: S3Server, place: str):
    program = f"""
        import os
        from versioned_state.errors import StorageError
        from versioned_state.storage import S3

        def open_store():
            return S3("states", {place!r}, **{s3_server.options()!r})

        store = open_store()
        store.set("k", b"1")
        if os.fork() == 0:
            for call in (lambda: store.get("k"), lambda: store.set("k", b"2"), open_store):
                try:
                    call()
                except StorageError as error:
                    assert "fork" in str(error) and "spawn" in error.hint, error
                else:
                    os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        assert store.get("k") == b"1"
    """
    assert run(program, options=("-W", "ignore")).stderr == ""


def test_store_that_is_closed_meanwhile(store: S3):
    store.set_many({f"k/{number}": b"v" for number in range(5)})
    keys = store.keys()
    next(keys)
    store.close()
    with pytest.raises(StoreClosedError):
        store.get_many(["k/1", "k/2"])


# What lies in the bucket


def test_files_of_others_are_left_alone(s3_server: S3Server, place: str, store: S3):
    store.set_many({"k": b"1", "o/aa": b"2"})
    for name in ("e/readme.txt", "e/sub/folder!", "o/x/e/k!", "notes", "e/.zz!"):
        s3_server.raw(f"{place}/{name}", b"hello")
    assert sorted(store.keys()) == ["k", "o/aa"]
    # A store within the folder of another is neither seen by it, nor sees it.
    with s3_server.open(f"{place}/e") as inner:
        inner.set("k", b"inner")
        assert dict(inner.items()) == {"k": b"inner"}
    assert dict(store.items()) == {"k": b"1", "o/aa": b"2"}


def test_damaged_cell_is_an_error(s3_server: S3Server, place: str, store: S3):
    store.set_many({"k": b"value", "other": b"1", "o/aa": b"v"})
    name = f"{place}/{name_of('k')}"
    good = s3_server.raw(name)
    for bad in (b"", b"hello", good[:-8], good + b"1234", b"\0" + good[1:], good[:20] + b"\xff" + good[21:]):
        s3_server.raw(name, bad)
        for call in (lambda: store.get("k"), lambda: store.get_many(["k", "other"]), lambda: store.delete("k")):
            with pytest.raises(CorruptStoreError, match=r"e/k! is damaged"):
                call()
    s3_server.raw(name, s3_server.raw(f"{place}/{name_of('other')}"))
    with pytest.raises(CorruptStoreError, match="the cell of 'k' holds the key 'other'"):
        store.get("k")
    s3_server.raw(name, good)
    assert store.get("k") == b"value"


def test_deleted_object_leaves_no_value_and_can_come_back(s3_server: S3Server, place: str, store: S3):
    store.set("o/aa", b"value of the object")
    name = f"{place}/{name_of('o/aa')}"
    for _ in range(3):
        store.delete("o/aa")
        assert b"value of the object" not in s3_server.raw(name)
        assert len(s3_server.raw(name)) < 120
        assert list(store.keys()) == []
        assert store.get("o/aa") is None
        assert store.apply({}, {"k": b"1"}, objects={"o/aa": b"value of the object"})
        assert store.get("o/aa") == b"value of the object"
        store.delete("k")


# A state over it


def test_conversation_of_two_handles(s3_server: S3Server, place: str, real_conversations: list[list[Message]]):
    messages = max(real_conversations, key=len)[:12]
    with Versioned(Cache(s3_server.open(place))) as state:
        state["messages"] = []
        state.commit("start")
        for number, message in enumerate(messages):
            state["messages"].append(message)
            assert state.commit(f"round {number}").parents
        with Versioned(s3_server.open(place)) as other:
            other["plan"] = ["refund"]
            other.commit("the other's")
            state["step"] = 7
            state.commit("merged in")
            other.refresh()
            assert other["step"] == 7
        assert state["plan"] == ["refund"]
    with Versioned(s3_server.open(place)) as again:
        assert again["messages"] == messages
        assert (again["plan"], again["step"]) == (["refund"], 7)
        assert len(list(again.repository.log())) == len(messages) + 3
        assert again.checkout("HEAD~2")["messages"] == messages
        again.repository.branches.create("what-if", "HEAD~3")
        assert sorted(again.repository.branches) == ["main", "what-if"]


def test_commit_whose_answers_are_lost_is_made_once(s3_server: S3Server, place: str):
    with Versioned(s3_server.open(place)) as state:
        state["messages"] = ["one"]
        state.commit("one")
        for fault in (
            Fault("PUT", "/e/"),
            Fault("PUT", "/o/"),
            Fault("PUT", "/e/", apply="later"),
            Fault("PUT", "/e/", apply="never"),
        ):
            with s3_server.faults(fault):
                state["messages"].append("more")
                state.commit("more")
        assert [commit.message for commit in state.repository.log()] == ["more"] * 4 + ["one"]
        assert state["messages"] == ["one"] + ["more"] * 4


def test_reads_are_verified(s3_server: S3Server, place: str):
    with Versioned(s3_server.open(place)) as state:
        state["notes"] = "a text that is long enough to be an object of its own; " * 100
        head = state.commit("one")
    objects = [name for name in s3_server.names(f"{place}/o/") if head.id not in name]
    damaged = 0
    for name in objects:
        good = s3_server.raw(name)
        s3_server.raw(name, good[:-8] + bytes([good[-8] ^ 1]) + good[-7:])
        try:
            with Versioned(s3_server.open(place)) as state:
                assert state["notes"].startswith("a text")
        except CorruptObjectError:
            damaged += 1
        s3_server.raw(name, good)
    assert damaged >= 1
    with s3_server.open(place) as store:
        store.delete_many([f"o/{name.rpartition('/')[2][:-1]}" for name in objects])
    with pytest.raises(MissingObjectError), Versioned(s3_server.open(place)) as state:
        state["notes"]
