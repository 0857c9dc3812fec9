"""Tools name the type of sandbox that they need, factories make sandboxes of any type, and neither needs the engine."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.processes import run
from versioned_state.errors import InvalidArgumentError
from versioned_state.sandbox import BaseSandbox, FilesystemSandbox, SandboxType, register, unregister
from versioned_state.sandbox.registry import OPTIONS, check_type, is_local, make
from versioned_state.sandbox.tools import SandboxTool
from versioned_state.sandbox.tools.base import run_ipython_cell
from versioned_state.sandbox.tools.browser import browser_navigate
from versioned_state.sandbox.tools.filesystem import read_file, write_file


def options(folder: Path) -> dict[str, Any]:
    known = {"folder": folder, "timeout": 5.0, "max_memory": 1 << 30, "max_file_bytes": 1 << 20}
    known |= {"max_total_memory": 1 << 31, "max_folder_bytes": 1 << 30}
    return dict.fromkeys(OPTIONS) | known


@pytest.fixture
def registered() -> Iterator[list[str]]:
    names: list[str] = []
    yield names
    for name in names:
        unregister(name)


@pytest.mark.parametrize("module", ["base", "filesystem", "browser", "gui", "mobile"])
def test_every_tool_has_a_name_a_type_and_a_description(module: str):
    tools = import_module(f"versioned_state.sandbox.tools.{module}")
    assert tools.__all__ == sorted(name for name, value in vars(tools).items() if isinstance(value, SandboxTool))
    for name in tools.__all__:
        tool = getattr(tools, name)
        assert (tool.name, tool.__name__, tool.sandbox_type) == (name, name, SandboxType(module))
        assert tool.__doc__.endswith(".")


@pytest.mark.parametrize("sandbox", [BaseSandbox, FilesystemSandbox])
def test_the_tools_of_local_sandboxes_are_their_methods(sandbox: type[BaseSandbox | FilesystemSandbox]):
    tools = import_module(f"versioned_state.sandbox.tools.{sandbox.sandbox_type}")
    assert sorted(sandbox.tools) == tools.__all__
    assert all(callable(getattr(sandbox, name)) for name in sandbox.tools)


def test_a_tool_is_called_with_a_sandbox_or_those_of_a_session(tmp_path: Path):
    with BaseSandbox(tmp_path) as base, FilesystemSandbox(tmp_path) as files:
        write_file(files, "a.txt", "1")
        write_file([base, files], path="b.txt", content="2")
        assert read_file.bind(files)("b.txt") == "2"
        assert run_ipython_cell([files, base], "open('a.txt').read()") == "'1'"
        for wrong in (base, [base], [], None, 3):
            with pytest.raises(InvalidArgumentError, match="needs a sandbox of type 'filesystem'"):
                read_file(wrong, "a.txt")


def test_a_tool_goes_through_call_tool_if_the_sandbox_has_no_such_method():
    calls: list[tuple[str, dict[str, Any]]] = []
    remote = SimpleNamespace(sandbox_type="browser", call_tool=lambda name, arguments: calls.append((name, arguments)))
    browser_navigate(remote, url="https://example.org")
    assert calls == [("browser_navigate", {"url": "https://example.org"})]


# Factories


def test_a_factory_gets_what_it_names(tmp_path: Path, registered: list[str]):
    register("box", lambda folder, timeout: (folder, timeout))
    registered.append("box")
    assert make("box", options(tmp_path)) == (tmp_path, 5.0)
    register("box", lambda **everything: everything)
    assert make("box", options(tmp_path)) == options(tmp_path)
    register("box", lambda other=1: other)
    assert make("box", options(tmp_path)) == 1


def test_local_types_are_made_by_the_library_until_another_factory_is_registered(tmp_path: Path):
    base, files = make("base", options(tmp_path)), make("filesystem", options(tmp_path))
    assert (type(base), type(files)) == (BaseSandbox, FilesystemSandbox)
    assert base.folder == files.folder == tmp_path
    base.close()
    assert is_local("base")
    register(SandboxType.BASE, lambda: "a container")
    try:
        assert make("base", options(tmp_path)) == "a container"
        assert not is_local("base")
    finally:
        unregister("base")
    assert is_local("base")


@pytest.mark.parametrize("factory", [None, 3, lambda name: name, lambda folder, /: folder, lambda *, image: image])
def test_a_factory_that_cannot_be_called_is_refused(factory: Any):
    with pytest.raises(InvalidArgumentError):
        register("box", factory)
    with pytest.raises(InvalidArgumentError):
        check_type("box")


def test_a_known_type_without_a_factory_says_how_to_register_one(registered: list[str]):
    for name in SandboxType:
        if name not in ("base", "filesystem"):
            with pytest.raises(
                InvalidArgumentError, match=f"no factory is registered for sandboxes of type '{name}'"
            ) as caught:
                check_type(name)
            assert f"register({str(name)!r}, factory)" in caught.value.hint
    register("browser", object)
    registered.append("browser")
    assert check_type("browser") == "browser"


class Foreign(Enum):
    BASE = "base"


def test_a_type_is_a_string_or_a_member_of_an_enum():
    assert check_type(Foreign.BASE) == check_type(SandboxType.BASE) == check_type("base") == "base"
    with pytest.raises(ValueError, match="there is no type of sandbox 'bsae'"):
        check_type("bsae")
    for wrong in (None, 3, "", b"base"):
        with pytest.raises(InvalidArgumentError):
            check_type(wrong)
    with pytest.raises(InvalidArgumentError, match="no factory is registered"):
        unregister("base")


def test_sandboxes_do_not_import_the_engine():
    program = (
        "import sys, versioned_state.sandbox.local.supervisor, versioned_state.sandbox as s, "
        "versioned_state.sandbox.tools.browser\n"
        "s.BaseSandbox, s.FilesystemSandbox, s.register\n"
        "print(sorted(n.split('.')[1] for n in sys.modules if n.count('.') == 1 and n.startswith('versioned_state.')))"
    )
    assert run(program).stdout.strip() == "['arguments', 'errors', 'lazy', 'sandbox']"
