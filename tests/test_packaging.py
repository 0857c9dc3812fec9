"""What the checkout and the built archives hold: one import name, and links at the root that say where they lead."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINKS = ["storage", "cli"]


@pytest.mark.parametrize("name", LINKS)
def test_the_root_shows_a_relative_link_to_the_folder_in_the_package(name: str):
    assert str((ROOT / name).readlink()) == f"versioned_state/{name}"
    assert (ROOT / name / "__init__.py").is_file()


@pytest.mark.parametrize("name", LINKS)
def test_importing_a_link_says_what_to_import(name: str):
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "ImportError" in done.stderr
    assert f"versioned_state.{name}" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", LINKS)
def test_tools_skip_the_link_and_not_the_folder(name: str):
    command = [sys.executable, "-m", "ruff", "check", "--show-files", "--no-cache", name, "versioned_state"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert str(ROOT / "versioned_state" / name / "__init__.py") in files
    assert str(ROOT / name / "__init__.py") not in files


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    return folder


def test_the_wheel_holds_the_package_and_nothing_else(dist: Path):
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"versioned_state"}
    source = {str(path.relative_to(ROOT)) for path in (ROOT / "versioned_state").rglob("*.py")}
    page = ROOT / "versioned_state" / "server" / "page"
    files = {str(path.relative_to(ROOT)) for folder in ("templates", "static") for path in (page / folder).iterdir()}
    assert len(files) > 5
    files.add("versioned_state/repository/shown/components.css")
    assert source | files | {"versioned_state/py.typed"} <= set(names)


def test_the_page_adds_at_most_200_kilobytes_to_the_wheel(dist: Path):
    (wheel,) = dist.glob("*.whl")
    held = zipfile.ZipFile(wheel).infolist()
    page = [
        each
        for each in held
        if each.filename.startswith(("versioned_state/server/page/", "versioned_state/repository/shown/"))
    ]
    assert 40_000 < sum(each.compress_size for each in page) < 200_000


def test_the_package_is_pure_and_does_not_ask_for_its_accelerator(dist: Path):
    (wheel,) = dist.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        wanted = [line for line in archive.read(metadata).decode().splitlines() if "versioned-state-fast" in line]
    assert wanted == ["Requires-Dist: versioned-state-fast<0.2,>=0.1; extra == 'fast'"]
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "accelerator/" in name or name.endswith(".c")]


def test_the_sdist_holds_no_link_and_no_second_copy(dist: Path):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {member.name.split("/")[1] for member in archive.getmembers() if member.isfile()}
        assert not any(member.issym() for member in archive.getmembers())
    documents = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "PKG-INFO", ".gitignore"}
    assert {"versioned_state", "pyproject.toml", "LICENSE"} <= tops <= {"versioned_state"} | documents
