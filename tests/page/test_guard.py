"""The guard refuses the same on every path of the table, on its own paths, and on those that do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.page import HOST, Site, make_store
from versioned_state.server.page import static
from versioned_state.server.page.app import ROUTES
from versioned_state.server.page.guard import OneViewer, _fields, hosts_of

pytestmark = pytest.mark.every_case

ID = "0" * 48


def filled(path: str) -> str:
    """A path of the table with something in place of each parameter."""
    for name, text in (
        ("{name:path}", "main"),
        ("{rev:path}", "main"),
        ("{range:path}", "main..main"),
        ("{id}", ID),
        ("{pair:path}", "a/b"),
        ("{verb}", "undo"),
    ):
        path = path.replace(name, text)
    assert "{" not in path, f"say in this test what stands for the parameter of {path}"
    return path


PATHS = [
    *(pytest.param(filled(row.path), id=row.path) for row in ROUTES),
    "/login",
    "/logout",
    "/static/0/page.js",
    f"/static/{static.address('page.css')}",
    "/nothing/there",
    "/../etc/passwd",
    "//",
]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(make_store(tmp_path_factory.mktemp("guard") / "store")).sign_in()


@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_host_is_refused_everywhere(site: Site, path: str):
    for host in (
        "evil.example",
        "evil.example:8421",
        "127.0.0.1",
        "127.0.0.1:80",
        f"{HOST}.evil.example",
        f"evil@{HOST}",
    ):
        for method in METHODS:
            assert site.ask(method, path, {"host": host}).status_code == 421, (method, host)


@pytest.mark.parametrize("path", PATHS)
def test_another_site_is_refused_everywhere(site: Site, path: str):
    for from_site in ("cross-site", "same-site", "anything"):
        for method in METHODS:
            assert site.ask(method, path, {"sec-fetch-site": from_site}).status_code == 403, (method, from_site)


@pytest.mark.parametrize("path", PATHS)
def test_nobody_without_the_cookie_gets_anything(site: Site, path: str):
    for cookie in ("", "vstate-8421=", "vstate-8421=wrong", "vstate-8420=" + site.cookie.partition("=")[2]):
        for method in ("GET", "HEAD", "POST"):
            answer = site.ask(method, path, {"cookie": cookie})
            assert answer.status_code == 401, (method, cookie)
            assert "what-if" not in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_a_post_without_its_origin_or_its_token_is_refused_everywhere(site: Site, path: str):
    for origin in ("", "null", "http://evil.example", "http://127.0.0.1:80", f"http://{HOST}.evil.example"):
        assert site.ask("POST", path, {"origin": origin}).status_code == 403, origin
    if path != "/login":
        assert site.ask("POST", path, content="token=wrong").status_code == 403
        assert site.ask("POST", path, content="a=" + "b" * (1 << 17)).status_code == 413
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        assert site.ask(method, path).status_code == 405, method


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_the_headers(site: Site, path: str):
    for headers in ({}, {"cookie": ""}, {"host": "evil.example"}):
        got = site.ask("GET", path, headers).headers
        policy = got["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "trusted-types 'none'" in policy or "sandbox" in policy
        assert got["x-content-type-options"] == "nosniff"
        assert got["referrer-policy"] == "same-origin"
        assert got["cross-origin-opener-policy"] == got["cross-origin-resource-policy"] == "same-origin"
        assert not [name for name in got if name.startswith("access-control-")]
        assert got["cache-control"] == "no-store" or path.startswith("/static/")


def test_a_browser_without_fetch_metadata_is_served(site: Site):
    for given in ("", "none"):  # over HTTP, but for loopback, browsers send none
        assert site.ask("GET", "/", {"sec-fetch-site": given}).status_code == 200


def test_the_link_signs_in_once():
    access = OneViewer(1)
    once = {"once": access.link().partition("=")[2]}
    assert access.sign_in({"once": "wrong"}, "GET") is None
    assert access.sign_in(once, "POST") is None
    cookie = access.sign_in(once, "GET")
    assert cookie is not None
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert access.sign_in(once, "GET") is None


def test_the_link_is_valid_for_five_minutes():
    now = 0.0
    access = OneViewer(1, clock=lambda: now)
    now = 301.0
    assert access.sign_in({"once": access.link().partition("=")[2]}, "GET") is None


def test_odd_cookies_of_other_servers_do_not_hide_ours(site: Site):
    assert site.ask("GET", "/", {"cookie": f'a="b; =; x[y]=;; {site.cookie}; vstate-99=z'}).status_code == 200


def test_the_address_after_signing_in_has_no_secret(tmp_path: Path):
    site = Site(make_store(tmp_path / "store"))
    answer = site.ask("GET", site.access.link())
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_fields_of_a_query_are_the_first_of_each_name():
    assert _fields(b"a=1&a=2&b=%3Cb%3E&c") == {"a": "1", "b": "<b>", "c": ""}
    assert _fields(b"&".join(b"x%d=1" % n for n in range(200))) == {}
    assert _fields(b"\xff=1") == {}


@pytest.mark.parametrize(
    ("host", "port", "allowed", "served", "not_served"),
    [
        ("127.0.0.1", 8421, (), {"127.0.0.1:8421", "localhost:8421"}, {"127.0.0.1", "localhost"}),
        ("0.0.0.0", 8421, ("box.lan",), {"box.lan:8421"}, {"box.lan", "evil.example:8421"}),
        ("127.0.0.1", 80, (), {"127.0.0.1", "127.0.0.1:80"}, {"127.0.0.1:8421"}),
        ("::1", 8421, ("proxy.example:443",), {"[::1]:8421", "proxy.example:443"}, {"proxy.example:8421"}),
    ],
)
def test_hosts_are_exact(host, port, allowed, served, not_served):
    hosts = hosts_of(host, port, allowed)
    assert served <= hosts
    assert not hosts & not_served
