"""The page over a store in this process, asked by a client as a browser asks; and a store with everything in it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin

import httpx
from starlette.datastructures import Headers
from starlette.types import ASGIApp

from versioned_state import Disk, Repository, Versioned, task
from versioned_state.errors import StateError
from versioned_state.server.page.app import Page, Settings
from versioned_state.server.page.guard import OneViewer

HOST = "127.0.0.1:8421"

HOSTILE = [
    "<script>document.title='taken'</script>",
    "</title><script>document.title='taken'</script>",
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "</pre></code></td></table><h1>taken</h1>",
    "<img src=x onerror=\"document.title='taken'\">",
    "<svg/onload=alert(1)>",
    "<iframe src=//evil.example></iframe>",
    "<base href=//evil.example>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<form action=//evil.example><input name=token>",
    "<a href=javascript:alert(1)>click</a>",
    "javascript:alert(document.domain)",
    "data:text/html,<script>alert(1)</script>",
    '" onmouseover="alert(1)" x="',
    "' onfocus='alert(1)' autofocus='",
    "`${alert(1)}`",
    "{{ 7 * 7 }}{% raw %}",
    "{{ link.__class__.__mro__ }}",
    "${7*7}#{7*7}",
    "&lt;script&gt;&amp;&#x3c;b&#x3e;",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "<?xml version='1.0'?>",
    "\x1b[31mred\x1b[0m\x07\x08",
    "user\u202egnp.exe",
    "\u2066isolated\u2069 \u200fright",
    "zero\u200bwidth\ufeffmark\u00adsoft",
    "tags \U000e0041\U000e007f",
    "\x00nul\x00",
    "line\u2028separator\u2029paragraph",
    "../../../../etc/passwd",
    "a/b//c?d=e&f#g%2e%2e%00",
    "https://evil.example/",
    "=cmd|'/C calc'!A0",
    "x" * 5000,
    "é" * 3000 + "<b>" * 500,
    "\r\nSet-Cookie: a=b\r\n\r\n<b>",
    "👨‍👩‍👧 名前 ﷽",
]
"""What a stored text may be."""


def ask(
    application: ASGIApp, method: str, path: str, headers: Mapping[str, str], *, scheme: str = "http", **options: Any
) -> httpx.Response:
    """Return the answer to a request. An empty header is not sent."""

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://{HOST}") as client:
            sent = {name: text for name, text in headers.items() if text}
            return await client.request(method, path, headers=sent, **options)

    return asyncio.run(request())


class Site:
    """A page and its viewer."""

    def __init__(self, repository: Repository, **settings: Any) -> None:
        self.access = OneViewer(8421)
        self.page = Page(repository, self.access, frozenset({HOST, "localhost:8421"}), Settings(**settings))
        self.application = self.page.application()
        self.cookie = ""
        self.form_token = ""

    def sign_in(self) -> Site:
        answer = self.ask("GET", self.access.link())
        assert answer.status_code == 303, answer.text
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self

    def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, **options: Any) -> httpx.Response:
        """The answer to a request with a browser's headers, but for those that are given; an empty one is not sent."""
        sent = {"host": HOST, "sec-fetch-site": "same-origin", "cookie": self.cookie}
        if method == "POST":
            sent["origin"] = f"http://{HOST}"
        return ask(self.application, method, path, sent | dict(headers or {}), **options)

    def get(self, path: str, status: int = 200) -> str:
        answer = self.ask("GET", path)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:2000])
        return answer.text

    def json(self, path: str) -> Any:
        answer = self.ask("GET", path, {"accept": "application/json"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, fields: Mapping[str, str], status: int = 303) -> httpx.Response:
        viewer = self.access.viewer(Headers({"cookie": self.cookie}))
        assert viewer is not None
        body = urlencode({"token": viewer.form_token, **fields})
        answer = self.ask("POST", path, {"content-type": "application/x-www-form-urlencoded"}, content=body)
        assert answer.status_code == status, answer.text
        return answer


class Links(HTMLParser):
    """The addresses in a page: of links, and of forms with their fields."""

    def __init__(self, html: str, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.base = base
        self.links: list[str] = []
        self.forms: list[tuple[str, str, dict[str, str]]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag in ("a", "link") and found.get("href") is not None:
            self.links.append(urljoin(self.base, found["href"] or ""))
        if tag == "script" and found.get("src"):
            self.links.append(urljoin(self.base, found["src"] or ""))
        if tag == "form":
            self.forms.append(
                ((found.get("method") or "get").upper(), urljoin(self.base, found.get("action") or ""), {})
            )
        if tag in ("input", "select", "textarea", "button") and found.get("name") and self.forms:
            self.forms[-1][2][found["name"] or ""] = found.get("value") or ""

    def handle_data(self, data: str) -> None:
        self.text += data


@task
def refuse(what: str) -> None:
    raise ValueError(what)


def make_store(folder: Path) -> Repository:
    """A store with branches, a merge, texts that differ, and hostile strings wherever a text may be."""
    repository = Repository(Disk(folder))
    state = Versioned(repository, author="planner")
    state["messages"] = [{"role": "system", "content": "be brief"}]
    state["prefs"] = {"theme": "dark", "limit": 500}
    state["plan"] = "one\ntwo\nthree\n" + "\n".join(f"line {n}" for n in range(20))
    state.commit("the beginning", meta={"step": 1})
    for number in range(5):
        state["messages"].append({"role": "user", "content": f"question {number}"})
        state["messages"].append({"role": "assistant", "content": f"answer {number}"})
        state.commit(f"round {number}")
    side = state.fork("what-if/train")
    side["prefs"]["train"] = True
    side.commit("by train")
    state["prefs"]["limit"] = 350
    state["plan"] = state["plan"].replace("two", "deux")
    state.commit("cheaper")
    state.merge("what-if/train", message="merge the train")
    repository.notes[state.head] = {"score": 0.5, "judge": HOSTILE[0]}
    repository.tags.create("v1", "main~1")
    hostile = Versioned(repository, branch="hostile", author=HOSTILE[0] + HOSTILE[28])
    for text in HOSTILE:
        with suppress(ValueError):
            refuse(text, state=hostile)
        with suppress(StateError):  # not every text can be the name of a branch, or of a tag
            Versioned(repository, branch=text).commit(text, author=text, allow_empty=True)
            repository.tags.create(text, "main~1")
    hostile["texts"] = list(HOSTILE)
    hostile["keys"] = dict.fromkeys(HOSTILE, 1)
    hostile["messages"] = [{"role": text[:60], "content": text} for text in HOSTILE]
    for number, text in enumerate(HOSTILE[:12]):
        hostile[f"<b>{number}</b>"] = text
    hostile.commit(HOSTILE[1], meta={"kind": HOSTILE[0], HOSTILE[15]: 1})
    hostile["texts"] = [text[::-1] for text in HOSTILE]
    hostile.commit("\n".join(HOSTILE[2:9]))
    repository.notes[hostile.head] = {text: text for text in HOSTILE}
    Versioned(repository, branch="x<script>alert(1)</script>", author="a").commit(
        "nothing but a name", allow_empty=True
    )
    return repository
