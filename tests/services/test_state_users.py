"""A user's data in a store of services: retention, quotas, time to live, erasure with proof, export as a file."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.services.clock import Clock
from tests.support.watched_stores import Watched
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError, QuotaExceededError, StorageError
from versioned_state.services.agent_state import InMemoryStateService, StateService
from versioned_state.services.session_history import SessionHistoryService
from versioned_state.services.users import ExportedRecord, read_export
from versioned_state.storage import KVStore
from versioned_state.storage.wrapper import Wrapper

# Quotas


async def test_a_state_beyond_the_quota_loses_nothing() -> None:
    async with InMemoryStateService(max_state_bytes=1000) as service:
        await service.save_state("u", {"n": "x" * 900})
        with pytest.raises(QuotaExceededError, match="the size of the state is beyond the limit of 1000") as caught:
            await service.save_state("u", {"n": "x" * 1100})
        assert caught.value.limit == 1000
        assert await service.export_state("u") == {"n": "x" * 900}
        assert await service.save_state("u", {"n": 1}) == 2


async def test_sessions_and_rounds_beyond_the_quota_lose_nothing() -> None:
    async with InMemoryStateService(max_sessions=2, max_rounds=3) as service:
        for session in ("a", "b"):
            for number in (1, 2, 3):
                await service.save_state("u", {"n": number}, session)
        with pytest.raises(QuotaExceededError, match="the number of sessions of a user"):
            await service.save_state("u", {}, "c")
        with pytest.raises(QuotaExceededError, match="the number of rounds of a session"):
            await service.save_state("u", {}, "a")
        assert await service.list_sessions("u") == ["a", "b"]
        assert await service.list_rounds("u", "a") == [1, 2, 3]
        assert await service.save_state("u", {"n": 4}, "a", round_id=2) == 2  # a round that is there
        await service.save_state("other", {}, "c")
        await service.delete_state("u", "a", 1)
        assert await service.save_state("u", {"n": 5}, "a") == 4
        await service.delete_state("u", "b")
        assert await service.save_state("u", {}, "c") == 1


async def test_a_quota_is_of_the_rounds_that_the_store_has_now() -> None:
    store = Memory()
    async with StateService.over(store, max_rounds=2) as one, StateService.over(store) as other:
        await one.save_state("u", {"n": 1})
        await one.save_state("u", {"n": 2})
        await other.delete_state("u", None, 1)
        assert await one.save_state("u", {"n": 3}) == 3


async def test_sessions_that_are_over_leave_room_for_others() -> None:
    clock = Clock()
    async with StateService.over(Repository(Memory(), clock=clock), max_sessions=1, ttl_seconds=60) as service:
        await service.save_state("u", {"n": 1}, "a")
        with pytest.raises(QuotaExceededError):
            await service.save_state("u", {"n": 1}, "b")
        clock.wait(61)
        assert await service.save_state("u", {"n": 1}, "b") == 1
        with pytest.raises(QuotaExceededError):
            await service.save_state("u", {"n": 2}, "a")
        assert await service.list_sessions("u") == ["b"]


async def test_a_session_without_rounds_leaves_room_for_others() -> None:
    async with InMemoryStateService(max_sessions=1) as service:
        for number in (1, 2):
            await service.save_state("u", {"n": number}, "a")
        for number in (1, 2):
            await service.delete_state("u", "a", number)
        assert await service.list_sessions("u") == []
        assert await service.save_state("u", {"n": 1}, "b") == 1
        with pytest.raises(QuotaExceededError, match="the number of sessions of a user"):
            await service.save_state("u", {"n": 3}, "a")
        await service.delete_state("u", "b", 1)
        assert await service.save_state("u", {"n": 3}, "a") == 1
        assert await service.list_sessions("u") == ["a"]


async def test_sessions_that_begin_at_once_do_not_pass_the_quota() -> None:
    slow = Watched(Memory())
    slow.before = lambda _: time.sleep(0.01)  # long enough for calls to meet
    async with StateService.over(slow, max_sessions=2) as service:
        saves = [service.save_state(user, {"n": 1}, f"s{n}") for n in range(6) for user in ("u", "v")]
        outcomes = await asyncio.gather(*saves, return_exceptions=True)
        assert [type(each) for each in outcomes].count(QuotaExceededError) == 8
        assert [len(await service.list_sessions(user)) for user in ("u", "v")] == [2, 2]
    async with SessionHistoryService.over(slow, max_sessions=2) as history:
        begun = [history.create_session("u", f"s{n}") for n in range(6)]
        created = await asyncio.gather(*begun, return_exceptions=True)
        assert [type(each) for each in created].count(QuotaExceededError) == 4
        assert len(await history.list_sessions("u")) == 2


@pytest.mark.parametrize(
    "options", [{"max_state_bytes": -1}, {"max_sessions": "1"}, {"max_rounds": 1.5}, {"ttl_seconds": -1}], ids=repr
)
def test_a_quota_that_makes_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        InMemoryStateService(**options)


# Time to live


async def test_a_session_that_is_over_is_gone() -> None:
    clock = Clock()
    repository = Repository(Memory(), clock=clock)
    async with StateService.over(repository, ttl_seconds=60) as service, StateService.over(repository) as other:
        await service.save_state("u", {"n": 1})
        clock.wait(50)
        await service.save_state("u", {"n": 2})  # renews it
        clock.wait(50)
        assert await service.list_rounds("u") == [1, 2]
        await service.save_state("u", {"n": 1}, "stays", ttl_seconds=0)
        clock.wait(11)
        for each in (service, other):
            assert await each.export_state("u") is None
            assert await each.list_rounds("u") == []
            assert await each.list_sessions("u") == ["stays"]
            await each.delete_state("u", None, 1)
        assert await service.save_state("u", {"n": "anew"}) == 1
        assert await service.export_state("u") == {"n": "anew"}
        clock.wait(61)
        assert await other.save_state("u", {"n": "again"}) == 1
        clock.wait(61)
        assert await other.export_state("u") == {"n": "again"}  # the other service has no time to live
        assert repository.expire() == []


async def test_expired_sessions_are_deleted_by_expire() -> None:
    clock = Clock()
    repository = Repository(Memory(), clock=clock)
    async with StateService.over(repository) as service:
        await service.save_state("u", {"n": 1}, ttl_seconds=60)
        await service.save_state("u", {"n": 1}, "s")
        clock.wait(61)
        assert repository.expire() == [service.branch("u")]
        assert await service.save_state("u", {"n": 2}) == 1


# Retention


async def test_retain_keeps_the_last_rounds_and_their_content() -> None:
    async with InMemoryStateService() as service:
        for number in range(1, 21):
            await service.save_state("u", {"n": number, "big": f"{number} " * 500})
        assert await service.retain("u", keep_last=3, gc=True) == 17
        assert await service.retain("u", keep_last=3) == 0
        assert await service.list_rounds("u") == [18, 19, 20]
        assert [(await service.export_state("u", None, n) or {})["n"] for n in (18, 19, 20)] == [18, 19, 20]
        assert await service.export_state("u", None, 5) is None
        assert len(list(service.repository.log(service.branch("u")))) == 4  # with the commit of the deletion
        assert await service.save_state("u", {"n": 21}) == 21
        assert await service.export_state("u", None, 18) == {"n": 18, "big": "18 " * 500}
        assert service.repository.fsck().ok


async def test_retain_by_age_and_a_latest_round_that_was_not_written_last() -> None:
    clock = Clock()
    async with StateService.over(Repository(Memory(), clock=clock)) as service:
        for number in (10, 3, 4):
            await service.save_state("u", {"n": number}, round_id=number)
            clock.wait(3600)
        assert await service.retain("u", older_than=timedelta(hours=2, minutes=30)) == 0  # 10 stays, 3 and 4 are newer
        assert await service.retain("u", older_than=timedelta(hours=1, minutes=30)) == 1
        assert await service.list_rounds("u") == [4, 10]
        assert await service.retain("u", keep_last=1) == 1
        assert await service.export_state("u") == await service.export_state("u", None, 10) == {"n": 10}
        assert await service.save_state("u", {}) == 11
        assert await service.retain("nobody", keep_last=1) == 0
        with pytest.raises(InvalidArgumentError):
            await service.retain("u")
        with pytest.raises(InvalidArgumentError):
            await service.retain("u", keep_last=0)


@pytest.mark.parametrize("saves", range(3))
async def test_a_listed_round_can_be_read_though_its_branch_was_pruned_by_hand(saves: int) -> None:
    async with InMemoryStateService() as service:
        for number in range(1, 6):
            await service.save_state("u", {"n": number})
        assert await service.retain("u", keep_last=2) == 3
        with Versioned(service.repository, branch=service.branch("u")) as state:
            state.undo()  # the commit before has all rounds, of which history has two
        assert await service.list_rounds("u") == [4, 5]
        for number in range(saves):
            assert await service.save_state("u", {"n": 6 + number}) == 6 + number
        service.repository.prune(keep_last=2, expire=timedelta(0), gc=True)
        rounds = await service.list_rounds("u")
        assert rounds == [4 + saves, 5 + saves]
        assert [await service.export_state("u", None, number) for number in rounds] == [
            {"n": number} for number in rounds
        ]


async def test_a_round_that_another_process_has_pruned_meanwhile_is_not_there() -> None:
    store = Memory()
    async with StateService.over(store) as service:
        for number in range(1, 4):
            await service.save_state("u", {"n": number, "large": [str(number) * 600] * 5})
        assert await service.export_state("u", None, 1) is not None  # which reads history as it is
        other = Repository(store)
        other.prune(keep_last=1, expire=timedelta(0))
        other.gc(expire=timedelta(0), force=True)
        assert await service.export_state("u", None, 1) is None
        assert await service.list_rounds("u") == [3]
        latest = await service.export_state("u")
        assert latest is not None
        assert latest["n"] == 3


async def test_the_latest_round_is_the_highest_that_can_be_read_though_the_branch_was_pruned_by_hand() -> None:
    async with InMemoryStateService() as service:
        for number in (1, 3, 2):
            await service.save_state("u", {"n": number}, round_id=number)
        service.repository.prune(keep_last=1, expire=timedelta(0), gc=True)
        assert await service.list_rounds("u") == [2]
        assert await service.export_state("u") == {"n": 2}
        assert await service.save_state("u", {"n": 4}) == 4  # the number of a round is not given again


async def test_a_round_that_is_deleted_does_not_become_an_earlier_one_that_was_pruned_by_hand() -> None:
    async with InMemoryStateService() as service:
        for number in (1, 2, 3):
            await service.save_state("u", {"n": number})
        service.repository.prune(keep_last=1, expire=timedelta(0), gc=True)
        await service.delete_state("u", None, 3)
        assert await service.list_rounds("u") == []
        assert await service.export_state("u") is None
        assert await service.save_state("u", {"n": 4}) == 1
        assert await service.export_state("u") == {"n": 4}


@pytest.mark.parametrize("saves", range(5))
async def test_retain_cuts_no_round_that_it_keeps_though_another_server_saves_more(
    saves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, prune = Memory(), Repository.prune
    async with StateService.over(Repository(store)) as one, StateService.over(Repository(store)) as other:
        for number in range(1, 6):
            await one.save_state("u", {"n": number}, "s")
        loop = asyncio.get_running_loop()

        def later(self: Repository, **options: Any) -> Any:
            for _ in range(saves):
                asyncio.run_coroutine_threadsafe(other.save_state("u", {"n": "later"}, "s"), loop).result(20)
            return prune(self, **options)

        monkeypatch.setattr(Repository, "prune", later)
        assert await one.retain("u", "s", keep_last=3, gc=True) == 2
        for service in (one, other):
            assert await service.list_rounds("u", "s") == list(range(3, 6 + saves))
            found = [(await service.export_state("u", "s", number) or {})["n"] for number in range(3, 6 + saves)]
            assert found == [3, 4, 5, *["later"] * saves]
        assert len(list(one.repository.log(one.branch("u", "s")))) == 4 + saves


async def test_a_retain_that_failed_before_history_was_pruned_is_finished_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pruned: list[Any] = []
    prune = Repository.prune

    def failing(self: Repository, **options: Any) -> Any:
        pruned.append(options["down_to"])
        if len(pruned) == 1:
            raise StorageError("the store is away for a moment")
        return prune(self, **options)

    async with InMemoryStateService() as service:
        for number in range(1, 6):
            await service.save_state("u", {"n": number})
        monkeypatch.setattr(Repository, "prune", failing)
        with pytest.raises(StorageError):
            await service.retain("u", keep_last=2)
        assert await service.list_rounds("u") == [4, 5]
        for _ in range(3):
            assert await service.retain("u", keep_last=2) == 0
            assert len(list(service.repository.log(service.branch("u")))) == 3  # with the commit of the deletion
        assert len(pruned) == 2  # there is nothing left to prune
        await service.save_state("u", {"n": 6})
        assert await service.retain("u", keep_last=9) == 0
        assert len(pruned) == 2


# Erasure


def names_in(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def bytes_of(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


async def test_delete_user_leaves_no_byte(tmp_path: Path) -> None:
    secret = "4929-1234-secret"
    with Disk(tmp_path / "store") as store:
        repository = Repository(store)
        async with StateService.over(repository) as service:
            for session in (None, "s", "x" * 300):
                await service.save_state("alice", {"card": secret, "shared": "both have it"}, session)
                await service.save_state("alice", {"card": secret + "2"}, session)
            await service.delete_state("alice", "s")
            await service.save_state("alicex", {"shared": "both have it"})
            await service.save_state("bob", {"shared": "both have it"})
            for kind in ("%messages/alice/s", "%memory/alice"):
                with Versioned(repository, branch=kind) as state:
                    state["messages"] = [secret]
                    state.commit()
            report = await service.delete_user("alice")
            assert report.is_complete
            assert report.left == ()
            assert report.commits == 8
            assert len(report.branches) == 5
            assert report.purge.collected is not None
            assert report.purge.collected.freed > 0
            assert await service.list_sessions("alice") == []
            assert await service.export_state("alice") is None
            assert [await service.export_state(user) for user in ("alicex", "bob")] == [{"shared": "both have it"}] * 2
            assert await service.save_state("alice", {"n": 1}) == 1
            nothing = await service.delete_user("nobody")
            assert nothing.branches == ()
            assert nothing.is_complete
            assert repository.fsck().ok
    assert secret.encode() not in bytes_of(tmp_path / "store")


async def test_delete_user_says_what_others_share() -> None:
    async with InMemoryStateService() as service:
        await service.save_state("alice", {"n": 1})
        service.repository.branches.create("a-fork", at=service.branch("alice"))
        await service.save_state("alice", {"n": 2})
        report = await service.delete_user("alice")
        assert not report.is_complete
        assert report.left == report.purge.shared
        assert len(report.left) == 1


class Intruder(Wrapper):
    """A store on which a writer saves the state of a user as soon as it is gone."""

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self.waits_for: str | None = None

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        branch, self.waits_for = self.waits_for, None
        if branch is not None:
            repository = Repository(self.store)
            if branch in repository.branches:
                self.waits_for = branch
            else:
                with Versioned(repository, branch=branch) as state:
                    state["card"] = "again"
                    state.commit()
        return super().get_many(keys)


async def test_delete_user_is_no_proof_beside_a_writer() -> None:
    store = Intruder(Memory())
    async with StateService.over(store) as service:
        await service.save_state("alice", {"card": 1})
        store.waits_for = service.branch("alice")
        report = await service.delete_user("alice")
        assert report.branches == report.again == (service.branch("alice"),)
        assert report.left == ()
        assert not report.is_complete
        report = await service.delete_user("alice")
        assert report.branches == (service.branch("alice"),)
        assert report.again == ()
        assert report.is_complete


# Export


async def test_an_exported_user_reads_back_as_it_was(tmp_path: Path) -> None:
    async with InMemoryStateService() as service:
        first = {"n": 1, "text": "é\udcff", "pair": "\ud83d\ude00"}
        second = {"t": (1, 2), "set": {4}}
        await service.save_state("alice", first, "s")
        await service.save_state("alice", second, "s", round_id=7)
        await service.save_state("alice", {}, "x" * 300)
        await service.save_state("bob", {"secret": 1})
        with Versioned(service.repository, branch="%messages/alice/s") as state:
            state["messages"] = ["hi"]
            state.commit()
        path = tmp_path / "alice.jsonl"
        assert await service.export_user("alice", path) == 4
        records = list(read_export(path))
        assert [(each.kind, each.session_id, each.round_id, each.content) for each in records] == [
            *sorted(
                [("state", "s", 1, first), ("state", "s", 7, second), ("state", "x" * 300, 1, {})],
                key=lambda row: (service.branch("alice", str(row[1])), row[2]),
            ),
            ("messages", "s", None, {"messages": ["hi"]}),
        ]
        assert isinstance(records[0], ExportedRecord)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines[0]["user_id"] == "alice"
        assert "secret" not in path.read_text()
        assert path.stat().st_mode & 0o077 == 0
        with pytest.raises(InvalidArgumentError, match="exists"):
            await service.export_user("alice", path)
        assert names_in(tmp_path) == ["alice.jsonl"]
        damaged = path.read_text().replace('"exact": "', '"exact": "AAAA')
        path.write_text(damaged)
        with pytest.raises(InvalidArgumentError, match="is not the export of a user"):
            list(read_export(path))
        path.write_text("{}\n")
        with pytest.raises(InvalidArgumentError, match="is not the export of a user"):
            list(read_export(path))
        assert await service.export_user("nobody", tmp_path / "nobody") == 0


async def test_a_part_of_an_export_gives_no_record(tmp_path: Path) -> None:
    path = tmp_path / "alice.jsonl"
    async with InMemoryStateService() as service:
        for number in range(3):
            await service.save_state("alice", {"n": number, "records": number})
        await service.export_user("alice", path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    ends = [sum(map(len, lines[:count])) for count in range(len(lines))]
    for length in [*ends, *(end + 5 for end in ends), len(whole) - 2]:  # between two lines, and within one
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidArgumentError, match="is not the export of a user"):
            next(read_export(path))
    of_two = [*lines, *lines]  # two exports with as many records each
    for damaged in (
        lines[:2] + lines[3:],
        lines[:2] + lines[1:],
        [*lines[:-1], b"5\n"],
        [*lines[:-1], b'{"records": -1}\n'],
        of_two,
    ):
        path.write_bytes(b"".join(damaged))
        with pytest.raises(InvalidArgumentError, match="is not the export of a user"):
            list(read_export(path))
    path.write_bytes(whole.removesuffix(b"\n"))  # an editor may take it away
    assert [record.round_id for record in read_export(path)] == [1, 2, 3]


async def test_exports_and_saves_beside_each_other(tmp_path: Path) -> None:
    async with StateService.over(f"disk:{tmp_path / 'store'}") as service:
        await service.save_state("u", {"n": 0})
        exports = [service.export_user("u", tmp_path / str(n)) for n in range(3)]
        await asyncio.gather(*exports, *(service.save_state("u", {"n": n}) for n in range(20)))
        assert all(record.content["n"] >= 0 for n in range(3) for record in read_export(tmp_path / str(n)))
