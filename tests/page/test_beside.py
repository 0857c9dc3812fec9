"""The page beside the API: a token shows its user's sessions, whatever the address says, and the API is as it was."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.types import ASGIApp

from tests.support import page
from tests.support.page import HOST
from versioned_state import Memory, Repository, Versioned, branch_name
from versioned_state.server.page.app import ROUTES
from versioned_state.server.page.beside import Beside
from versioned_state.server.tokens import Grant, Tokens

pytestmark = pytest.mark.every_case

TOKENS = {
    "alice": Grant("alice", frozenset({"read"})),
    "bob": Grant("bob", frozenset({"read", "write"})),
    "all": Grant("*", frozenset({"read"})),
    "writer": Grant("alice", frozenset({"write"})),
}


FORM = {"content-type": "application/x-www-form-urlencoded", "origin": f"http://{HOST}"}


async def api(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def repository() -> Repository:
    repository = Repository(Memory())
    for user in ("alice", "bob", "alice2"):
        for session in ("trip", "x/y"):
            state = Versioned(repository, branch=branch_name(user, session))
            for number in range(3):
                state["secret"] = f"of {user} {number}"
                state.commit(f"{user} says {number}")
    return repository


@pytest.fixture(scope="module")
def application(repository: Repository) -> ASGIApp:
    return Beside(api, repository, lambda: Tokens(TOKENS), "127.0.0.1", 8421, ["agents.example:443"])


@pytest.fixture(scope="module")
def ask(application: ASGIApp) -> Any:
    def run(
        method: str, path: str, token: str = "", headers: Mapping[str, str] | None = None, **options: Any
    ) -> httpx.Response:
        sent = {
            "host": HOST,
            "sec-fetch-site": "same-origin",
            "cookie": f"vstate-token={token}" if token else "",
            **(headers or {}),
        }

        return page.ask(application, method, path, sent, **options)

    return run


def test_a_token_shows_the_sessions_of_its_user_only(ask):
    shown = ask("GET", "/ui", "alice").text
    assert "alice says 2" in shown
    assert "bob" not in shown
    assert "alice2" not in shown
    assert "bob says 2" in ask("GET", "/ui/", "all").text


def test_another_users_commits_are_not_there_by_any_address(ask, repository: Repository):
    theirs, mine = branch_name("bob", "trip"), branch_name("alice", "trip")
    head, own = repository.branches[theirs], repository.branches[mine]
    fills = {
        "{name:path}": [quote(theirs)],
        "{id}": [head.id, repository.commit(f"{theirs}~1").id, head.short],
        "{rev:path}": [
            quote(theirs),
            head.id,
            quote(theirs) + "~1",
            quote(mine) + "/../../bob/trip",
            "HEAD",
            ":/bob",
            f"{own.id}~0",
        ],
        "{range:path}": [f"{quote(mine)}..{quote(theirs)}", f"{own.id}..{head.id}", f"{quote(theirs)}.."],
        "{pair:path}": [f"{quote(mine, safe='')}/{quote(theirs, safe='')}", f"{head.id}/{head.id}"],
    }
    asked = 0
    for row in ROUTES:
        for name, values in fills.items():
            if name not in row.path or row.edits:
                continue
            for value in values:
                for on in ("", mine, theirs, branch_name("alice", "none"), branch_name("bob")):
                    answer = ask("GET", f"/ui{row.path.replace(name, value)}?on={quote(on)}&path=secret&q=bob", "alice")
                    assert answer.status_code in (400, 404), (row.path, value, on, answer.status_code)
                    assert "bob says" not in answer.text
                    assert "of bob" not in answer.text
                    asked += 1
    assert asked > 100
    for cursor in (head.id, f"{own.id}.{head.id}", head.short):
        assert ask("GET", f"/ui/b/{quote(mine)}?after={cursor}", "alice").status_code == 404
    assert ask("GET", f"/ui/b/{quote(mine)}?after={own.id}", "alice").status_code == 200
    assert ask("GET", "/ui/?q=bob", "alice").text.count("bob says") == 0
    assert ask("GET", "/ui/?prefix=../bob", "alice").text.count("bob says") == 0
    assert ask("GET", f"/ui/?after={quote(theirs)}&by=name", "alice").text.count("bob says") == 0


def test_ones_own_commits_are_there_by_the_branch(ask, repository: Repository):
    mine = branch_name("alice", "trip")
    commit = repository.commit(f"{mine}~1")
    on = f"on={quote(mine)}"
    assert "alice says 1" in ask("GET", f"/ui/c/{commit.id}?{on}", "alice").text
    assert "of alice 1" in ask("GET", f"/ui/c/{commit.id}/state?path=secret&{on}", "alice").text
    for kind in ("blame", "history", "chat", "events", "search"):
        assert ask("GET", f"/ui/{kind}/{commit.id}?path=secret&{on}", "alice").status_code == 200
    other = branch_name("alice", "x/y")
    assert ask("GET", f"/ui/compare/{quote(mine, safe='')}/{quote(other, safe='')}", "alice").status_code == 200
    shown = ask("GET", f"/ui/b/{quote(mine)}", "alice").text
    assert f"/ui/c/{repository.branches[mine].id}?on=" in shown


def test_only_a_token_with_the_scope_read_signs_in(ask):
    answer = ask("POST", "/ui/login", headers=FORM, content="token=alice")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")
    assert answer.headers["set-cookie"] == "vstate-token=alice; HttpOnly; SameSite=Strict; Path=/ui"
    for token in ("", "none", "writer", "alice; Path=/"):
        refused = ask("POST", "/ui/login", headers=FORM, content=f"token={quote(token)}")
        assert refused.status_code == 401
        assert "set-cookie" not in refused.headers
    assert (
        ask("POST", "/ui/login", headers={**FORM, "origin": "http://evil.example"}, content="token=alice").status_code
        == 403
    )
    assert ask("GET", "/ui/", "writer").status_code == 401
    assert 'type="password"' in ask("GET", "/ui/").text


def token_of_form(shown: str) -> str:
    (token,) = re.findall(
        r'action="/ui/logout" method="post">\s*<input type="hidden" name="token" value="([0-9a-f]+)">', shown
    )
    return str(token)


def test_a_form_on_every_page_signs_out(ask):
    token = token_of_form(ask("GET", "/ui/", "alice").text)
    for path in ("/ui/b/" + quote(branch_name("alice", "trip")), "/ui/c/nothing", "/ui/no/such/page"):
        assert token_of_form(ask("GET", path, "alice").text) == token
    answer = ask("POST", "/ui/logout", "alice", FORM, content=f"token={token}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")
    assert answer.headers["set-cookie"] == "vstate-token=; Max-Age=0; HttpOnly; SameSite=Strict; Path=/ui"
    assert "/ui/logout" not in ask("GET", "/ui/").text


def test_nobody_else_signs_one_out(ask):
    token = token_of_form(ask("GET", "/ui/", "alice").text)
    for method, headers, content, status in (
        ("GET", {}, "", 404),
        ("POST", {**FORM, "origin": "http://evil.example"}, f"token={token}", 403),
        ("POST", FORM, "token=wrong", 403),
        ("POST", FORM, f"token={token_of_form(ask('GET', '/ui/', 'bob').text)}", 403),
    ):
        answer = ask(method, "/ui/logout", "alice", headers, content=content)
        assert answer.status_code == status
        assert "set-cookie" not in answer.headers


def test_behind_tls_the_cookie_and_the_forms_are_for_https_alone(repository: Repository):
    application = Beside(api, repository, lambda: Tokens(TOKENS), "127.0.0.1", 8421, tls=True)

    def ask(method: str, path: str, headers: Mapping[str, str], **options: Any) -> httpx.Response:
        return page.ask(application, method, path, {"host": HOST, **headers}, scheme="https", **options)

    secure = {**FORM, "origin": f"https://{HOST}"}
    cookie = ask("POST", "/ui/login", secure, content="token=alice").headers["set-cookie"]
    assert cookie == "__Secure-vstate-token=alice; Secure; HttpOnly; SameSite=Strict; Path=/ui"
    shown = ask("GET", "/ui/", {"cookie": cookie.partition(";")[0]})
    assert "alice says 2" in shown.text
    gone = ask(
        "POST",
        "/ui/logout",
        {**secure, "cookie": cookie.partition(";")[0]},
        content=f"token={token_of_form(shown.text)}",
    )
    assert (
        gone.headers["set-cookie"] == "__Secure-vstate-token=; Max-Age=0; Secure; HttpOnly; SameSite=Strict; Path=/ui"
    )
    assert ask("POST", "/ui/login", FORM, content="token=alice").status_code == 403
    assert ask("GET", "/ui/", {"cookie": "vstate-token=alice"}).status_code == 401


def test_no_header_of_a_request_says_that_there_is_tls(ask):
    forwarded = {**FORM, "x-forwarded-proto": "https", "forwarded": "proto=https"}
    cookie = ask("POST", "/ui/login", headers=forwarded, content="token=alice").headers["set-cookie"]
    assert cookie == "vstate-token=alice; HttpOnly; SameSite=Strict; Path=/ui"


def test_the_guard_stands_in_front_of_the_page_and_not_of_the_api(ask):
    assert ask("GET", "/ui/", "alice", {"host": "evil.example"}).status_code == 421
    assert ask("GET", "/ui/", "alice", {"host": "agents.example"}).status_code == 200
    assert ask("GET", "/ui/", "alice", {"sec-fetch-site": "cross-site"}).status_code == 403
    assert ask("POST", "/ui/", "alice", {"origin": f"http://{HOST}"}).status_code == 403
    assert ask("GET", "/health", headers={"host": "evil.example"}).status_code == 204
    assert ask("GET", "/uiother").status_code == 204
