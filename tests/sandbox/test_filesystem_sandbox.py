"""A filesystem sandbox reads and writes files in its folder, and no path, link or race leads out of it."""

from __future__ import annotations

import errno
import gc
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.interrupts import Interrupt, Trace
from tests.support.processes import fork
from tests.support.sandboxes import open_files
from versioned_state.errors import HandleClosedError, InvalidArgumentError, LimitExceededError, SandboxFileError
from versioned_state.sandbox import FilesystemSandbox

OUT = "secret of another folder"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(OUT)
    return tmp_path / "outside"


@pytest.fixture
def sandbox(tmp_path: Path) -> FilesystemSandbox:
    return FilesystemSandbox(tmp_path / "files")


# What it does


def test_files_are_written_and_read(sandbox: FilesystemSandbox):
    sandbox.write_file("notes.txt", "ä\r\nb")
    sandbox.write_file("a/b/data.bin", b"\xff\x00")
    assert sandbox.read_file("notes.txt") == "ä\r\nb"
    assert sandbox.read_bytes("./a//b/data.bin") == b"\xff\x00"
    assert (sandbox.folder / "a" / "b" / "data.bin").read_bytes() == b"\xff\x00"
    with pytest.raises(SandboxFileError, match="is not a text in UTF-8"):
        sandbox.read_file("a/b/data.bin")
    sandbox.write_file("notes.txt", "")
    assert sandbox.read_file("notes.txt") == ""


def test_a_file_that_is_replaced_keeps_its_mode(sandbox: FilesystemSandbox):
    sandbox.write_file("run.sh", "echo 1")
    (sandbox.folder / "run.sh").chmod(0o755)
    sandbox.write_file("run.sh", "echo 2")
    assert (sandbox.folder / "run.sh").stat().st_mode & 0o777 == 0o755


def test_several_files_are_read_as_far_as_they_can_be(sandbox: FilesystemSandbox):
    sandbox.write_file("a", "1")
    found = sandbox.read_multiple_files(["a", "missing", "../a"])
    assert found["a"] == "1"
    assert "No such file" in found["missing"]
    assert "leads out of the folder" in found["../a"]


def test_folders(sandbox: FilesystemSandbox):
    sandbox.create_directory("src/deep")
    sandbox.create_directory("src/deep")
    sandbox.write_file("src/main.py", "x")
    sandbox.write_file("README", "x")
    (sandbox.folder / "link").symlink_to("README")
    assert sandbox.list_directory() == ["README", "link", "src/"]
    assert sandbox.list_directory("src") == ["deep/", "main.py"]
    assert sandbox.directory_tree() == [
        {"name": "README", "type": "file"},
        {"name": "link", "type": "link"},
        {
            "name": "src",
            "type": "directory",
            "children": [{"name": "deep", "type": "directory", "children": []}, {"name": "main.py", "type": "file"}],
        },
    ]
    assert sandbox.list_allowed_directories() == ["."]


def test_files_are_found_by_pattern(sandbox: FilesystemSandbox):
    for path in ["main.py", "src/a.py", "src/a.txt", "src/vendor/b.py"]:
        sandbox.write_file(path, "")
    assert sandbox.search_files(".", "*.py") == ["main.py", "src/a.py", "src/vendor/b.py"]
    assert sandbox.search_files("src", "*.py", ["vendor"]) == ["src/a.py"]
    assert sandbox.search_files(".", "src/*.txt") == ["src/a.txt"]


def test_edits(sandbox: FilesystemSandbox):
    sandbox.write_file("a.py", "one\ntwo\ntwo\n")
    edits = [{"oldText": "two", "newText": "2"}, {"oldText": "one\n", "newText": ""}]
    shown = sandbox.edit_file("a.py", edits, dry_run=True)
    assert "-one" in shown
    assert "+2" in shown
    assert sandbox.read_file("a.py") == "one\ntwo\ntwo\n"
    assert sandbox.edit_file("a.py", edits) == shown
    assert sandbox.read_file("a.py") == "2\ntwo\n"
    for wrong in (
        [{"oldText": "absent", "newText": ""}],
        [{"oldText": "", "newText": "x"}],
        [{"old": "2"}],
        ["2"],
        "2",
    ):
        refused: Any = [{"oldText": "two", "newText": "3"}, *wrong] if isinstance(wrong, list) else wrong
        with pytest.raises(InvalidArgumentError):
            sandbox.edit_file("a.py", refused)
    assert sandbox.read_file("a.py") == "2\ntwo\n"


def test_files_are_moved_and_removed(sandbox: FilesystemSandbox):
    sandbox.write_file("a", "1")
    sandbox.write_file("b", "2")
    sandbox.move_file("a", "deep/er/a")
    assert sandbox.read_file("deep/er/a") == "1"
    with pytest.raises(SandboxFileError, match="there is a b already"):
        sandbox.move_file("deep/er/a", "b")
    with pytest.raises(SandboxFileError, match="missing: No such file"):
        sandbox.move_file("missing", "c")
    with pytest.raises(SandboxFileError):
        sandbox.move_file("deep", "deep/er/below")
    with pytest.raises(SandboxFileError, match="not empty"):
        sandbox.delete_file("deep")
    sandbox.delete_file("deep/er/a")
    sandbox.delete_file("deep/er")
    sandbox.delete_file("deep")
    with pytest.raises(SandboxFileError):
        sandbox.delete_file("deep")
    assert sandbox.list_directory() == ["b"]


def test_information(sandbox: FilesystemSandbox):
    sandbox.write_file("a", "123")
    found = sandbox.get_file_info("a")
    assert (found["type"], found["size"], found["permissions"]) == ("file", 3, "644")
    assert found["modified"].endswith("+00:00")
    assert sandbox.get_file_info(".")["type"] == "directory"


def test_missing_files_are_errors_with_their_path(sandbox: FilesystemSandbox):
    for call in (
        sandbox.read_file,
        sandbox.list_directory,
        sandbox.delete_file,
        sandbox.get_file_info,
        sandbox.directory_tree,
    ):
        with pytest.raises(SandboxFileError) as caught:
            call("no/such")
        assert caught.value.path == "no/such"
        assert caught.value.errno == errno.ENOENT
        assert isinstance(caught.value, OSError)


def test_limits_of_size(tmp_path: Path):
    sandbox = FilesystemSandbox(tmp_path, max_file_bytes=10)
    sandbox.write_file("a", "x" * 10)
    with pytest.raises(LimitExceededError):
        sandbox.write_file("a", "x" * 11)
    with pytest.raises(LimitExceededError):
        sandbox.write_file("b", "ä" * 6)
    (tmp_path / "large").write_bytes(bytes(11))
    with pytest.raises(LimitExceededError):
        sandbox.read_file("large")
    assert sandbox.list_directory() == ["a", "large"]
    assert sandbox.read_file("a") == "x" * 10
    for value in (0, -1, 1.5, "1", True):
        with pytest.raises(InvalidArgumentError):
            FilesystemSandbox(tmp_path, max_file_bytes=value)  # type: ignore[arg-type]


def test_content_that_no_file_can_have_is_refused(sandbox: FilesystemSandbox):
    for content in (None, 1, "\ud800", ["x"]):
        with pytest.raises(InvalidArgumentError):
            sandbox.write_file("a", content)  # type: ignore[arg-type]
    assert sandbox.list_directory() == []


def test_the_end(tmp_path: Path):
    with FilesystemSandbox() as own:
        own.write_file("a", "1")
        folder = own.folder
    assert not folder.parent.exists()
    given = FilesystemSandbox(tmp_path)
    given.write_file("a", "1")
    given.close()
    given.close()
    assert (tmp_path / "a").exists()
    for call in (
        given.list_directory,
        given.list_allowed_directories,
        lambda: given.read_file("a"),
        lambda: given.write_file("b", ""),
    ):
        with pytest.raises(HandleClosedError):
            call()


# No way out

CALLS: dict[str, Callable[[FilesystemSandbox, str], object]] = {
    "read_file": lambda box, path: box.read_file(path),
    "write_file": lambda box, path: box.write_file(path, "overwritten"),
    "edit_file": lambda box, path: box.edit_file(path, [{"oldText": "secret", "newText": "x"}]),
    "delete_file": lambda box, path: box.delete_file(path),
    "move_from": lambda box, path: box.move_file(path, "taken"),
    "move_to": lambda box, path: box.move_file("mine", path),
    "create_directory": lambda box, path: box.create_directory(path),
    "list_directory": lambda box, path: box.list_directory(path),
    "directory_tree": lambda box, path: box.directory_tree(path),
    "search_files": lambda box, path: box.search_files(path, "*"),
    "get_file_info": lambda box, path: box.get_file_info(path),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_path_leads_out(sandbox: FilesystemSandbox, outside: Path, call: Callable[[FilesystemSandbox, str], object]):
    sandbox.write_file("mine", "mine")
    (sandbox.folder / "below").mkdir()
    for path in [
        "../outside/secret.txt",
        "below/../../outside/secret.txt",
        "..",
        "below/..",
        "/etc/passwd",
        str(outside / "secret.txt"),
        "//x",
        *("", "a\0b", "\ud800", ".versioned-state/position", "below/.Versioned-State.tmp", None, 3, b"mine"),
    ]:
        with pytest.raises(InvalidArgumentError):
            call(sandbox, path)  # type: ignore[arg-type]
    assert sandbox.list_directory() == ["below/", "mine"]
    assert [each.name for each in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == OUT


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("path", ["link/secret.txt", "deep/link/secret.txt", "link/new/er", "link"])
def test_no_link_leads_out(
    sandbox: FilesystemSandbox, outside: Path, call: Callable[[FilesystemSandbox, str], object], path: str
):
    sandbox.write_file("mine", "mine")
    (sandbox.folder / "deep").mkdir()
    for link in ("link", "deep/link"):
        (sandbox.folder / link).symlink_to(outside)
    (sandbox.folder / "file").symlink_to(outside / "secret.txt")
    for each in (path, "file"):
        try:
            found = call(sandbox, each)
        except (SandboxFileError, InvalidArgumentError):
            continue
        assert OUT not in str(found)
        assert "secret.txt" not in str(found)
    assert [each.name for each in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == OUT


def test_a_hard_link_to_a_file_outside_is_not_read_and_a_write_replaces_it(sandbox: FilesystemSandbox, outside: Path):
    os.link(outside / "secret.txt", sandbox.folder / "hard")
    with pytest.raises(SandboxFileError, match="another name"):
        sandbox.read_file("hard")
    with pytest.raises(SandboxFileError):
        sandbox.edit_file("hard", [{"oldText": "secret", "newText": "x"}])
    sandbox.write_file("hard", "mine")
    assert (outside / "secret.txt").read_text() == OUT
    assert sandbox.read_file("hard") == "mine"


def test_what_is_not_a_file_is_not_read_and_does_not_block(sandbox: FilesystemSandbox):
    os.mkfifo(sandbox.folder / "pipe")
    with pytest.raises(SandboxFileError, match="is not a file"):
        sandbox.read_file("pipe")
    sandbox.create_directory("folder")
    with pytest.raises(SandboxFileError):
        sandbox.read_file("folder")
    with pytest.raises(SandboxFileError):
        sandbox.write_file("folder", "x")
    sandbox.write_file("pipe", "now a file")
    assert sandbox.read_file("pipe") == "now a file"
    assert sandbox.list_directory() == ["folder/", "pipe"]


def test_the_folder_itself_is_no_link(tmp_path: Path, outside: Path):
    sandbox = FilesystemSandbox(tmp_path / "files")
    sandbox.folder.rmdir()
    sandbox.folder.symlink_to(outside)
    for call in (
        sandbox.list_directory,
        lambda: sandbox.read_file("secret.txt"),
        lambda: sandbox.write_file("new", ""),
    ):
        with pytest.raises(SandboxFileError):
            call()
    assert [each.name for each in outside.iterdir()] == ["secret.txt"]


def test_a_race_of_renames_lets_nobody_out(sandbox: FilesystemSandbox, outside: Path):
    """A program that swaps a folder for a link, again and again, while files are read and written below it."""
    real, link, place = sandbox.folder / "real", sandbox.folder / "link", sandbox.folder / "place"
    real.mkdir()
    (real / "secret.txt").write_text("mine")
    link.symlink_to(outside)

    def swap() -> None:
        for number in count():
            each = (real, link)[number % 2]
            try:
                each.rename(place)
            except OSError:  # the sandbox has made a folder there, for its file
                place.rename(sandbox.folder / f"made-{number}")
                continue
            place.rename(each)

    child = fork(swap)
    wrote = refused = 0
    try:
        until = time.monotonic() + 20
        while (wrote < 30 or refused < 30) and time.monotonic() < until:
            try:
                assert sandbox.read_file("place/secret.txt") == "mine"
                sandbox.write_file("place/secret.txt", "mine")
                wrote += 1
            except SandboxFileError:
                refused += 1
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert wrote >= 30 <= refused
    assert [each.name for each in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == OUT


def test_writers_side_by_side_leave_one_whole_file_and_no_other(sandbox: FilesystemSandbox):
    texts = [letter * 20_000 for letter in "abcd"]
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(sandbox.write_file, "a", text) for text in texts * 10]:
            done.result()
    assert sandbox.read_file("a") in texts
    assert [each.name for each in sandbox.folder.iterdir()] == ["a"]


def test_a_failed_call_leaves_no_file_and_no_descriptor(sandbox: FilesystemSandbox):
    sandbox.write_file("a", "1")
    sandbox.create_directory("folder")
    gc.collect()  # what earlier tests have left
    before = open_files()
    for _ in range(20):
        for call in (
            lambda: sandbox.write_file("a/b", ""),
            lambda: sandbox.write_file("folder", ""),
            lambda: sandbox.read_file("folder"),
            lambda: sandbox.read_file("x/y"),
            lambda: sandbox.list_directory("a"),
        ):
            with pytest.raises(SandboxFileError):
                call()
    assert open_files() <= before  # those of earlier tests may be closed meanwhile
    assert sorted(each.name for each in sandbox.folder.iterdir()) == ["a", "folder"]
    assert list((sandbox.folder / "folder").iterdir()) == []


def test_an_interrupt_on_the_way_closes_no_descriptor_twice(sandbox: FilesystemSandbox):
    """The second time it would be an error in place of the interrupt, or another thread's file."""
    sandbox.write_file("a/b/c", "1")
    trace = Trace()
    trace.run(lambda: sandbox.read_file("a/b/c"))
    for line in range(1, trace.count + 1):
        with suppress(Interrupt):
            Trace(line).run(lambda: sandbox.read_file("a/b/c"))
