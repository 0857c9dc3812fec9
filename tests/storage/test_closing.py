"""The values and files that a closing store releases, also if it is forgotten and closed amid something else."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from weakref import ref

import pytest

from tests.support.processes import run
from versioned_state.storage import Disk, DiskCache

Kind = type[Disk | DiskCache]

pytestmark = [pytest.mark.parametrize("kind", [Disk, DiskCache]), pytest.mark.usefixtures("without_collector")]


@pytest.fixture
def while_connecting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """A call within ``sqlite3.connect``: Python code makes its cache of statements, and the collector may run there."""
    original = functools.update_wrapper

    def begin(call: Callable[[], object]) -> None:
        def update_wrapper(*args: object) -> object:
            call()
            return original(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(functools, "update_wrapper", update_wrapper)

    return begin


def test_a_close_keeps_no_value_of_its_callers(kind: Kind, tmp_path: Path) -> None:
    class Value:
        pass

    def call() -> ref[Value]:
        value = Value()
        store = kind(tmp_path)
        store.set("k", b"1")
        store.close()
        return ref(value)

    assert call()() is None


def test_a_forgotten_store_closes_while_another_is_opened(
    kind: Kind, tmp_path: Path, while_connecting: Callable[[Callable[[], object]], None]
) -> None:
    forgotten = [kind(tmp_path / str(number)) for number in range(6)]
    while_connecting(lambda: forgotten and forgotten.pop().path)
    with kind(tmp_path / "new") as store:
        store.set("k", b"1")
    assert len(forgotten) < 6
    assert len([*(tmp_path / "new").iterdir()]) == 1, "it is closed: the log is gone"


READ = """
    import sys
    from versioned_state import storage
    with getattr(storage, sys.argv[1])(sys.argv[2]) as store:
        print(store.get("k"))
"""


def test_a_store_is_made_and_opened_though_the_statements_of_its_maker_live_on(
    kind: Kind, tmp_path: Path, while_connecting: Callable[[Callable[[], object]], None]
) -> None:
    """As after a finalizer, anybody's, that kept its own frame, and with it those of its callers."""

    def keep() -> None:
        frame = sys._getframe()
        frame.f_trace_lines = True

    while_connecting(keep)
    with kind(tmp_path) as store:
        store.set("k", b"1")
        assert run(READ, kind.__name__, tmp_path).stdout == "b'1'\n"
    gc.collect()
