"""Walks over commits agree with naive walks, revisions are resolved, and the reflog explains every move."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.histories import Clock, ancestors, make_graph, numbered
from versioned_state import Commit, Memory, Repository, Versioned
from versioned_state.errors import AmbiguousRevisionError, InvalidArgumentError, UnknownRevisionError
from versioned_state.objects.store import Staging
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.storage import Counting, Wrapper


def back(repository: Repository, commit: Commit) -> Iterator[Commit]:
    yield commit
    while commit.parents:
        commit = repository.commit(commit.parents[0])
        yield commit


@pytest.mark.parametrize("merges", [0, 0.1, 0.5])
def test_every_ancestor_by_number_is_what_a_walk_finds(merges):
    repository = Repository(Memory())
    for commit in make_graph(repository, 200, merges=merges, seed=1):
        line = list(back(repository, commit))
        assert commit.height == len(line) - 1
        for count in {0, 1, 2, 3, len(line) // 2, len(line) - 1} & set(range(len(line))):
            assert repository.commit(f"{commit.id}~{count}") == line[count]
        with pytest.raises(UnknownRevisionError, match="before"):
            repository.commit(f"{commit.id}~{len(line)}")


def test_any_ancestor_is_a_few_reads_away():
    store = Counting(Memory())
    repository = Repository(store)
    state = Versioned(repository)
    for _ in range(1000):
        state.commit(allow_empty=True)
    for count in (1, 10, 500, 999, 777):
        fresh = Repository(store)
        store.reset()
        assert fresh.commit(f"main~{count}").height == 1000 - count
        assert store.counts.round_trips <= 45


@pytest.mark.parametrize("seed", range(4))
def test_merge_base_and_ancestry_are_what_sets_say(seed):
    repository = Repository(Memory())
    commits = make_graph(repository, 60, merges=(0.35, 0.06)[seed % 2], seed=seed)
    over = {commit.id: ancestors(repository, commit) for commit in commits}
    rng = random.Random(seed)
    for a, b in [rng.choices(commits, k=2) for _ in range(400)]:
        common = over[a.id] & over[b.id]
        best = {id for id in common if not any(id in over[other] and other != id for other in common)}
        bases = list(graph.iter_merge_bases(a, b, repository.database.commits.read))
        assert {base.id for base in bases} == best
        assert bases == sorted(bases, key=lambda commit: (-commit.generation, -commit.time))
        assert repository.merge_base(a, b) == bases[0]
        assert repository.merge_base(a, b) == repository.merge_base(b, a)
        assert graph.is_ancestor(a, b, repository.database.commits.read) == (a.id in over[b.id])


@pytest.mark.parametrize("merges", [0, 0.05, 0.4])
def test_a_commit_knows_how_high_the_newest_merge_of_its_line_is(merges):
    repository = Repository(Memory())
    for commit in make_graph(repository, 60, merges=merges, seed=7):
        line = list(back(repository, commit))
        assert commit.merge_height == next((each.height for each in line if len(each.parents) > 1), 0)
        assert repository.database.commits.read_stored(commit.address) == commit
    assert repository.fsck().ok


def test_the_base_of_two_lines_is_found_without_a_walk():
    store = Counting(Memory())
    repository = Repository(store)
    fork = make_graph(repository, 40, merges=0.3, seed=1)[-1]
    assert fork.merge_height
    staging = Staging(repository.database.objects)
    tips = [fork, fork]
    for number in range(2000):
        parent = tips[number % 2]
        tips[number % 2] = repository.database.write_commit(
            parent.tree, (parent,), staging=staging, message=str(number)
        )
        store.apply({}, {}, objects=staging.sealed())
        staging.sent()
    fresh = Repository(store)
    store.reset()
    assert fresh.merge_base(tips[0].id, tips[1].id) == fork
    assert store.counts.round_trips <= 80


@pytest.mark.parametrize("seed", range(3))
def test_log_lists_every_ancestor_once_and_children_first(seed):
    repository = Repository(Memory())
    commits = make_graph(repository, 80, merges=0.3, seed=seed)
    head = commits[-1]
    listed = list(repository.log(head, include_root=True))
    assert sorted(commit.id for commit in listed) == sorted(ancestors(repository, head))
    place = {commit.id: index for index, commit in enumerate(listed)}
    assert all(place[parent] > place[commit.id] for commit in listed for parent in commit.parents)
    assert [commit.id for commit in repository.log(head)] == [commit.id for commit in listed if commit.parents]
    assert list(repository.log(head, first_parent=True, include_root=True)) == list(back(repository, head))
    assert list(repository.log(head, limit=5)) == listed[:5]


@pytest.mark.parametrize("seed", range(4))
def test_log_of_a_range_is_the_log_without_what_the_other_side_has(seed):
    repository = Repository(Memory(), clock=Clock())
    commits = make_graph(repository, 60, merges=0.4, seed=seed)
    rng = random.Random(seed)
    for _ in range(40):
        a, b = rng.choice(commits), rng.choice(commits)
        theirs = ancestors(repository, a)
        expected = [commit for commit in repository.log(b) if commit.id not in theirs]
        line = [commit for commit in repository.log(b, first_parent=True) if commit.id not in theirs]
        rev = f"{a.id}..{b.id}"
        assert list(repository.log(rev)) == list(repository.log(rev, include_root=True)) == expected
        assert list(repository.log(rev, first_parent=True)) == line
        assert list(repository.log(rev, limit=3)) == expected[:3]
        assert list(repository.log(rev, message="1")) == [commit for commit in expected if "1" in commit.message]


def test_a_range_without_one_of_its_ends_ends_at_head():
    state = Versioned(clock=Clock())
    numbered(state, range(4), key="x")
    idea = state.fork("idea", at="HEAD~2")
    repository = state.repository

    def said(rev: str, **more: Any) -> list[str]:
        return [commit.message for commit in repository.log(rev, **more)]

    assert said("idea..") == said("HEAD~2..HEAD") == said("idea..main") == ["3", "2"]
    assert said("..idea") == said("..") == said("main..main") == []
    assert said("main@{0}~1..main") == ["3"]
    assert said("HEAD~1..", head=repository.commit("idea")) == said("HEAD~1..", branch="idea") == ["1"]
    repository.current_branch = "idea"
    assert said("..main") == ["3", "2"]
    assert (
        [commit.message for commit in idea.log("..main")]
        == [commit.message for commit in state.log("idea..")]
        == ["3", "2"]
    )
    assert [commit.message for commit in idea.log("HEAD~1..")] == ["1"]
    assert [commit.message for commit in state.log("@{2}..", limit=1)] == ["3"]
    assert list(idea.log("main..")) == []


def test_a_range_reads_what_it_shows_and_little_more():
    store = Counting(Memory())
    repository = Repository(store)
    state = Versioned(repository)
    for n in range(500):
        state.commit(str(n), allow_empty=True)
    fresh = Repository(store)
    since, until = fresh.commit("main~400"), fresh.commit("main~390")
    store.reset()
    assert len(list(fresh.log(f"{since.id}..{until.id}"))) == 10
    assert store.counts.objects_read < 20


@pytest.mark.parametrize("rev", ["main...main", "...", "main..main..main", "main...", "main.....main"])
def test_two_dots_make_a_range_and_nothing_else_does(rev: str):
    state = Versioned()
    state.commit("one", allow_empty=True)
    with pytest.raises(InvalidArgumentError, match=r"is not a range"):
        state.repository.log(rev)


def test_a_range_is_no_commit():
    state = Versioned()
    state.commit("one", allow_empty=True)
    for rev in ("HEAD..main", "main..", "..main"):
        with pytest.raises(UnknownRevisionError, match="it is a range"):
            state.repository.commit(rev)
    for rev in ("nothing..main", "main..nothing"):
        with pytest.raises(UnknownRevisionError, match="'nothing'"):
            state.repository.log(rev)


def test_log_is_newest_first_across_branches():
    clock = Clock()
    repository = Repository(Memory(), clock=clock)
    a, b = Versioned(repository, branch="a"), Versioned(repository, branch="b")
    for n in range(6):
        (a if n % 2 else b).commit(str(n), allow_empty=True)
    staging = Staging(repository.database.objects)
    merged = repository.database.write_commit(a.head.tree, (a.head, b.head), staging=staging, message="merge")
    repository.store.apply({}, {}, objects=staging.sealed())
    assert [commit.message for commit in repository.log(merged)] == ["merge", "5", "4", "3", "2", "1", "0"]


# Revisions


@pytest.fixture
def line() -> Versioned:
    """main with commits 0 to 5, a minute apart, and a tag v1 at 3."""
    clock = Clock()
    state = Versioned(Memory(), clock=clock)
    for n in range(6):
        clock.now += 59_000_000
        state["n"] = n
        state.commit(str(n))
    state.repository.tags.create("v1", "main~2")
    return state


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        *[(revision, "5") for revision in ("main", "HEAD", "@", "HEAD~0", "main^0", "main@{0}")],
        *[(revision, "4") for revision in ("HEAD~", "main^", "@{1}")],
        *[(revision, "3") for revision in ("v1", "main@{2}")],
        *[(revision, "2") for revision in ("main^1~2", "main^^^", "main~2~1")],
        *[(revision, "1") for revision in ("HEAD@{3}^", "v1~2")],
        *[(revision, "0") for revision in ("@~5", "v1~3")],
    ],
)
def test_revision(line, revision, message):
    assert line.repository.commit(revision).message == message
    assert line.checkout(revision)["n"] == int(message)
    assert next(line.log(revision)).message == message


def test_ids_full_short_and_in_capitals(line):
    for commit in line.log():
        for id in (commit.id, commit.short, commit.id[:8].upper(), commit.id + "~0"):
            assert line.repository.commit(id) == commit
        assert line.repository.commit(commit) is commit


def test_by_date(line):
    for commit in line.log():
        when = commit.datetime.isoformat()
        assert line.repository.commit(f"main@{{{when}}}") == commit
        assert line.repository.commit(f"@{{{when.replace('+00:00', '')}}}") == commit
    with pytest.raises(UnknownRevisionError, match="did not exist then"):
        line.repository.commit("main@{1999-12-31}")


@pytest.mark.parametrize(
    "revision",
    [
        *(
            "nothing main~99 main^2 main~x main@{99} main@{yesterday} main^^~~~~~~ ~ ^ main@ main@{ v2 v1@{1 abc "
            "ffffffff"
        ).split(),
        *("", "main~-1", "x" * 3000, "\ud800", "main\0", "0" * 48, "a/../b", "@{}", "main~2@{1}"),
    ],
)
def test_an_unknown_revision_is_an_error_of_its_own(line, revision):
    for call in (line.repository.commit, line.checkout, line.reset, line.diff, lambda r: list(line.log(r))):
        with pytest.raises(UnknownRevisionError):
            call(revision)
    assert line.head.message == "5"
    assert not line.status()


def test_an_unknown_revision_offers_what_comes_close(line):
    for name in ("release-1", "release-2", "v1.5"):
        line.repository.tags.create(name)
    with pytest.raises(UnknownRevisionError) as caught:
        line.checkout("relaese-1")
    assert set(caught.value.near) >= {"release-1", "release-2"}
    assert "did you mean" in caught.value.hint
    id = line.head.id
    with pytest.raises(UnknownRevisionError) as caught:
        line.checkout(id[:9] + ("0" if id[9] != "0" else "1"))
    assert line.head.short in caught.value.near
    assert len(caught.value.near) <= 8


@pytest.mark.parametrize("many", [20, 1200])
def test_a_similar_name_is_found_among_many(many):
    store = Counting(Memory())
    repository = Repository(store)
    commit = Versioned(repository).commit("first", allow_empty=True)
    for n in range(many):
        repository.branches.create(f"user-{n:05}/chat", commit)
    store.reset()
    with pytest.raises(UnknownRevisionError) as caught:
        repository.commit(f"user-{many - 1:05}/cha")
    assert caught.value.near[0] == f"user-{many - 1:05}/chat"
    assert store.counts.round_trips <= 16


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_a_deleted_name_is_said_to_be_deleted_and_how_it_comes_back(line, kind):
    names = line.repository.branches if kind == "branch" else line.repository.tags
    head = names.create("feature/b")
    names.create("feature/a")
    names.delete("feature/b")
    with pytest.raises(UnknownRevisionError, match=f"the {kind} 'feature/b' was deleted") as caught:
        line.checkout("feature/b")
    assert caught.value.deleted == kind
    assert "feature/b@{1}" in caught.value.hint
    with pytest.raises(UnknownRevisionError, match="was deleted") as caught:
        line.checkout("feature/b~1")
    assert "feature/b~1@{1}" not in caught.value.hint
    assert names.create("feature/b", "feature/b@{1}") == head == line.repository.commit("feature/b")


def test_numbers_in_the_reasons_of_unknown_revisions(line):
    repository = line.repository
    for revision, reason in (
        ("main^2", "has only 1 parent"),
        ("main~6^2", "has no parent"),
        ("main@{99}", "its reflog has only 5 moves"),
    ):
        with pytest.raises(UnknownRevisionError, match=reason):
            repository.commit(revision)
    repository.branches.create("new")
    with pytest.raises(UnknownRevisionError, match="its reflog has no move"):
        repository.commit("new@{1}")


def test_an_id_that_several_share_is_ambiguous():
    state = Versioned(clock=Clock())
    seen: dict[str, Commit] = {}
    while True:
        commit = state.commit(allow_empty=True)
        if (twin := seen.setdefault(commit.id[:4], commit)) != commit:
            break
    with pytest.raises(AmbiguousRevisionError) as caught:
        state.repository.commit(commit.id[:4])
    assert sorted(caught.value.candidates) == sorted([commit.short, twin.short])


def test_a_name_wins_over_an_id_and_a_branch_over_a_tag(line):
    name = line.repository.commit("main~3").id[:8]
    line.repository.tags.create(name, "main~4")
    assert line.repository.commit(name).message == "1"
    line.repository.branches.create(name, "main~5")
    assert line.repository.commit(name).message == "0"


def test_only_commits_are_found_by_id(line):
    line["large"] = [str(n) * 50 for n in range(900)]
    line.commit()
    for key in line.repository.store.keys("o/"):
        id = key[2:]
        try:
            assert line.repository.commit(id[:10]).id == id
        except UnknownRevisionError:
            assert id not in {commit.id for commit in line.repository.log(include_root=True)}


def test_a_revision_is_a_string_or_a_commit(line):
    for revision in (1, None, b"main"):
        with pytest.raises(InvalidArgumentError, match="revision"):
            line.repository.commit(revision)


# Branches, tags, reflog


def test_branches_and_tags_are_mappings(line):
    repository = line.repository
    repository.branches.create("side/one", "v1")
    assert list(repository.branches) == ["main", "side/one"]
    assert len(repository.branches) == 2
    assert repository.branches["side/one"].message == "3"
    assert dict(repository.tags) == {"v1": repository.commit("main~2")}
    assert "v1" not in repository.branches
    assert repository.branches.delete("side/one").message == "3"
    assert "side/one" not in repository.branches
    assert list(repository.branches) == ["main"]
    with pytest.raises(UnknownRevisionError):
        repository.branches["side/one"]
    with pytest.raises(KeyError):
        repository.branches.delete("side/one")


@pytest.mark.parametrize(
    "name",
    [
        *"HEAD @ a..b a~ a^b a:b a? a* a[ a\\b /a a/ a//b -a a@{b".split(),
        "",
        "a b",
        "a\nb",
        "\ud800",
        "a" * 256,
        1,
        None,
        b"a",
    ],
)
def test_a_bad_name_is_refused(line, name):
    for refs in (line.repository.branches, line.repository.tags):
        with pytest.raises(InvalidArgumentError, match="name"):
            refs.create(name)
    with pytest.raises(InvalidArgumentError, match="name"):
        Versioned(line.repository, branch=name)


@pytest.mark.parametrize("name", ["a", "user/1/session-2", "é", "a.b", "x" * 255, "{", "#1", "a@b"])
def test_a_good_name_is_taken(line, name):
    line.repository.branches.create(name)
    assert line.repository.commit(name) == line.head
    assert line.repository.commit(f"{name}~1").message == "4"


def test_the_reflog_lists_commits_resets_deletes_and_creations(line):
    state, repository = line, line.repository
    state.reset("main~3")
    state["n"] = "again"
    state.commit("again")
    repository.branches.delete("main", force=True)
    repository.branches.create("main", "v1")
    positions = [(p.action, None if p.commit is None else p.commit.message) for p in repository.reflog("main")]
    assert positions == [
        ("create", "3"),
        ("delete", None),
        ("commit", "again"),
        ("reset", "2"),
        ("commit", "5"),
        ("commit", "4"),
        ("commit", "3"),
        ("commit", "2"),
        ("commit", "1"),
        ("commit", "0"),
    ]
    assert repository.commit("main@{2}").message == "again"
    assert repository.commit("main@{4}").message == "5"
    with pytest.raises(UnknownRevisionError, match="deleted"):
        repository.commit("main@{1}")


def test_any_reset_can_be_taken_back(line):
    for revision in ("main~4", "v1", "main~1", "main@{3}"):
        before = line.head
        line.reset(revision)
        line.reset("main@{1}")
        assert line.head == before
        line.reset(revision)
    assert [position.action for position in line.repository.reflog("main")][:2] == ["reset", "reset"]


def test_a_branch_that_was_deleted_is_still_in_its_reflog(line):
    head = line.head
    line.repository.branches.delete("main", force=True)
    assert line.repository.commit("main@{1}") == head
    line.repository.branches.create("main", "main@{1}")
    assert Versioned(line.repository)["n"] == 5


def test_the_reflog_of_a_branch_that_began_anew_leads_to_its_earlier_life(line):
    repository, head, store = line.repository, line.head, line.repository.store
    repository.branches.delete("main", force=True)
    again = Versioned(Repository(Wrapper(store)))
    for number in range(3):
        again["other"] = number
        again.commit(f"new {number}")
    repository = again.repository
    log = repository.database.reflog(repository.database.ref("branch", "main"))
    messages = [position.commit and position.commit.message for position in log]
    assert messages == ["new 2", "new 1", "new 0", None, "5", "4", "3", "2", "1", "0"]
    assert len(log) == len(messages)
    assert [(at := log.at(number)) and at.commit and at.commit.message for number in range(11)] == [*messages, None]
    assert repository.commit("main@{4}") == head
    with pytest.raises(UnknownRevisionError, match="deleted"):
        repository.commit("main@{3}")
    again.undo(2)
    with pytest.raises(UnknownRevisionError, match="nothing to undo"):
        again.undo()
    assert dict(again) == {"other": 0}
    repository.branches.create("old", "main@{5}")
    assert repository.branches["old"] == head


def test_an_empty_repository():
    repository = Repository(Memory())
    assert list(repository.branches) == []
    with pytest.raises(UnknownRevisionError, match="no commits yet"):
        repository.commit("HEAD")
    state = Versioned(repository)
    assert list(state.log()) == []
    assert list(state) == []
    assert state.head.id == ROOT_ID
    assert state.reset(state.head) == state.head
    assert state.checkout("HEAD").copy() == {}


def test_head_without_main_is_the_only_branch():
    repository = Repository(Memory())
    state = Versioned(repository, branch="work")
    state["n"] = 1
    commit = state.commit()
    assert repository.commit("HEAD") == commit
    repository.branches.create("other", commit)
    with pytest.raises(UnknownRevisionError) as caught:
        repository.commit("HEAD")
    assert set(caught.value.near) == {"work", "other"}
