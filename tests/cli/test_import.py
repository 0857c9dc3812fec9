"""Import: every shape of file, real conversations read back message for message, and what happens to bad input."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks import data
from tests.support.command_line import Vstate, assert_error
from tests.support.terminal import COMMAND, ROOT
from versioned_state import Disk, Repository
from versioned_state.cli.importing.conversations import summarize
from versioned_state.errors import StoreNotFoundError

HI = {"role": "user", "content": "Hi"}
YES = {"role": "assistant", "content": "Yes?"}
BYE = {"role": "user", "content": "Bye"}


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


@pytest.fixture
def imported(vstate: Vstate, tmp_path: Path) -> Callable[..., dict[str, list[tuple[str, dict[str, Any]]]]]:
    """Import bytes as a file and return what is there then.

    That is, for each branch, the message and state of every commit, oldest first.
    """

    def run(content: bytes, *options: str, name: str = "chat.json") -> dict[str, list[tuple[str, dict[str, Any]]]]:
        (tmp_path / name).write_bytes(content)
        result = vstate("import", name, *options, store=tmp_path / "store")
        assert result.code == 0, result.stderr
        assert result.stdout == ""
        with reopened(tmp_path / "store") as repository:
            return {
                branch: [
                    (commit.message, repository.snapshot(commit).copy())
                    for commit in reversed(list(repository.log(branch)))
                ]
                for branch in repository.branches
            }

    return run


Imported = Callable[..., dict[str, list[tuple[str, dict[str, Any]]]]]


@contextmanager
def reopened(path: Path) -> Iterator[Repository]:
    with Repository(Disk(path, read_only=True), pickle="refuse") as repository:
        yield repository


# Real input


def test_every_message_of_every_round_is_read_back_equal(
    real_conversations: list[list[data.Message]], vstate: Vstate, tmp_path: Path
):
    result = vstate("import", str(data.SAMPLE), store=tmp_path / "store")
    rounds = sum(map(len, real_conversations))
    assert result.code == 0
    assert (
        f"imported {rounds:,} commits onto 40 branches, tau_airline_sample/001 to tau_airline_sample/040"
        in result.stderr
    )

    with reopened(tmp_path / "store") as repository:
        assert list(repository.branches) == [f"tau_airline_sample/{number:03}" for number in range(1, 41)]
        compared = 0
        for branch, source in zip(repository.branches, real_conversations, strict=True):
            commits = list(repository.log(branch, first_parent=True))
            assert len(commits) == len(source)
            for commit in commits:
                assert repository.snapshot(commit)["messages"] == source[: commit.height]
                compared += 1
        assert compared == rounds


def test_the_other_fields_are_in_the_first_commit_and_stay(vstate: Vstate, tmp_path: Path):
    fields = {"task_id": 7, "reward": 0.5, "info": {"task": {"user": "mia", "big": 2**70, "none": None}}}
    (tmp_path / "one.json").write_bytes(json.dumps([{**fields, "traj": [HI, YES]}]).encode())
    vstate("import", "one.json", store=tmp_path / "store")
    with reopened(tmp_path / "store") as repository:
        first, last = repository.snapshot("one/001~1").copy(), repository.snapshot("one/001").copy()
    assert first == {**fields, "messages": [HI]}
    assert last == {**fields, "messages": [HI, YES]}


# Shapes


def one_branch(*messages: dict[str, Any], key: str = "messages", **fields: Any) -> list[dict[str, Any]]:
    """The states of a branch of a commit a message."""
    return [{key: list(messages[:count]), **fields} for count in range(1, len(messages) + 1)]


def states(branch: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [state for _, state in branch]


@pytest.mark.parametrize(
    "content", [json.dumps([HI, YES, BYE]).encode(), json.dumps([HI, YES, BYE], indent=2).encode(), lines(HI, YES, BYE)]
)
def test_a_list_of_messages_is_one_branch(content: bytes, imported: Imported):
    found = imported(content)
    assert list(found) == ["main"]
    assert states(found["main"]) == one_branch(HI, YES, BYE)
    assert [message for message, _ in found["main"]] == ["user: Hi", "assistant: Yes?", "user: Bye"]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps([[HI, YES], [BYE]]).encode(),
        lines([HI, YES], [BYE]),
        b"\n\n" + lines([HI, YES]) + b"\n  \n" + lines([BYE]).rstrip(),
    ],
)
def test_a_list_of_lists_is_a_branch_each(content: bytes, imported: Imported):
    found = imported(content, "--branch-prefix", "talk")
    assert {name[-1]: states(branch) for name, branch in found.items()} == {
        "1": one_branch(HI, YES),
        "2": one_branch(BYE),
    }


@pytest.mark.parametrize("key", ["messages", "traj", "conversations", "turns", "rare"])
@pytest.mark.parametrize("pack", [lambda *items: json.dumps(items).encode(), lines])
def test_a_list_of_objects_is_a_branch_each(key: str, pack: Callable[..., bytes], imported: Imported):
    found = imported(pack({key: [HI, YES], "id": 1}, {"id": 2, key: [BYE]}), name="my talks (1).jsonl")
    assert [name[:13] for name in found] == ["my-talks-(1)/"] * 2
    assert [states(branch) for branch in found.values()] == [one_branch(HI, YES, id=1), one_branch(BYE, id=2)]


def test_an_object_with_messages_is_one_branch(imported: Imported):
    found = imported(json.dumps({"id": 3, "messages": [HI, YES]}).encode(), "--branch", "talk/3")
    assert {name: states(branch) for name, branch in found.items()} == {"talk/3": one_branch(HI, YES, id=3)}


def test_messages_of_other_conventions(imported: Imported):
    human, model = {"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes?"}
    found = imported(json.dumps([{"id": "x", "conversations": [human, model]}]).encode())
    assert states(found["chat/001"]) == one_branch(human, model, id="x")
    assert [message for message, _ in found["chat/001"]] == ["human: Hi", "gpt: Yes?"]


def test_the_key_of_the_messages_is_named(imported: Imported):
    item = {"messages": ["not these"], "said": ["a text", 2, None]}
    found = imported(json.dumps([item]).encode(), "--messages-key", "said", "--key", "talk")
    texts: list[Any] = ["a text", 2, None]
    assert states(found["chat/001"]) == one_branch(*texts, key="talk", messages=["not these"])


def test_a_field_of_the_name_of_the_key_is_kept_under_another(imported: Imported):
    found = imported(json.dumps([{"traj": [HI], "messages": 17}]).encode())
    assert states(found["chat/001"]) == [{"messages": [HI], "messages_field": 17}]


def test_branches_are_named_by_a_field(imported: Imported):
    items = [{"id": name, "messages": [HI]} for name in ("a b", "a b", 3, "../x~y^z:", "ü")]
    assert sorted(imported(lines(*items), "--name-key", "id")) == sorted(
        ["chat/a-b", "chat/a-b-2", "chat/3", "chat/x-y-z", "chat/ü"]
    )


@pytest.mark.parametrize(
    ("prefix", "name"),
    [("talk", "talk/001"), ("talk-", "talk-001"), ("talk_", "talk_001"), ("a/b/", "a/b/001"), ("", "001")],
)
def test_branches_begin_with_a_prefix(prefix: str, name: str, imported: Imported):
    assert list(imported(json.dumps([[HI]]).encode(), "--branch-prefix", prefix)) == [name]


def test_a_conversation_without_messages_is_a_commit(imported: Imported):
    found = imported(json.dumps([{"id": 1, "messages": []}, {"id": 2, "messages": [HI]}]).encode())
    assert states(found["chat/001"]) == [{"id": 1, "messages": []}]


def test_each_item_is_a_whole_state(imported: Imported):
    items = [{"a": 1, "b": [1]}, {"b": [1, 2]}, {"b": [1, 2]}, {}, 17]
    for content in (json.dumps(items).encode(), lines(*items)):
        found = imported(content, "--per-item", "--branch", f"b{len(content)}")
        branch = found[f"b{len(content)}"]
        assert states(branch) == [{"a": 1, "b": [1]}, {"b": [1, 2]}, {"b": [1, 2]}, {}, {"value": 17}]
        assert [message for message, _ in branch] == [f"item {number}" for number in range(5)]


def test_each_item_is_a_value_under_a_key(imported: Imported):
    assert states(imported(b'[{"a": 1}, 2, [3]]', "--per-item", "--key", "x")["main"]) == [
        {"x": {"a": 1}},
        {"x": 2},
        {"x": [3]},
    ]


def test_the_author_is_named(vstate: Vstate, tmp_path: Path):
    vstate("import", "-", "--author", "Ana", store=tmp_path / "s", stdin=lines(HI, YES))
    with reopened(tmp_path / "s") as repository:
        assert {commit.author for commit in repository.log()} == {"Ana"}


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, bytes])
@pytest.mark.parametrize("content", [json.dumps([HI, YES, BYE]).encode(), lines(HI, YES, BYE)], ids=["json", "jsonl"])
def test_compressed_files_are_read_as_they_are(
    compress: Callable[[bytes], bytes], content: bytes, vstate: Vstate, imported: Imported, tmp_path: Path
):
    assert states(imported(compress(content))["main"]) == one_branch(HI, YES, BYE)
    assert vstate("import", "-", store=tmp_path / "piped", stdin=compress(content)).code == 0
    with reopened(tmp_path / "piped") as repository:
        assert repository.snapshot("main").copy() == {"messages": [HI, YES, BYE]}


def test_texts_that_are_hard_to_keep(imported: Imported):
    messages = [{"role": "user", "content": text} for text in ("\ud800", "\0\x1b[2J", "ü" * 100_000, "", "\n" * 50)]
    assert states(imported(b"\xef\xbb\xbf" + lines(*messages))["main"]) == one_branch(*messages)


@pytest.mark.parametrize(
    ("message", "summary"),
    [
        (HI, "user: Hi"),
        ({"role": "assistant", "content": "a\n  b\t" * 50}, "assistant: " + "a b " * 14 + "a b…"),
        (
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "book"}}, {"name": "pay"}]},
            "assistant: calls book, pay",
        ),
        (
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}],
            },
            "assistant: one two",
        ),
        ({"role": "assistant", "content": None, "function_call": {"name": "book"}}, "assistant: calls book"),
        ({"role": "tool", "name": "book", "content": "{}"}, "tool book: {}"),
        ({"role": "user"}, "user: (no text)"),
        ({"role": "user", "tool_calls": [None, 3, {"function": 4}]}, "user: (no text)"),
        ({"content": "who?"}, "message: who?"),
        ("just a text", "just a text"),
        (None, "None"),
    ],
)
def test_a_commit_says_who_and_how_it_begins(message: Any, summary: str):
    assert summarize(message) == summary


# Branches that exist


def test_a_branch_that_exists_is_refused_before_anything_is_written(vstate: Vstate, tmp_path: Path):
    (tmp_path / "chat.json").write_bytes(json.dumps([[HI], [YES]]).encode())
    (tmp_path / "more.json").write_bytes(json.dumps([[HI], [BYE], [BYE]]).encode())
    store = tmp_path / "store"
    assert vstate("import", "chat.json", store=store).code == 0
    before = vstate("log", "--all", store=store).stdout
    result = vstate("import", "more.json", "--branch-prefix", "chat", store=store)
    assert result.stderr.splitlines() == [
        "nothing was imported",
        "error: branch 'chat/002' exists already; it was not changed",
        (
            "hint: it is not the beginning of this conversation; --append adds to it; "
            "--branch or --branch-prefix names another"
        ),
    ]
    assert result.code == 1
    assert vstate("log", "--all", store=store).stdout == before


def test_an_import_that_was_interrupted_goes_on(vstate: Vstate, tmp_path: Path):
    store, file = tmp_path / "store", tmp_path / "chat.jsonl"
    file.write_bytes(lines(HI, YES) + b"{broken\n")
    assert vstate("import", "chat.jsonl", store=store).code == 1
    file.write_bytes(lines(HI, YES, HI, BYE))
    result = vstate("import", "chat.jsonl", store=store)
    assert (result.code, result.stderr.partition(", in")[0]) == (0, "imported 2 commits onto main")
    assert "(2 were there already)" in result.stderr
    assert vstate("import", "chat.jsonl", store=store).stderr.startswith("imported 0 commits onto main")
    with reopened(store) as repository:
        assert repository.snapshot("main").copy() == {"messages": [HI, YES, HI, BYE]}
        assert repository.commit("main").height == 4


def test_several_conversations_go_on_each_where_it_was(vstate: Vstate, tmp_path: Path):
    store, file = tmp_path / "store", tmp_path / "chat.json"
    first = {"id": 1, "messages": [HI]}, {"id": 2, "messages": []}, {"id": 3, "messages": [HI, YES]}
    then = {"id": 1, "messages": [HI, YES]}, *first[1:], {"id": 4, "messages": [BYE]}
    for conversations in (first, then):
        file.write_bytes(json.dumps(conversations).encode())
        assert vstate("import", "chat.json", store=store).code == 0
    with reopened(store) as repository:
        found = [repository.snapshot(f"chat/{number:03}").copy() for number in range(1, 5)]
        assert [repository.commit(f"chat/{number:03}").height for number in range(1, 5)] == [2, 1, 2, 1]
    assert found == list(then)


@pytest.mark.parametrize(
    "there",
    [
        b'{"id": 1, "messages": [1]}',
        b'{"id": true, "messages": [0]}',
        b'{"messages": [0]}',
        b'{"id": 1, "messages": [0, 2, 3]}',
        b'{"id": 1}',
        b'{"id": 1, "messages": []}',
        b'{"id": 1, "messages": [0], "more": 2}',
    ],
)
def test_what_is_no_beginning_is_not_gone_on_with(there: bytes, vstate: Vstate, tmp_path: Path):
    store = tmp_path / "store"
    assert vstate("import", "-", "--per-item", store=store, stdin=there).code == 0
    before = vstate("log", store=store).stdout
    result = vstate("import", "-", "--messages-key", "messages", store=store, stdin=b'{"id": 1, "messages": [0, 2]}')
    assert result.code == 1
    assert "branch 'main' exists already; it was not changed" in result.stderr
    assert vstate("log", store=store).stdout == before


def test_append_goes_on(vstate: Vstate, tmp_path: Path):
    store = tmp_path / "store"
    assert vstate("import", "-", "--append", store=store, stdin=lines(HI, YES)).code == 0
    assert vstate("import", "-", "--append", store=store, stdin=lines(BYE, HI)).code == 0
    with reopened(store) as repository:
        assert repository.snapshot("main").copy() == {"messages": [HI, YES, BYE, HI]}
        assert repository.commit("main").height == 4


def test_append_wants_a_list(vstate: Vstate, tmp_path: Path):
    store = tmp_path / "store"
    vstate("import", "-", "--per-item", store=store, stdin=b'[{"messages": {}}]')
    result = vstate("import", "-", "--append", store=store, stdin=lines(HI, YES))
    assert "the key 'messages' of branch 'main' holds a dict, not a list" in result.stderr
    assert result.code == 1


# Bad input


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["is empty"]),
        (b"\n \n", ["is empty"]),
        (b"[]", ["holds no items"]),
        (b"{}", ["not a conversation", "an empty object"]),
        (b"17", ["not a conversation", "17"]),
        (b"null", ["not a conversation", "null"]),
        (b'"text"', ["not a conversation", "a text"]),
        (b"[1, 2]", ["item 0 is not a conversation", "--per-item"]),
        (b'[{"a": 1, "b": 2}]', ["item 0", "an object with the keys a, b", "--messages-key"]),
        (b'[[{"role": "user"}], 5]', ["item 1 is not a conversation"]),
        (b'[{"role": "user"}, 5]', ["item 1 is not a message"]),
        (b"[1,\n2,\n", ["line 3", "not JSON"]),
        (b'{"a": 1\n', ["line 2", "column 1", "not JSON"]),
        (b"\n\n{bad}\n", ["line 3", "column 2", "not JSON"]),
        (b"hello", ["line 1", "not JSON"]),
        (b"\x80\x81", ["line 1", "not JSON"]),
        (b"[" * 100_000, ["line 1", "not JSON"]),
        (b"[" + b"1" * 10_000 + b"]", ["line 1", "not JSON"]),
        (gzip.compress(b"[1, 2, 3]" * 1000, mtime=0)[:-20], ["damaged, or was cut short"]),
        (lzma.compress(b"[1, 2, 3]" * 1000)[:-20], ["damaged, or was cut short"]),
        (bz2.compress(b"[1, 2, 3]" * 1000)[:-20], ["damaged, or was cut short"]),
        (gzip.compress(b"[]", mtime=0)[:5] + b"?" * 30, ["damaged, or was cut short"]),
        (bz2.compress(b"[]")[:5] + b"?" * 30, ["damaged, or was cut short"]),
        (lzma.compress(b"[]")[:9] + b"?" * 30, ["damaged, or was cut short"]),
    ],
    ids=lambda value: repr(value[:12]) if isinstance(value, bytes) else "",
)
def test_a_file_that_is_none_leaves_no_store(content: bytes, words: list[str], vstate: Vstate, tmp_path: Path):
    (tmp_path / "bad.json").write_bytes(content)
    assert_error(vstate("import", "bad.json", store=tmp_path / "store"), *words)
    assert not (tmp_path / "store").exists()


def test_a_file_that_is_not_there(vstate: Vstate, tmp_path: Path):
    result = vstate("import", "none.json", store=tmp_path / "store")
    assert result.stderr == "error: none.json: No such file or directory\n"
    assert result.code == 1
    assert_error(vstate("import", ".", store=tmp_path / "store"), "Is a directory")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "word"),
    [(["--messages-key", "x"], "a list under 'x'"), (["--name-key", "x"], "text or number under 'x'")],
)
def test_a_field_that_is_not_there(options: list[str], word: str, vstate: Vstate, tmp_path: Path):
    content = json.dumps([{"messages": [HI]}]).encode()
    assert_error(vstate("import", "-", *options, store=tmp_path / "store", stdin=content), word)
    assert not (tmp_path / "store").exists()


def test_a_bad_name_of_a_branch(vstate: Vstate, tmp_path: Path):
    result = vstate("import", "-", "--branch", "a..b", store=tmp_path / "store", stdin=lines(HI, YES))
    assert "bad name for a branch: 'a..b'" in result.stderr
    assert result.code == 1


def test_a_folder_of_other_files_is_not_made_a_store(vstate: Vstate, tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").touch()
    assert_error(
        vstate("import", "-", store=tmp_path / "folder", stdin=lines(HI, YES)),
        "holds other files",
        "a directory of its own",
    )
    assert [file.name for file in (tmp_path / "folder").iterdir()] == ["mine"]


def test_an_error_in_the_middle_says_how_far_it_came(vstate: Vstate, tmp_path: Path):
    content = lines([HI, YES], [BYE]) + b"{oops\n"
    result = vstate("import", "-", "--branch-prefix", "c", store=tmp_path / "store", stdin=content)
    assert result.stderr.splitlines()[:2] == [
        "imported so far, and kept: 3 commits on 2 branches",
        "error: standard input, line 3, column 2: not JSON: Expecting property name enclosed in double quotes",
    ]
    result = vstate("import", "-", "--branch", "long", store=tmp_path / "store", stdin=lines(HI, YES) + b"17\n")
    assert result.stderr.splitlines()[:2] == [
        "imported so far, and kept: 2 commits on 1 branch; long is not complete",
        "error: standard input: line 3 is not a message as those before it, but 17",
    ]
    with reopened(tmp_path / "store") as repository:
        assert repository.snapshot("long")["messages"] == [HI, YES]


def test_a_store_that_is_full_says_how_far_it_came(vstate: Vstate, tmp_path: Path):
    Disk(tmp_path / "store", size_limit=256 * 1024).close()
    messages = [{"role": "user", "content": f"{number}" + "x" * number} for number in range(5_000)]
    result = vstate("import", "-", store=tmp_path / "store", stdin=lines(*messages))
    far, error, hint = result.stderr.splitlines()
    assert far.startswith("imported so far, and kept: ")
    assert "size limit" in error
    assert hint.startswith("hint: ")
    with reopened(tmp_path / "store") as repository:
        height = repository.commit("main").height
        assert repository.snapshot("main")["messages"] == messages[:height]
    assert f"{height:,} commits" in far


# Where it goes


def test_without_a_store_it_goes_here(vstate: Vstate, tmp_path: Path):
    result = vstate("import", "-", stdin=lines(HI, YES))
    assert result.stderr.startswith("imported 2 commits onto main, in ")
    assert result.stderr.endswith("see: vstate log main\n")
    assert [file.name for file in tmp_path.iterdir()] == [".vstate"]
    assert vstate("get", "messages[0].content").stdout == "Hi\n"


def test_ctrl_c_keeps_what_is_imported_and_says_so(tmp_path: Path):
    file = tmp_path / "endless.jsonl"
    file.write_bytes(lines(*[[{"role": "user", "content": f"{n}.{m}"} for m in range(10)] for n in range(20_000)]))
    command = [*COMMAND, "--store", str(tmp_path / "store"), "import", str(file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while process.poll() is None and not has_begun(tmp_path / "store"):
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, stderr
    assert stdout == ""
    told, error = [line for line in stderr.splitlines() if line]
    assert error == "error: interrupted"
    assert (
        told
        == "imported so far, and kept: {:,} commits on {:,} branches".format(*counts_in(tmp_path / "store"))
        + told.partition("es")[2]
    )


def has_begun(store: Path) -> bool:
    """Whether an import has made a few branches.

    It lists no more of them: the import might make them as fast as they are listed.
    """
    try:
        with reopened(store) as repository:
            return len(list(islice(repository.branches, 5))) == 5
    except StoreNotFoundError:
        return False


def counts_in(store: Path) -> tuple[int, int]:
    with reopened(store) as repository:
        heads = list(repository.branches.values())
        for head in heads:
            number = int(repository.snapshot(head)["messages"][-1]["content"].partition(".")[2])
            assert head.height == number + 1
        return sum(head.height for head in heads), len(heads)


@pytest.mark.parametrize("fields", [{"b": 2, "a": 1}, {"z": {"y": 1, "x": 2}, "m": [], "a": None}])
def test_an_import_goes_on_whatever_the_order_of_the_fields(fields: dict[str, Any], vstate: Vstate, tmp_path: Path):
    (tmp_path / "chat.json").write_text(json.dumps({**fields, "messages": [HI, YES]}))
    assert vstate("import", "chat.json", store=tmp_path / "store").code == 0
    (tmp_path / "chat.json").write_text(json.dumps({"messages": [HI, YES, BYE], **fields}))
    again = vstate("import", "chat.json", store=tmp_path / "store")
    assert (again.code, again.stderr.partition(", in")[0]) == (0, "imported 1 commit onto main")
    # A field of another value, or in another order within, is another conversation.
    for changed in (
        {**fields, "a": 3},
        {key: value for key, value in fields.items() if key != "a"},
        {**fields, "new": 1},
    ):
        (tmp_path / "chat.json").write_text(json.dumps({**changed, "messages": [HI, YES, BYE]}))
        result = vstate("import", "chat.json", store=tmp_path / "store")
        assert result.code == 1
        assert "exists already" in result.stderr


def test_no_field_is_lost_to_the_name_of_another(imported: Imported):
    fields = {"messages": 1, "messages_field": 2, "messages_field_field": 3}
    content = json.dumps({**fields, "history": [HI]}).encode()
    for _ in range(2):  # the second time everything is there
        state = imported(content, "--messages-key", "history")["main"][-1][1]
        assert state == {
            "messages": [HI],
            "messages_field": 2,
            "messages_field_field": 3,
            "messages_field_field_field": 1,
        }
