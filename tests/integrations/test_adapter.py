"""``Adapter`` and ``FRAMEWORKS``: what all adapters of frameworks have in common."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError, PickleRefusedError, StoreClosedError
from versioned_state.integrations import FRAMEWORKS, Framework, frameworks
from versioned_state.integrations.adapter import Adapter


def test_a_store_that_was_handed_in_stays_open():
    store = Memory()
    with Adapter(store) as adapter:
        assert adapter.repository.store is store
    assert list(store.keys())


def test_a_repository_is_used_as_it_is_and_stays_open():
    repository = Repository(Memory())
    with Adapter(repository, classes=("json",)) as adapter:
        assert adapter.repository is repository
    assert list(repository.branches) == []


@pytest.mark.parametrize("place", [str, Path, "disk:{}".format], ids=["text", "path", "url"])
def test_the_store_of_a_url_is_closed_with_the_adapter(tmp_path: Path, place: Any):
    adapter = Adapter(place(tmp_path / "store"))
    Versioned(adapter.repository).commit(allow_empty=True)
    adapter.close()
    adapter.close()
    with pytest.raises(StoreClosedError):
        list(adapter.repository.branches)
    with Disk(tmp_path / "store") as store:
        assert list(Repository(store).branches) == ["main"]


def test_it_is_closed_after_an_exception_too(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), Adapter(tmp_path / "store") as adapter:
        raise ZeroDivisionError
    with pytest.raises(StoreClosedError):
        list(adapter.repository.branches)


@pytest.mark.parametrize("place", [None, 3, b"store", object()])
def test_another_place_is_refused(place: Any):
    with pytest.raises(InvalidArgumentError, match="neither a store nor a repository"):
        Adapter(place)


def test_a_store_that_cannot_be_used_is_closed_again(tmp_path: Path):
    with pytest.raises(InvalidArgumentError):
        Adapter(tmp_path / "store", classes=3)  # type: ignore[arg-type]
    assert not list(tmp_path.rglob("*-wal"))  # the last connection folds the log in when it is closed


def test_nothing_is_pickled_even_where_only_this_user_writes(tmp_path: Path):
    with Adapter(tmp_path / "store") as adapter:
        state = Versioned(adapter.repository)
        state["code"] = lambda: None
        with pytest.raises(PickleRefusedError):
            state.commit()
        state.discard()


# Frameworks


def _only(monkeypatch: pytest.MonkeyPatch, *found: Framework) -> None:
    monkeypatch.setattr(frameworks, "FRAMEWORKS", found)


def test_an_installed_version_in_the_range_says_nothing(monkeypatch: pytest.MonkeyPatch):
    _only(monkeypatch, Framework("some", "pytest", "1", "999", "some"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frameworks.check_version("some")


@pytest.mark.parametrize(("oldest", "below"), [("998", "999"), ("1", "2")], ids=["too old", "too new"])
def test_an_installed_version_out_of_the_range_warns(monkeypatch: pytest.MonkeyPatch, oldest: str, below: str):
    framework = Framework("some", "pytest", oldest, below, "some")
    _only(monkeypatch, framework)
    assert framework.installed == pytest.__version__
    assert not framework.tested
    with pytest.warns(
        UserWarning, match=f"some was tested with pytest {oldest} to below {below}, and {pytest.__version__}"
    ):
        frameworks.check_version("some")


def test_the_end_of_the_range_is_not_in_it(monkeypatch: pytest.MonkeyPatch):
    assert Framework("some", "pytest", pytest.__version__, "999", "some").tested
    assert not Framework("some", "pytest", "1", pytest.__version__, "some").tested


def test_versions_are_compared_by_their_numbers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(frameworks, "version", lambda _: "1.10.0rc1")
    assert Framework("some", "some", "1.9", "1.11", "some").tested
    assert not Framework("some", "some", "1.9", "1.10", "some").tested


def test_what_is_not_installed_has_no_version_and_does_not_warn(monkeypatch: pytest.MonkeyPatch):
    framework = Framework("some", "no-such-distribution-of-anybody", "1", "2", "some")
    _only(monkeypatch, framework)
    assert framework.installed is None
    assert not framework.tested
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frameworks.check_version("some")


def test_each_framework_has_a_module_and_an_extra():
    root = Path(frameworks.__file__).parent
    project = (root.parents[1] / "pyproject.toml").read_text()
    for framework in FRAMEWORKS:
        assert (root / f"{framework.module}.py").exists() or (root / framework.module / "__init__.py").exists()
        assert f"\n{framework.extra} = [" in project
