"""The views: each with ordinary, odd and hostile content, in its bounds, and a crawl of all that changes no byte."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
import numpy as np
import pandas as pd
import pytest

from tests.support.page import HOST, HOSTILE, Links, Site, make_store
from tests.support.services.sent import scope_of
from versioned_state import Disk, Memory, Repository, Versioned, branch_name
from versioned_state.repository.shown.text import Budget, visible
from versioned_state.server.page.app import LARGEST, ROUTES
from versioned_state.server.page.views import reads
from versioned_state.storage import Wrapper

pytestmark = pytest.mark.every_case


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("views") / "store"


@pytest.fixture(scope="module")
def repository(folder: Path) -> Repository:
    return make_store(folder)


@pytest.fixture(scope="module")
def site(repository: Repository) -> Site:
    return Site(repository).sign_in()


def is_text(html: str, base: str = "/") -> Links:
    """Check that a page has only the markup of the templates, and return what is in it."""
    found = Links(html, f"http://{HOST}{base}")
    for tag, attributes in found.tags:
        assert tag not in ("iframe", "img", "base", "object", "embed", "style", "meta-refresh"), tag
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "srcdoc", "autofocus")], (
            tag,
            attributes,
        )
        assert tag != "script" or "/static/" in (attributes.get("src") or "")
        assert tag != "meta" or "http-equiv" not in attributes
    for link in found.links + [action for _, action, _ in found.forms]:
        assert urlsplit(link).netloc == HOST, link
        assert urlsplit(link).scheme == "http", link
    return found


def crawl(site: Site, first: str = "/", most: int = 1500) -> dict[str, int]:
    """Ask for all that links and forms lead to, and return the status of each address."""
    seen: dict[str, int] = {}
    waiting = [first]
    shapes: dict[tuple[str, ...], int] = {}
    while waiting and len(seen) < most:
        path = waiting.pop()
        parts = urlsplit(path).path.split("/")
        shape = (*parts[1:2], *parts[3:4], *sorted(each.partition("=")[0] for each in urlsplit(path).query.split("&")))
        if path in seen or shapes.get(shape, 0) >= 15:
            continue
        shapes[shape] = shapes.get(shape, 0) + 1
        answer = site.ask("GET", path)
        seen[path] = answer.status_code
        assert len(answer.content) <= LARGEST, path
        if answer.status_code == 303:
            waiting.append(answer.headers["location"])
        elif "text/html" in answer.headers["content-type"]:
            found = is_text(answer.text, path)
            waiting += [link.removeprefix(f"http://{HOST}").partition("#")[0] for link in found.links]
            for method, action, fields in found.forms:
                to = action.removeprefix(f"http://{HOST}").partition("?")[0]
                waiting += [
                    f"{to}?{urlencode(fields | {'q': text, 'path': text, 'to': text})}" for text in ("e", HOSTILE[0])
                ]
                assert method == "GET", "a page that only reads has no other forms"
    return seen


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_crawl_of_all_pages_meets_no_failure_and_changes_no_byte(tmp_path: Path):
    make_store(tmp_path / "store").close()
    before = content_of(tmp_path / "store")
    with Repository(Disk(tmp_path / "store", read_only=True), pickle="refuse") as repository:
        site = Site(repository).sign_in()
        seen = crawl(site)
        assert len(seen) > 150
        assert set(seen.values()) <= {200, 303, 400, 404}, {path: s for path, s in seen.items() if s >= 500}
        failed = [path for path, status in seen.items() if status >= 400 and "script" not in path and "=e" not in path]
        assert failed == []
        kinds = {urlsplit(path).path.split("/")[1] for path in seen}
        assert {"b", "c", "blame", "history", "chat", "events", "compare", "search", "static"} <= kinds
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            for path in list(seen)[:40]:
                assert site.ask(method, path).status_code in (403, 405)
    assert content_of(tmp_path / "store") == before


REVS = ["hostile", "main", "main~2"]


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: row.path)
def test_every_route_in_every_state_is_a_page_that_says_what_is(row, site: Site, tmp_path: Path):
    if row.edits:
        return  # tests/page/test_edit.py
    values = {
        "{name:path}": ["main", "hostile", "none", quote(HOSTILE[0]), quote("x<script>alert(1)</script>")],
        "{id}": [site.page.repository.commit(rev).id for rev in REVS] + ["f" * 48, "zz", "%00"],
        "{rev:path}": [*REVS, "none", "HEAD", quote(HOSTILE[0]), "main@{1}"],
        "{range:path}": ["main~2..main", "hostile~1..hostile", "a..b", "main", "main...main", quote(HOSTILE[1])],
        "{pair:path}": [
            "main/what-if%2Ftrain",
            "main/what-if/train",
            "hostile/main",
            "a/b",
            "a",
            quote(HOSTILE[0], safe=""),
        ],
    }
    name = next((name for name in values if name in row.path), "")
    paths = [row.path.replace(name, value) for value in values[name]] if name else [row.path]
    queries = [
        "",
        *(
            urlencode({key: text}, errors="replace")
            for key in ("path", "q", "to", "after", "start", "skip", "where")
            for text in (
                "messages",
                "messages[0]",
                "@worker",
                "texts[3]",
                "-1",
                "0",
                "9" * 30,
                HOSTILE[0],
                HOSTILE[27],
                "a=b",
            )
        ),
    ]
    for path in paths:
        for query in queries if path == paths[0] else queries[:3]:
            answer = site.ask("GET", f"{path}?{query}")
            assert answer.status_code in (200, 303, 400, 404), (path, query, answer.status_code)
            if answer.headers.get("content-type", "").startswith("text/html"):
                is_text(answer.text)


def test_an_empty_store_says_so(tmp_path: Path):
    site = Site(Repository(Disk(tmp_path / "store"))).sign_in()
    assert "This store is empty" in site.get("/")
    site.get("/b/main", 404)
    assert "No session is like that" in site.get("/?q=x")


def test_one_commit(tmp_path: Path):
    state = Versioned(Disk(tmp_path / "store"))
    commit = state.commit("only", allow_empty=True)
    site = Site(state.repository).sign_in()
    assert "1 round" in is_text(site.get("/b/main")).text
    assert "Nothing differs" in site.get(f"/c/{commit.id}")
    assert "The state is empty" in site.get(f"/c/{commit.id}/state")
    for kind in ("blame", "chat", "events", "search"):
        site.get(f"/{kind}/{commit.id}")


def test_a_damaged_object_is_named(tmp_path: Path):
    memory = Memory()
    state = Versioned(memory)
    state["list"] = [str(n) * 50 for n in range(2000)]
    commit = state.commit("long")
    damaged = {
        key: raw[:-1] + bytes([raw[-1] ^ 1])
        for key in memory.keys("o/")
        if (raw := memory.get(key)) and commit.id not in key
    }
    memory.apply({}, {}, list(damaged))
    memory.apply({}, {}, objects=damaged)
    site = Site(Repository(memory)).sign_in()
    answer = site.ask("GET", f"/c/{commit.id}/state?path=list")
    assert answer.status_code == 500
    assert "damaged" in answer.text
    assert "vstate fsck" in answer.text
    search = site.get(f"/search/{commit.id}?q=5")
    assert "The search was ended by damage" in search, "it is on its way already, and says so at its end"
    assert search.endswith("</html>")


def test_a_closed_store_is_said(tmp_path: Path):
    repository = make_store(tmp_path / "store")
    site = Site(repository).sign_in()
    repository.close()
    assert site.ask("GET", "/").status_code == 503


def test_a_page_ends_with_its_time(repository: Repository):
    site = Site(repository, read_timeout=1e-9).sign_in()
    for path in ("/", "/b/main", "/events/main"):
        answer = site.ask("GET", path)
        assert answer.status_code == 503
        assert "took too long" in answer.text


class Crowd(Wrapper):
    """A store that notes how many threads read it at once."""

    def __init__(self, store: Memory) -> None:
        super().__init__(store)
        self.lock = threading.Lock()
        self.here = self.peak = 0

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        with self.lock:
            self.here += 1
            self.peak = max(self.peak, self.here)
        time.sleep(0.01)
        try:
            return super().get_many(keys)
        finally:
            with self.lock:
                self.here -= 1

    def get(self, key: str) -> bytes | None:
        return self.get_many([key]).get(key)


def test_a_viewer_has_four_requests_at_work_and_others_wait():
    memory = Memory()
    state = Versioned(memory)
    state["messages"] = [{"role": "user", "content": f"question {number}" * 100} for number in range(100)]
    state.commit()
    crowd = Crowd(memory)
    site = Site(Repository(crowd)).sign_in()
    paths = ["/b/main", "/search/main?q=question", "/chat/main", "/c/main/state"] * 4

    async def run() -> list[int]:
        transport = httpx.ASGITransport(site.application)
        async with httpx.AsyncClient(
            transport=transport, base_url=f"http://{HOST}", headers={"cookie": site.cookie}
        ) as client:
            return [answer.status_code for answer in await asyncio.gather(*map(client.get, paths))]

    assert set(asyncio.run(run())) <= {200, 404}
    assert 1 < crowd.peak <= 4


def test_no_query_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    repository = make_store(tmp_path / "store")
    site = Site(repository, read_timeout=1e-9).sign_in()
    caplog.set_level("DEBUG")
    caplog.clear()
    for path in ("/b/main", "/search/main", "/c/0", "/nowhere"):
        site.ask("GET", f"{path}?q=a-secret&path=a-secret&after=a-secret")
    logged = [record for record in caplog.records if record.name.startswith("versioned_state")]
    assert logged
    assert not [record for record in logged if "a-secret" in f"{record.getMessage()} {record.__dict__}"]


def test_the_log_draws_a_merge_and_pages_have_all_commits_once(tmp_path: Path):
    state = Versioned(Disk(tmp_path / "store"))
    for number in range(30):
        state["n"] = number
        state.commit(f"n {number}")
    side = state.fork("side")
    for number in range(40):
        state["n"] = -number - 1
        state.commit(f"left {number}")
        side["m"] = number
        side.commit(f"right {number}")
    state.merge("side", message="joined")
    site = Site(state.repository).sign_in()
    seen: list[str] = []
    path = "/b/main"
    while path:
        data = site.json(path)
        seen += [row["message"] for row in data["rows"]]
        assert len(data["rows"]) <= 50
        path = f"/b/main?after={data['next']}" if data["next"] else ""
    assert sorted(seen) == sorted(
        ["joined", *(f"{word} {n}" for word in ("left", "right") for n in range(40)), *(f"n {n}" for n in range(30))]
    )
    first = site.json("/b/main")["rows"][0]
    assert first["graph"]["width"] == 2
    assert sorted(first["graph"]["lines"]) == [[-1, 0], [-1, 1], [0, -1]] or [-1, 1] in first["graph"]["lines"]


def test_a_jump_goes_to_a_round_or_a_date(site: Site, repository: Repository):
    third = site.page.repository.commit("main~4")
    answer = site.ask("GET", f"/b/main?to={third.height}")
    assert answer.headers["location"] == f"/b/main?after={third.id}"
    head = repository.branches["main"]
    assert site.ask("GET", "/b/main?to=2999-01-01").headers["location"].endswith(head.id)
    assert site.ask("GET", "/b/main?to=1999-01-01").status_code == 303
    for wrong in ("0", "99999", "tomorrow", "9" * 12):
        assert site.ask("GET", f"/b/main?to={wrong}").status_code == 400


def test_a_branch_of_any_name_has_its_page(tmp_path: Path):
    names = [branch_name("user/1", "a b?c#d%"), branch_name("名前", "../.."), "a/b/c", "x'\"<>&", "e" * 200]
    repository = Repository(Disk(tmp_path / "store"))
    for name in names:
        Versioned(repository, branch=name).commit("hello", allow_empty=True)
    site = Site(repository).sign_in()
    found = is_text(site.get("/?by=name"))
    pages = [link for link in found.links if "/b/" in link]
    assert len(pages) == len(names)
    for link in pages:
        assert "hello" in site.get(link.removeprefix(f"http://{HOST}"))
    for a in names:
        for b in names:
            assert site.json(f"/compare/{quote(a, safe='')}/{quote(b, safe='')}")["names"] == [a, b]


def test_the_state_is_read_a_level_at_a_time(site: Site):
    id = site.page.repository.commit("main").id
    top = site.json(f"/c/{id}/state")
    assert {"messages", "plan", "prefs"} == {part["label"] for part in top["parts_of"]}
    inner = site.json(f"/c/{id}/state?path=messages")
    assert inner["total"] == 11
    assert inner["parts_of"][0]["path"] == "messages[0]"
    assert site.json(f"/c/{id}/state?path=prefs.limit")["value"]["line"] == "350"


def test_parts_come_a_hundred_at_a_time(tmp_path: Path):
    state = Versioned(Disk(tmp_path / "store"))
    state["list"] = list(range(1234))
    state["dict"] = {f"k{n}": n for n in range(1234)}
    state["set"] = set(range(250))
    state.namespace("worker").namespace("inner")["x"] = 1
    for n in range(150):
        state[f"key{n:03}"] = n
    id = state.commit("much").id
    site = Site(state.repository).sign_in()
    for path, total in (("list", 1234), ("dict", 1234), ("set", 250), ("", 153)):
        labels: list[str] = []
        start: int | None = 0
        while start is not None:
            data = site.json(f"/c/{id}/state?path={path}&start={start}")
            assert data["total"] == total
            labels += [f"{part['label']}{part['line']}" for part in data["parts_of"]]
            start = data["next"]
        assert len(set(labels)) == total
    assert [each["path"] for each in site.json(f"/c/{id}/state")["namespaces"]] == ["@worker"]
    assert [each["path"] for each in site.json(f"/c/{id}/state?path=@worker")["namespaces"]] == ["@worker.@inner"]
    assert site.json(f"/c/{id}/state?path=@worker.@inner")["parts_of"][0]["path"] == "@worker.@inner.x"
    assert site.json(f"/c/{id}/state?path=@worker.@inner.x")["value"]["line"] == "1"
    site.get(f"/c/{id}/state?path=@nobody", 404)


def test_raw_is_saved_and_never_a_document(site: Site):
    id = site.page.repository.commit("hostile").id
    answer = site.ask("GET", f"/c/{id}/raw?path=messages[0].content")
    assert answer.text == HOSTILE[0]
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert site.ask("GET", f"/c/{id}/raw?path=messages").status_code == 404


def test_texts_differ_by_word(site: Site):
    data = site.json("/diff/main~3..main?path=plan")
    (change,) = data["diff"]["changes"]
    (row,) = [row for row in change["rows"] if row["kind"] == "changed"]
    assert row["old"]["spans"] == [["two", True]]
    assert row["new"]["spans"] == [["deux", True]]
    assert change["rows"][-1]["kind"] == "fold"


def test_a_comparison_has_both_sides_and_what_a_merge_would_meet(tmp_path: Path):
    state = Versioned(Disk(tmp_path / "store"))
    state["x"] = 1
    base = state.commit("base")
    other = state.fork("other")
    state["x"] = 2
    state.commit("two")
    other["x"] = 3
    other.commit("three")
    data = Site(state.repository).sign_in().json("/compare/main/other")
    assert data["base"]["id"] == base.id
    assert [[row["message"] for row in side["rows"]] for side in data["sides"]] == [["two"], ["three"]]
    assert [(row["path"], row["ours"], row["theirs"]) for row in data["merge"]["conflicts"]] == [("x", "2", "3")]
    assert [change["path"] for change in data["diff"]["changes"]] == ["x"]


def test_a_merge_is_looked_at_for_a_moment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    state = Versioned(Disk(tmp_path / "store"))
    state.commit("base", allow_empty=True)
    other = state.fork("other")
    for handle, value in ((state, 1), (other, 2)):
        handle["x"] = [value] * 2000
        handle.commit()
    site = Site(Repository(Disk(tmp_path / "store"))).sign_in()
    monkeypatch.setattr(reads, "_SEARCH_S", 0.0)
    assert site.json("/compare/main/other")["merge"]["late"] is True
    (link,) = [link for link in is_text(site.get("/compare/main/other")).links if "longer=1" in link]
    found = site.json(link.removeprefix(f"http://{HOST}"))["merge"]
    assert (found["late"], found["count"]) == (False, 1)


def test_chat_reads_the_shapes_of_frameworks(tmp_path: Path):
    state = Versioned(Disk(tmp_path / "store"))
    state["messages"] = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:x"}}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "search", "arguments": '{"q": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "found"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "tool_use", "id": "2", "name": "f", "input": {"a": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2", "content": "done"}]},
        {"type": "ai", "content": "so it is"},
        "a text",
        17,
    ]
    state.commit()
    found = Site(state.repository).sign_in().json("/chat/main")["messages"]
    assert [message["kind"] for message in found] == [
        "user",
        "assistant",
        "assistant",
        "user",
        "assistant",
        "other",
        "other",
    ]
    call = found[1]["blocks"][0]
    assert (call["name"], call["text"], call["result"]["blocks"][0]["text"]) == ("search", '{"q": 1}', "found")
    assert [block["type"] for block in found[2]["blocks"]] == ["thinking", "call"]
    assert found[3]["blocks"][0]["type"] == "result"
    assert all(message["round"]["message"] for message in found)


def test_blame_is_of_the_last_parts_and_pages_have_all(tmp_path: Path):
    state = Versioned(Disk(tmp_path / "store"))
    state["list"] = []
    for number in range(120):
        state["list"].append(number)
        state.commit(f"n {number}")
    site = Site(state.repository).sign_in()
    rows: list[tuple[str, str]] = []
    skip: int | None = 0
    while skip is not None:
        data = site.json(f"/blame/main?path=list&longer=1&skip={skip}")
        rows = [(row["label"], row["commit"]["message"]) for row in data["rows"]] + rows
        skip = data["next"]
    assert rows == [(f"[{n}]", f"n {n}") for n in range(120)]


def test_blame_that_ended_says_where_and_goes_on_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    state = Versioned(Disk(tmp_path / "store"))
    state["plan"], state["list"], state["text"] = {"city": "Rome"}, ["old"], "one\ntwo"
    state.commit("first")
    for number in range(130):
        state["list"].insert(0, number)
        state.commit(f"n {number}")
    site = Site(state.repository).sign_in()
    expected = {path: site.json(f"/blame/main?longer=1&path={path}") for path in ("plan", "list", "text", "")}
    assert not any(data["goes_on"] for data in expected.values())
    monkeypatch.setattr(reads, "_SEARCH_S", 0.0)
    for path, whole in expected.items():
        data = site.json(f"/blame/main?path={path}")
        assert data["goes_on"]["round"] == 130, "one round was examined"
        assert [row["label"] for row in data["rows"]] == [row["label"] for row in whole["rows"]]
        shown = is_text(site.get(f"/blame/main?path={path}"))
        (link,) = [link for link in shown.links if "longer=1" in link]
        further = site.json(link.removeprefix(f"http://{HOST}"))
        assert further["goes_on"] is None
        origins = {row["line"]: row["commit"]["id"] for row in further["rows"]}
        left = [
            (row["line"], row["commit"]["id"])
            for row, now in zip(whole["rows"], data["rows"], strict=True)
            if not now["complete"]
        ]
        assert len(left) == data["goes_on"]["parts"]
        assert {line: origins[line] for line, _ in left} == dict(left)


def test_a_history_that_ended_says_where_and_goes_on_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    state = Versioned(Disk(tmp_path / "store"))
    state["plan"] = "one"
    state.commit("first")
    for number in range(20):
        state["n"] = number
        state.commit(f"n {number}")
    site = Site(state.repository).sign_in()
    monkeypatch.setattr(reads, "_SEARCH_S", 0.0)
    data = site.json("/history/main?path=plan")
    assert (data["rows"], data["late"], data["next"][0]["round"]) == ([], True, 20)
    page = site.get("/history/main?path=plan")
    assert "ended after its time, at round 20" in page
    (link,) = [link for link in is_text(page).links if "longer=True" in link]
    data = site.json(link.removeprefix(f"http://{HOST}"))
    assert ([row["commit"]["message"] for row in data["rows"]], data["late"]) == (["first"], False)


def test_history_pages_have_all_changes(tmp_path: Path):
    state = Versioned(Disk(tmp_path / "store"))
    for number in range(70):
        state["n"] = number
        state.commit(f"n {number}")
    site = Site(state.repository).sign_in()
    rows: list[str] = []
    path = "/history/main?path=n"
    while path:
        data = site.json(path)
        rows += [row["commit"]["message"] for row in data["rows"]]
        path = f"/history/{data['next'][0]['id']}?path={data['next'][0]['path']}" if data["next"] else ""
    assert rows == [f"n {n}" for n in reversed(range(70))]


def test_search_finds_texts_and_keys_in_any_case(site: Site):
    found = site.json("/search/main?q=QUESTION 3")["rows"]
    assert [row["path"] for row in found] == ["messages[7].content"]
    assert any(row["is_key"] for row in site.json("/search/main?q=theme")["rows"])
    assert site.json("/search/main?q=(")["rows"] == []
    site.get("/search/main?q=" + "x" * 300, 400)


def test_sessions_are_found_by_name_and_meta(site: Site, repository: Repository):
    assert [row["name"] for row in site.json("/?q=TRAIN")["rows"]] == ["what-if/train"]
    assert [row["name"] for row in site.json("/?prefix=what")["rows"]] == ["what-if/train"]
    assert [row["name"] for row in site.json(f"/?{urlencode({'where': 'kind=' + HOSTILE[0]})}")["rows"]] == []


def test_sessions_by_meta_end_in_time_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    repository = Repository(Disk(tmp_path / "store"))
    for number in range(30):
        Versioned(repository, branch=f"s{number:02}").commit(
            "x", meta={"step": number % 10, "flag": True}, allow_empty=True
        )
    site = Site(repository).sign_in()
    monkeypatch.setattr(reads, "_SEARCH_S", 0.0)
    for query in ("where=step%3D7", "where=step%3D7&by=name", "where=step%3D7&q=S", "where=step%3D7&prefix=s"):
        seen: list[str] = []
        after: str | None = ""
        asked = 0
        while after is not None:
            data = site.json(f"/?{query}&after={quote(after)}")
            seen += [row["name"] for row in data["rows"]]
            after, asked = data["next"], asked + 1
        assert (sorted(seen), asked) == (["s07", "s17", "s27"], 31), "one is examined at a time"
    assert "Not all sessions were examined" in site.get("/?where=step%3D7")
    assert [row["name"] for row in site.json("/?where=step%3Dtrue")["rows"]] == []
    repository.index_meta("step")
    for query in ("where=step%3D7", "where=step%3D7&by=name", "where=step%3D7&q=S"):
        data = site.json(f"/?{query}")
        assert (sorted(row["name"] for row in data["rows"]), data["next"]) == (["s07", "s17", "s27"], None)


class Gate(Wrapper):
    """A store that keeps reads of other objects than the known ones waiting until they are let through."""

    def __init__(self, store: Memory) -> None:
        super().__init__(store)
        self.known: set[str] = set()
        self.opened = threading.Event()
        self.opened.set()

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(keys)
        if self.opened.is_set():
            self.known |= set(wanted)
        elif not self.known.issuperset(wanted):
            self.opened.wait(20)
        return super().get_many(wanted)

    def get(self, key: str) -> bytes | None:
        return self.get_many([key]).get(key)


def test_what_a_search_finds_is_shown_before_the_search_has_ended():
    memory = Memory()
    state = Versioned(memory)
    rng = random.Random(1)
    state["list"] = [f"{number} {rng.randbytes(600).hex()}" for number in range(400)]
    state["list"][0] += " the first needle"
    state["list"][-1] += " the last needle"
    state.commit()
    gate = Gate(memory)
    next(Repository(gate).grep("needle", "main"))
    gate.opened.clear()
    site = Site(Repository(gate)).sign_in()
    shown: list[bytes] = []

    async def run() -> None:
        sent = {"host": HOST, "sec-fetch-site": "same-origin", "cookie": site.cookie}
        headers = [(name.encode(), text.encode()) for name, text in sent.items()]
        scope = scope_of("GET", "/search/main", b"q=needle", headers)
        asked = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if not asked.is_set():
                asked.set()
                return {"type": "http.request", "body": b"", "more_body": False}
            await asyncio.sleep(60)
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.body":
                shown.append(message["body"])
                if b"the first" in b"".join(shown):
                    gate.opened.set()

        await site.application(scope, receive, send)

    asyncio.run(run())
    assert gate.opened.is_set()
    before = next(at for at, part in enumerate(shown) if b"the first" in part)
    assert b"the last" not in b"".join(shown[: before + 1])
    whole = b"".join(shown).decode()
    assert "the last" in whole
    assert ">2</span>\nlines" in whole
    assert is_text(whole).text


def test_numbers_have_a_picture(tmp_path: Path):
    state = Versioned(Disk(tmp_path / "store"))
    state["line"] = np.array([0.0, 1.0, np.nan, 2.0])
    state["long"] = np.arange(100_000)
    state["same"] = np.zeros(10)
    state["grid"] = np.arange(10_000).reshape(100, 100)
    state["nothing"] = np.full(5, np.nan)
    state["words"] = np.array(["a", "b"])
    state["cube"] = np.zeros((2, 2, 2))
    state["large"] = np.zeros(2_000_000)
    state["table"] = pd.DataFrame({"city": ["<b>Rome</b>", None], "price": [1.5, 2.0]})
    state.commit()
    site = Site(state.repository).sign_in()
    id = site.page.repository.commit("main").id
    found = {key: site.json(f"/c/{id}/state?path={key}")["picture"] for key in state}
    kinds = {key: None if each is None else each["kind"] for key, each in found.items()}
    drawn = {"line": "line", "long": "line", "same": "line", "grid": "grid", "table": "table"}
    assert kinds == dict.fromkeys(("nothing", "words", "cube", "large")) | drawn
    assert found["line"]["missing"] == 1
    assert found["line"]["path"].count("M") == 2
    assert len(found["long"]["path"]) < 10_000
    assert found["table"]["rows"][0] == ["0", "<b>Rome</b>", "1.5"]
    for key in state:
        is_text(site.get(f"/c/{id}/state?path={key}"))
    of_changes = {each["path"]: each["picture"] for each in site.json(f"/c/{id}")["diff"]["changes"]}
    assert {key for key, each in of_changes.items() if each} == {"line", "same", "grid", "table"}, (
        "a large one is a preview"
    )
    assert is_text(site.get(f"/c/{id}")).text
    rows = {part["label"]: part["picture"] for part in site.json(f"/c/{id}/state")["parts_of"]}
    assert {key for key, each in rows.items() if each} == {"line", "long", "same"}


def test_unseen_characters_are_written_out():
    assert visible("a\u202eb\x1b\x00\u200bc\ud800") == "a⟦U+202E⟧b⟦U+001B⟧⟦U+0000⟧⟦U+200B⟧c⟦U+D800⟧"
    assert visible("line\n\ttab 👨‍👩‍👧 é") == "line\n\ttab 👨‍👩‍👧 é"


def test_a_budget_bounds_what_is_shown():
    budget = Budget(1000)
    shown = [budget.cut("<\u202e>" * 1000, 3000) for _ in range(50)]
    assert sum(len(visible(text)) for text in shown) < 40_000
    assert budget.left_out
    assert shown[-1]


def test_a_page_of_the_largest_texts_is_at_most_a_mebibyte(tmp_path: Path):
    state = Versioned(Disk(tmp_path / "store"))
    text = "<\u202e&'\"" * 4_000
    state["messages"] = [
        {"role": "user", "content": text, "x": {f"{n}{text[:500]}": text for n in range(6)}} for _ in range(60)
    ]
    state.commit(text[:16_000], author=text[:10_000])
    for message in state["messages"]:
        message["content"] = "\x00" + message["content"][::-1]
    id = state.commit("\u202e" * 20_000).id
    site = Site(state.repository).sign_in()
    for path in (
        "/",
        "/b/main",
        f"/c/{id}",
        f"/c/{id}/state",
        f"/c/{id}/state?path=messages",
        "/chat/main",
        "/blame/main?path=messages",
        "/history/main?path=messages",
        "/search/main?q=%26",
        "/compare/main/main~1",
        "/diff/main~1..main",
        "/events/main",
    ):
        answer = site.ask("GET", path)
        assert (answer.status_code, len(answer.content) <= LARGEST) == (200, True), (path, len(answer.content))
