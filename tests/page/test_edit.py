"""``--edit``: what is shown is what happens, only where the viewer saw the branch, and only with an author.

Without ``--edit``, nothing happens.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from tests.support.page import HOSTILE, Links, Site
from versioned_state import Disk, Versioned
from versioned_state.server.page.views.edit import VERBS


@pytest.fixture
def state(tmp_path: Path) -> Versioned:
    state = Versioned(Disk(tmp_path / "store"), author="agent")
    for number in range(3):
        state["n"] = number
        state[f"k{number}"] = number
        state.commit(f"n {number}")
    return state


@pytest.fixture
def site(state: Versioned) -> Site:
    return Site(state.repository, edit=True, author="me").sign_in()


def test_restore_shows_the_change_and_then_makes_it(state: Versioned, site: Site):
    at, head = state.repository.commit("main~2"), state.head
    path = f"/edit/restore/main?path=n&at={at.id}"
    shown = site.json(path)
    assert [(change["path"], change["kind"]) for change in shown["diff"]["changes"]] == [("n", "changed")]
    assert state.repository.branches["main"] == head
    answer = site.post(
        "/edit/restore/main", {"path": "n", "at": at.id, "message": "as it was", "author": "me", "head": head.id}
    )
    made = state.repository.branches["main"]
    assert answer.headers["location"] == f"/c/{made.id}?on=main"
    assert (made.message, made.author, made.parents) == ("as it was", "me", (head.id,))
    assert state.repository.snapshot("main")["n"] == 0


def test_a_branch_that_moved_since_is_refused(state: Versioned, site: Site):
    seen = state.head.id
    state["n"] = 99
    moved = state.commit()
    fields = {"path": "n", "at": seen, "message": "m", "author": "me", "head": seen}
    for verb in ("restore", "undo"):
        answer = site.post(f"/edit/{verb}/main", fields, status=409)
        assert "Somebody was faster" in answer.text
    assert state.repository.branches["main"] == moved


def test_undo_moves_back_by_one(state: Versioned, site: Site):
    head = state.head
    assert [change["path"] for change in site.json("/edit/undo/main")["diff"]["changes"]] == ["k2", "n"]
    assert state.repository.branches["main"] == head
    site.post("/edit/undo/main", {"author": "me", "head": head.id})
    assert state.repository.branches["main"].message == "n 1"
    assert next(iter(state.repository.reflog("main"))).action == "undo 1"


def test_where_there_is_nothing_to_undo_that_is_said(tmp_path: Path):
    state = Versioned(Disk(tmp_path / "new"))
    head = state.commit("only", allow_empty=True)
    site = Site(state.repository, edit=True, author="me").sign_in()
    assert "there is nothing to undo" in site.get("/edit/undo/main", 400)
    site.post("/edit/undo/main", {"author": "me", "head": head.id}, status=400)


def test_a_branch_a_tag_and_a_note(state: Versioned, site: Site):
    repository, at = state.repository, state.repository.commit("main~1")
    site.post("/edit/branch/main", {"at": at.id, "name": "again", "author": "me"})
    assert repository.branches["again"] == at
    site.post("/edit/tag/main", {"at": at.id, "name": "good", "author": "me"})
    assert repository.tags["good"] == at
    site.post("/edit/note/main", {"at": at.id, "key": "verdict", "text": HOSTILE[0], "author": "me"})
    assert repository.notes[at] == {"verdict": HOSTILE[0], "by": "me"}
    assert "<script>document" not in site.get(f"/c/{at.id}?on=main")
    site.post("/edit/branch/main", {"at": at.id, "name": "again", "author": "me"}, status=409)
    site.post("/edit/branch/main", {"at": at.id, "name": "a b", "author": "me"}, status=400)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_needs_an_author_a_form_token_and_its_fields(state: Versioned, site: Site, verb: str):
    fields = {
        "path": "n",
        "at": state.head.id,
        "name": "x",
        "key": "k",
        "text": "t",
        "message": "m",
        "head": state.head.id,
        "author": "me",
    }
    before = dict(state.repository.branches), dict(state.repository.tags)
    site.post(f"/edit/{verb}/main", {**fields, "author": " "}, status=400)
    site.post(f"/edit/{verb}/none", fields, status=404)
    assert site.ask("POST", f"/edit/{verb}/main", content=b"author=me&token=0").status_code == 403
    if VERBS[verb].moves:
        site.post(f"/edit/{verb}/main", {**fields, "head": ""}, status=400)
    assert (dict(state.repository.branches), dict(state.repository.tags)) == before
    page = site.get(f"/edit/{verb}/main?path=n&at={state.head.id}")
    assert 'name="author"' in page


@pytest.mark.parametrize("verb", VERBS)
def test_without_edit_there_is_nothing_to_edit(state: Versioned, verb: str):
    site = Site(state.repository).sign_in()
    assert site.ask("GET", f"/edit/{verb}/main").status_code == 404
    site.post(
        f"/edit/{verb}/main", {"author": "me", "head": state.head.id, "at": state.head.id, "name": "x"}, status=405
    )
    assert "/edit/" not in site.get("/b/main")


def test_nothing_deletes(site: Site):
    for verb in ("delete", "purge", "gc", "prune", "reset"):
        assert site.ask("GET", f"/edit/{verb}/main").status_code == 404
        site.post(f"/edit/{verb}/main", {"author": "me"}, status=404)


def test_a_form_holds_names_and_paths_as_they_are(tmp_path: Path):
    """Where a text shows, its unseen characters are written out; what a browser sends back is the text."""
    name, odd = "zero\u200bwidth", 'a\u202e "quoted" <b>\u200b'
    state = Versioned(Disk(tmp_path / "store"), branch=name)
    state["odd"] = {odd: 1}
    first = state.commit("first")
    state["odd"][odd] = 2
    state.commit("second")
    site = Site(state.repository, edit=True, author="me").sign_in()
    (change,) = state.diff(first, "HEAD")
    query = urlencode({"path": str(change.path), "at": first.id})
    page = site.get(f"/edit/restore/{quote(name)}?{query}")
    assert "\u202e" not in Links(page, "/").text
    ((_, action, fields),) = [form for form in Links(page, "/").forms if form[0] == "POST"]
    site.post(action, {key: text for key, text in fields.items() if key != "token"})
    assert state.repository.snapshot(name)["odd"] == {odd: 1}
    forms = Links(site.get(f"/b/{quote(name)}"), "/").forms
    assert next(fields["a"] for _, action, fields in forms if action == "/compare") == name
