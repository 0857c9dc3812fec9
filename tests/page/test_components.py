"""A notebook and a file show the components of the page: one source has all of them."""

from __future__ import annotations

import re

import pytest

from tests.support.page import HOSTILE, Site, make_store
from versioned_state import Repository, Versioned
from versioned_state.repository.shown.components import element, escaped
from versioned_state.server.page import static
from versioned_state.server.page.file import file_of

pytestmark = pytest.mark.every_case


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return make_store(tmp_path_factory.mktemp("components") / "store")


def components(html: str, start: str, end: str) -> list[str]:
    """The parts of a page between two texts, without links and without what only a page adds."""
    plain = re.sub(r"</?a\b[^>]*>", "", re.sub(r'<span class="more">.*?</span></a></span>', "", html))
    plain = re.sub(r"<span>(.*?)</span>", r"\1", re.sub(r' (id|data-[a-z]+)="[^"]*"', "", plain))
    return re.findall(re.escape(start) + ".*?" + re.escape(end), plain, re.DOTALL)


def test_a_notebook_and_a_file_show_what_the_page_shows(repository: Repository):
    state = Versioned(repository)
    site = Site(repository).sign_in()
    head = state.head.id
    file = file_of(repository, state.log(limit=3), title="x").decode()
    for page, notebook, start, end in (
        ("/b/main", state.log(limit=50)._repr_html_(), '<span class="round', "</code>"),
        ("/diff/main~2..main~1", state.diff("main~2", "main~1")._repr_html_(), "<tr", "</tr>"),
        ("/blame/main?path=messages", state.blame("messages")._repr_html_(), '<code class="line">', "</code>"),
        ("/search/main?q=question", state.grep("question")._repr_html_(), '<span class="found">', "</span>"),
        ("/history/main?path=plan", state.history("plan")._repr_html_(), "<tr", "</tr>"),
        (f"/c/{head}", state.head._repr_html_(), "<dt>", "</dd>"),
        ("/?by=name", repository.branches._repr_html_(), '<span class="message">', "</span>"),
        (f"/c/{head}/state", state.checkout(head)._repr_html_(), '<span class="type">', "</code>"),
    ):
        of_page, of_notebook = components(site.get(page), start, end), components(notebook, start, end)
        assert of_notebook, page
        if page == f"/c/{head}":
            of_page = [part for part in of_page if "Parent" not in part]
            of_notebook = [part for part in of_notebook if "Parent" not in part]
            assert set(of_notebook) <= set(of_page), "the note is on the page alone"
        elif page == "/?by=name":
            assert len(of_page) == len(of_notebook)
        else:
            assert of_page == of_notebook, page
    assert set(components(file, "<tr", "</tr>")) >= set(components(site.get("/diff/main~2..main~1"), "<tr", "</tr>"))


def test_the_style_of_the_components_is_in_all_three(repository: Repository):
    rule = ".sides .old.on"
    assert rule in static.content("page.css").decode()
    assert rule in Versioned(repository).head._repr_html_()
    assert rule in file_of(repository, [repository.commit("main")], title="x").decode()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_of_a_component_is_text(text: str):
    made = element("b", text, title=text)
    assert re.fullmatch(r'<b title="[^"<>]*">[^<>]*</b>', made, re.DOTALL), made
    assert "\u202e" not in made
    assert escaped(made) is made
