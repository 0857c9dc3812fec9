"""``Rounds``: any numbers, in few bytes, at a cost that does not grow with them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import timedelta

import pytest

from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import CorruptObjectError
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.services.agent_state import InMemoryStateService, StateService
from versioned_state.services.agent_state.reading import rounds_at
from versioned_state.services.agent_state.rounds import NO_ROUNDS, Rounds, rounds_of
from versioned_state.storage import Cache, Counting
from versioned_state.values.cells import Code, order_key, pack
from versioned_state.values.keys import OLDER_ROUNDS, ROUNDS
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.references import tree_cell
from versioned_state.values.trees.tree import empty


def new_nodes() -> Nodes:
    staging = Staging(ObjectStore(Memory()))
    return Nodes(staging, staging=staging)


def reread(nodes: Nodes, rounds: Rounds) -> Rounds:
    """Rounds that were stored in a root, as it is read again."""
    made, cells = rounds.stored(nodes)
    found = rounds_of(nodes, edit_map(nodes, empty(Shape.MAP), {**cells, OLDER_ROUNDS: made.older.cell}))
    assert (found.current, found.runs, found.older.count, found.older.latest, found.older.cell) == (
        made.current,
        made.runs,
        made.older.count,
        made.older.latest,
        made.older.cell,
    )
    return found


def saved(numbers: Iterable[int], nodes: Nodes | None = None) -> Rounds:
    """The rounds after saves under these numbers, stored after each if there are nodes for it."""
    rounds = NO_ROUNDS
    for height, number in enumerate(numbers, 1):
        rounds = rounds.settled(height - 1).at(number, height)
        rounds = rounds if nodes is None else reread(nodes, rounds)
    return rounds


def uneven(count: int, seed: int = 7) -> list[int]:
    """Numbers as large as time stamps, which rise in uneven steps."""
    draw, number, numbers = random.Random(seed), 1_760_000_000_000, []
    for _ in range(count):
        number += draw.randrange(1_000, 60_000)
        numbers.append(number)
    return numbers


def test_rounds_in_steps_are_one_run() -> None:
    def runs(*numbers: int) -> int:
        rounds = saved(numbers)
        kept = list(dict.fromkeys(reversed(numbers)))
        assert list(rounds) == sorted(kept)
        assert all(rounds.height(number) == len(numbers) - list(reversed(numbers)).index(number) for number in kept)
        assert len(rounds) == len(kept)
        return len(rounds.runs)

    assert runs(*range(1, 1000)) == 1
    assert runs(*range(0, 1000, 10)) == 1
    assert runs(9, 6, 3, 0) == 1
    assert runs(1, 2, 3, 2, 4, 5) == 3
    assert runs(10, 20, 3) == 2
    assert runs(5, 5, 5) == 1


def test_any_rounds_are_as_a_dict_has_them(long_run: bool) -> None:  # noqa: FBT001 - a fixture
    for seed in range(40 if long_run else 4):
        follow_a_dict(seed)


def follow_a_dict(seed: int) -> None:
    """Save and delete rounds as a dict from numbers to heights does."""
    draw, nodes = random.Random(seed), new_nodes()
    rounds, model = NO_ROUNDS, dict[int, int]()
    current: int | None = None
    span, most_older = (60, 1 << 62)[seed % 2], 0
    run: Iterator[int] = iter(())
    for height in range(1, 240):
        if current is not None:
            model[current] = height - 1
        rounds = rounds.settled(height - 1)
        number = next(run, None) or draw.choice(
            [draw.randrange(span), max(model, default=0) + draw.choice((1, 1, 1, 3))]
        )
        if draw.random() < 0.05:  # a run, which may lie across others
            run = iter(range(number, number + 60, draw.choice((1, 1, 3))))
        if draw.random() < 0.2 and model:
            gone = draw.sample(list(model), draw.randrange(1, min(len(model), 4) + 1))
            rounds = rounds.without(*gone, -1, 1 << 70)
            model = {each: at for each, at in model.items() if each not in gone}
            current = None if current in gone else current
            if current is None:
                continue
        current = number
        rounds = rounds.at(number, height)
        model[number] = height
        for found in (rounds, reread(nodes, rounds)):
            assert (list(found), len(found), found.latest, found.current) == (
                sorted(model),
                len(model),
                max(model),
                current,
            )
            some = draw.sample([*model], min(len(model), 6))
            near = {each + by for each in some for by in (-1, 0, 1)} | {-2, 1 << 70}
            assert {each: found.height(each) for each in near} == {each: model.get(each) for each in near}
        if draw.random() < 0.8:
            rounds = found
        most_older = max(most_older, len(found.older))
        assert len(pack([each for run in found.runs for each in run])) <= 96
    assert most_older > 10
    rounds = reread(nodes, rounds.without(*model))
    assert (list(rounds), len(rounds), rounds.latest, rounds.height(current or 0)) == ([], 0, None, None)


def test_a_long_session_in_steps_stays_one_entry_whatever_comes_behind_it() -> None:
    nodes = new_nodes()
    for step in (1, 10):
        rounds = saved([*range(0, 900 * step, step), *uneven(40)], nodes)
        assert len(rounds) == 940
        assert rounds.older.tree.count <= 41
        halves = reread(nodes, rounds.without(300 * step, 301 * step))
        assert [number in halves for number in (299 * step, 300 * step, 301 * step, 302 * step)] == [
            True,
            False,
            False,
            True,
        ]
        assert len(list(halves)) == len(halves) == 938


@pytest.mark.parametrize(
    "entry",
    [
        (b"x", pack(1)),
        (order_key(3, pack(3)), pack("one")),
        (order_key(3, pack(3)), pack([1, 0])),
        (order_key(3, pack(3)), pack([1])),
    ],
    ids=["key", "text", "none", "no-length"],
)
def test_older_rounds_that_do_not_read_are_corrupt(entry: tuple[bytes, bytes]) -> None:
    nodes = new_nodes()
    older = tree_cell(Code.DICT_TREE, edit_map(nodes, empty(Shape.MAP), dict([entry])))
    rounds = rounds_of(
        nodes, edit_map(nodes, empty(Shape.MAP), {ROUNDS: pack([None, None, 1, 9]), OLDER_ROUNDS: older})
    )
    for call in (lambda: list(rounds), lambda: rounds.height(5)):
        with pytest.raises(CorruptObjectError, match="older rounds"):
            call()
    for cells in ({}, {OLDER_ROUNDS: pack(1)}, {OLDER_ROUNDS: older[:-4]}):
        root = edit_map(nodes, empty(Shape.MAP), {ROUNDS: pack([None, None, 1, 9]), **cells})
        with pytest.raises(CorruptObjectError, match="older rounds"):
            rounds_of(nodes, root)


# In the service


async def test_saves_under_uneven_numbers_cost_the_same_however_many_there_are() -> None:
    costs = []
    for rounds in (60, 600):
        store = Counting(Memory())
        numbers = uneven(rounds + 24)
        async with StateService.over(Repository(Cache(store))) as service:
            for number in numbers[:rounds]:
                await service.save_state("u", {"n": 1}, round_id=number)
            size = stored_bytes(store)
            store.reset()
            for number in numbers[rounds:]:
                await service.save_state("u", {"n": 1}, round_id=number)
            assert store.counts.round_trips == 24
            written = stored_bytes(store) - size
        async with StateService.over(Repository(store)) as service:
            store.reset()
            assert await service.export_state("u") == {"n": 1}
            assert await service.export_state("u", None, numbers[rounds // 3]) == {"n": 1}
            assert await service.export_state("u", None, numbers[0] - 1) is None
            assert await service.list_rounds("u") == numbers
            costs.append((written, store.counts.round_trips))
    (few, few_trips), (many, many_trips) = costs
    assert many < 1.6 * few
    assert many_trips <= few_trips + 14


async def test_a_session_of_uneven_numbers_takes_all_of_gits_verbs() -> None:
    async with InMemoryStateService() as service:
        repository, branch, numbers = service.repository, service.branch("u"), uneven(60)
        for number in numbers:
            await service.save_state("u", {"n": number}, round_id=number)
        with Versioned(repository, branch=branch) as state:
            twentieth = next(commit for commit in state.log() if commit.meta["round"] == numbers[19])
            repository.branches.create(service.branch("u", "fork"), at=twentieth)
            assert await service.list_rounds("u", "fork") == numbers[:20]
            assert await service.save_state("u", {"n": 0}, "fork") == numbers[19] + 1
            assert await service.save_state("u", {"n": "again"}, "fork", numbers[3]) == numbers[3]
            state.merge(service.branch("u", "fork"), policies={"n": "theirs"})
            assert await service.list_rounds("u") == numbers
            state.undo(21)
            assert await service.list_rounds("u") == numbers[:40]
        assert [await service.export_state("u", None, number) for number in (numbers[3], numbers[39], numbers[40])] == [
            {"n": numbers[3]},
            {"n": numbers[39]},
            None,
        ]
        assert await service.export_state("u", "fork") == {"n": 0}
        assert await service.export_state("u", "fork", numbers[3]) == {"n": "again"}
        await service.save_state("u", {"n": "new"}, round_id=numbers[0])
        await service.delete_state("u", None, numbers[1])
        await service.delete_state("u", None, numbers[39])
        left = [number for number in numbers[:39] if number != numbers[1]]
        assert await service.list_rounds("u") == left
        assert await service.export_state("u", None, numbers[0]) == {"n": "new"}
        assert await service.export_state("u") == {"n": numbers[38]}
        assert await service.retain("u", keep_last=12, gc=True) == 26
        assert await service.list_rounds("u") == left[-12:]
        assert [await service.export_state("u", None, number) for number in left[-12:]] == [
            {"n": number} for number in left[-12:]
        ]
        assert await service.save_state("u", {"n": "next"}) == left[-1] + 1
        assert repository.fsck().ok
        assert await service.list_rounds("u", "fork") == sorted([*numbers[:20], numbers[19] + 1])


async def test_a_handle_that_commits_beside_saves_under_uneven_numbers_keeps_them() -> None:
    async with InMemoryStateService() as service:
        await service.save_state("u", {"n": 0}, round_id=0)
        with Versioned(service.repository, branch=service.branch("u")) as state:
            state["note"] = "by hand"
            for number in uneven(30):
                await service.save_state("u", {"n": number}, round_id=number)
            state.commit()
            assert await service.list_rounds("u") == [0, *uneven(30)]


async def test_gc_and_fsck_see_the_tree_of_the_rounds() -> None:
    store = Memory()
    async with StateService.over(store) as service:
        repository, branch, numbers = service.repository, service.branch("u"), uneven(90)

        def top() -> str:
            with Versioned(repository, branch=branch) as state:
                found = rounds_at(repository.database, state.head).older.tree.top
            assert isinstance(found, bytes)
            return f"o/{found.hex()}"

        tops = []
        for number in numbers:
            await service.save_state("u", {"n": 1}, round_id=number)
            tops += [top()] if number > numbers[30] else []
        assert await service.retain("u", keep_last=3) == 87
        repository.gc(expire=timedelta(0))
        assert await service.list_rounds("u") == numbers[-3:]
        assert tops[0] not in store
        assert tops[-1] in store  # of the rounds that are left
        assert repository.fsck().ok
        store.delete(tops[-1])
        assert not Repository(store).fsck().ok


def stored_bytes(store: Counting) -> int:
    return sum(len(value) for _, value in store.items())
