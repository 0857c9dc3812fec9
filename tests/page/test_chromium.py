"""The page in a real Chromium: hostile text stays text, all works without scripts, and assistive tools find their way.

Pictures of each page are kept for the eye in the folder that ``VSTATE_PICTURES`` names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support import chromium
from tests.support.page import make_store
from versioned_state import Repository, Versioned, task

pytestmark = [pytest.mark.every_case, pytest.mark.browser]

AXE = Path(__file__).parent / "vendor" / "axe.min.js"


@task
def book(city: str) -> str:
    if city == "Nowhere":
        raise TimeoutError("no answer")
    return city


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    repository = make_store(tmp_path_factory.mktemp("chromium") / "store")
    state = Versioned(repository)
    book("Rome", state=state)
    with pytest.raises(TimeoutError):
        book("Nowhere", state=state)
    yield repository
    repository.close()


@pytest.fixture(scope="module")
def site(repository: Repository) -> Iterator[tuple[str, str]]:
    with chromium.served(repository, edit=True, author="me") as site:
        yield site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium.find()
    assert program is not None, f"there is no Chromium: {chromium.HOW}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=chromium.ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def signed_in(browser: Browser, site: tuple[str, str]) -> Any:
    """The cookies of a browser that opened the link."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(site[1])
    assert page.url == site[0] + "/"
    state = context.storage_state()
    context.close()
    return state


class Watched:
    """A page, and all that it should not do."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.faults: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(30_000)
        self.page.on(
            "console", lambda message: self._note(message.text if message.type in ("error", "warning") else "")
        )
        self.page.on("pageerror", lambda error: self._note(str(error)))
        # and so it stays open: the test ends there
        self.page.on("dialog", lambda dialog: self._note(f"dialog {dialog.message}"))
        self.page.on(
            "request", lambda request: self._note(f"asks {request.url}" if not request.url.startswith(address) else "")
        )
        self.page.on("popup", lambda popup: self._note("a window"))
        self.address = address

    def _note(self, what: str) -> None:
        self.faults += [what] if what else []

    def open(self, path: str) -> Page:
        answer = self.page.goto(self.address + path)
        assert answer is not None
        assert answer.status == 200, (path, answer.status)
        return self.page


def all_pages(repository: Repository) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("main", "hostile"):
        id = repository.branches[name].id
        before = repository.commit(f"{name}~1").id
        on = f"on={name}"
        path = "texts" if name == "hostile" else "messages"
        found |= {
            f"{name} log": f"/b/{name}",
            f"{name} commit": f"/c/{id}?{on}",
            f"{name} state": f"/c/{id}/state?{on}",
            f"{name} list": f"/c/{id}/state?path={path}&{on}",
            f"{name} text": f"/c/{id}/state?path=messages[0].content&{on}",
            f"{name} diff": f"/diff/{before}..{id}?{on}",
            f"{name} blame": f"/blame/{id}?path={path}&{on}",
            f"{name} history": f"/history/{id}?path={path}&{on}",
            f"{name} chat": f"/chat/{id}?{on}",
            f"{name} events": f"/events/{id}?{on}",
            f"{name} search": f"/search/{id}?q=e&{on}",
            f"{name} restore": f"/edit/restore/{name}?path={path}&at={before}",
            f"{name} note": f"/edit/note/{name}?at={id}",
        }
    merge = next(commit for commit in repository.log("main") if len(commit.parents) > 1)
    return found | {
        "sessions": "/",
        "search of names": "/?q=script",
        "compare": f"/compare/main/{quote('what-if/train', safe='')}",
        "merge": f"/c/{merge.id}?on=main",
    }


def test_hostile_texts_stay_text_on_every_page(
    browser: Browser, site: tuple[str, str], signed_in: Any, repository: Repository
):
    context = browser.new_context(storage_state=signed_in, viewport={"width": 800, "height": 800})
    watched = Watched(context, site[0])
    for name, path in all_pages(repository).items():
        page = watched.open(path)
        assert page.evaluate("document.title").endswith("· vstate"), name
        assert page.evaluate("document.querySelectorAll('script').length") == 1, name
        assert (
            page.evaluate("document.querySelectorAll('main img, main iframe, main style, main svg script').length") == 0
        ), name
        assert watched.faults == [], name
    context.close()


def test_every_page_fits_into_320_pixels_and_keeps_a_picture(
    browser: Browser, site: tuple[str, str], signed_in: Any, repository: Repository
):
    pictures = os.environ.get("VSTATE_PICTURES")
    for width in (320, 800, 1600) if pictures else (320,):
        context = browser.new_context(storage_state=signed_in, viewport={"width": width, "height": 900})
        watched = Watched(context, site[0])
        for name, path in all_pages(repository).items():
            page = watched.open(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            if pictures:
                page.screenshot(path=Path(pictures) / f"{name.replace(' ', '-')}-{width}.png")
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(
    browser: Browser, site: tuple[str, str], signed_in: Any, repository: Repository, scheme: Any
):
    context = browser.new_context(storage_state=signed_in, color_scheme=scheme, viewport={"width": 1000, "height": 800})
    watched = Watched(context, site[0])
    source = AXE.read_text("utf-8")
    pages = all_pages(repository)
    for name, path in pages.items():
        page = watched.open(path)
        page.evaluate(source)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [
            (each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in found["violations"]
        ] == [], name
    context.close()


def test_everything_is_reached_without_scripts(
    browser: Browser, site: tuple[str, str], signed_in: Any, repository: Repository
):
    context = browser.new_context(storage_state=signed_in, java_script_enabled=False)
    watched = Watched(context, site[0])
    page = watched.open("/")
    page.get_by_label("Name has").fill("MAIN")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="main", exact=True).click()
    page.get_by_label("Go to a round or a date").fill("3")
    page.get_by_role("button", name="Go").click()
    page.get_by_role("link", name="round 1", exact=True).click()
    assert page.get_by_role("heading", level=1).inner_text() == "round 1"
    for tab in ("State", "Chat", "Events", "Blame", "Search"):
        page.get_by_role("navigation", name="Views of this commit").get_by_role("link", name=tab).click()
        assert page.get_by_role("heading", level=1).inner_text().startswith(tab)
    page.get_by_label("Texts and keys").fill("question 0")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="messages[1].content").click()
    assert page.locator("pre").inner_text() == "question 0"
    page.get_by_role("link", name="messages", exact=True).click()
    page.locator(".tree .row").nth(4).wait_for()
    assert page.locator(".tree .row").count() == 5
    for name, path in all_pages(repository).items():
        page = watched.open(path)
        assert page.get_by_role("heading", level=1).inner_text(), name
        assert page.get_by_role("main").inner_text().count("\n") > 3, name
    assert watched.faults == []
    context.close()


def test_a_value_opens_in_place_and_keys_move(
    browser: Browser, site: tuple[str, str], signed_in: Any, repository: Repository
):
    context = browser.new_context(storage_state=signed_in)
    watched = Watched(context, site[0])
    page = watched.open(f"/c/{repository.branches['hostile'].id}/state?on=hostile")
    page.get_by_role("button", name="Open messages in place").click()
    page.get_by_role("button", name="Open messages[1] in place").click()
    page.locator(".inner .inner .row").first.wait_for()
    assert "</title><script>" in page.locator(".inner .inner").inner_text()
    page.goto(f"{site[0]}/b/main")
    for key, row in (("j", 0), ("j", 1), ("k", 0)):
        page.keyboard.press(key)
        assert (
            page.evaluate(
                "[...document.querySelectorAll('.row')].findIndex(row => row.contains(document.activeElement))"
            )
            == row
        )
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    page.wait_for_url(re.compile("/c/"))
    assert watched.faults == []
    context.close()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_a_form_changes_a_branch(
    browser: Browser, site: tuple[str, str], signed_in: Any, repository: Repository, *, scripts: bool
):
    name = f"edited-{scripts}"
    state = Versioned(repository, branch=name)
    for number in range(2):
        state["n"] = number
        state.commit(f"n {number}")
    context = browser.new_context(storage_state=signed_in, java_script_enabled=scripts)
    watched = Watched(context, site[0])
    page = watched.open(f"/c/{repository.commit(f'{name}~1').id}/state?path=n&on={name}")
    page.get_by_role("link", name="restore").click()
    page.get_by_label("Message").fill("as it was")
    page.get_by_role("button", name="Restore a value").click()
    assert page.get_by_role("heading", level=1).inner_text() == "as it was"
    assert repository.snapshot(name)["n"] == 0
    assert repository.branches[name].author == "me"
    assert watched.faults == []
    context.close()


def test_the_browser_refuses_what_a_script_could_inject(browser: Browser, site: tuple[str, str], signed_in: Any):
    context = browser.new_context(storage_state=signed_in)
    page = context.new_page()
    page.goto(site[0] + "/")
    for code in (
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
        "document.createElement('script').src = '/x.js'",
    ):
        assert (
            page.evaluate(f"(() => {{ try {{ {code}; return 'done' }} catch (error) {{ return error.name }} }})()")
            != "done"
        ), code
    context.close()


def test_another_site_gets_nothing(browser: Browser, site: tuple[str, str], signed_in: Any, repository: Repository):
    """By a link, a form, a frame, a script, and by a name that its owner made point here."""
    port = site[0].rpartition(":")[2]
    program = chromium.find()
    with chromium.served(repository) as (other, _):
        other_port = other.rpartition(":")[2]
        launched = browser.browser_type.launch(
            executable_path=program,
            args=[*chromium.ARGUMENTS, f"--host-resolver-rules=MAP evil.example 127.0.0.1:{port}"],
        )
        context = launched.new_context(storage_state=signed_in)
        page = context.new_page()
        answer = page.goto(f"http://evil.example:{port}/")
        assert answer is not None
        assert answer.status == 421
        page.route(
            f"http://localhost:{other_port}/evil",
            lambda route: route.fulfill(
                content_type="text/html",
                body=f"<a id=a href='{site[0]}/b/main'>x</a><form id=f method=post action='{site[0]}/edit/undo/main'>"
                f"<input name=author value=x></form><iframe id=i src='{site[0]}/'></iframe>"
                f"<script src='{site[0]}/'></script>",
            ),
        )
        statuses: list[tuple[str, int]] = []
        page.on("response", lambda response: statuses.append((response.url, response.status)))
        page.goto(f"http://localhost:{other_port}/evil", wait_until="networkidle")
        page.click("#a")
        page.wait_for_url(re.compile("/b/main"))
        page.goto(f"http://localhost:{other_port}/evil")
        page.evaluate("document.getElementById('f').submit()")
        page.wait_for_url(re.compile("/edit/undo"))
        page.wait_for_load_state()
        got = [status for url, status in statuses if url.startswith(site[0])]
        assert len(got) >= 2  # a frame and a script may be stopped before they are asked for
        assert set(got) <= {401, 403}
        launched.close()
