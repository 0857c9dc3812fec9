"""``--html FILE``: one file of the same views, which needs no server, asks for nothing, and runs nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.page import HOSTILE, make_store
from versioned_state import Repository, Versioned
from versioned_state.server.page.file import file_of

pytestmark = pytest.mark.every_case


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return make_store(tmp_path / "store")


def test_hostile_texts_stay_text_and_nothing_is_asked_for(repository):
    content = file_of(repository, repository.log("hostile"), title=HOSTILE[0], store="<b>", with_state=True).decode()
    tags = set(re.findall(r"<(/?[a-zA-Z][\w-]*)", content))
    assert not {
        tag for tag in tags if tag.lstrip("/") in ("script", "img", "iframe", "base", "link", "form", "object", "b>")
    }
    assert set(re.findall(r'(?:href|src)="([^"#]*)', content)) <= {""}, "its links lead within it"
    assert not re.search(r"<[^>]* on\w+=", content)
    assert "&lt;script&gt;" in content
    assert "\u202e" not in content
    assert "default-src &#39;none&#39;" in content or "default-src 'none'" in content


def test_the_list_leads_to_each_commit_and_says_if_there_are_more(repository):
    content = file_of(repository, repository.log("main"), title="main", limit=2).decode()
    first, second = repository.log("main", limit=2)
    for commit in (first, second):
        assert f'href="#c-{commit.short}"' in content
        assert f'<article id="c-{commit.short}"' in content
        assert commit.id in content
    assert "There are older commits" in content
    assert "There are no such commits" in file_of(repository, [], title="main").decode()


def test_a_large_history_is_a_file_of_some_megabytes():
    repository = Repository()
    state = Versioned(repository)
    for number in range(30):
        state["text"] = f"{number} " + "é\u202e<&" * 100_000
        state.commit(f"{number}" * 1000)
    content = file_of(repository, repository.log(), title="main")
    assert len(content) < 12_000_000
