"""The HTTP API: tokens, scopes, the order of refusals, forms of bodies, ids, answers that tell nothing."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx
import pytest

from tests.support.exact import same
from tests.support.services.served import ALICE, ALL, BOB, READER
from tests.support.services.zygote import Forked, Zygote
from versioned_state.errors import IdempotencyConflictError
from versioned_state.server.operations import OPERATIONS
from versioned_state.services.remote import bodies
from versioned_state.services.remote.errors import error_of

LIMIT = 100_000
HELLO = {"role": "user", "content": [{"type": "text", "text": "hello"}]}


@pytest.fixture(scope="module")
def server(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forked]:
    """A server in which bob has a state, a history and a memory under "trip", and alice has them under "mine"."""
    with zygote.serve(f"disk:{tmp_path_factory.mktemp('http') / 'store'}", "--max-body", str(LIMIT)) as server:
        for user, session in (("bob", "trip"), ("alice", "mine")):
            ids = {"user_id": user, "session_id": session}
            with server.client(ALL) as client:
                client.post("/v1/state", params=ids, json={"mood": "calm"}).raise_for_status()
                client.post("/v1/history/sessions", params=ids).raise_for_status()
                client.post("/v1/history/messages", params=ids, json=HELLO).raise_for_status()
                client.post("/v1/memory", params=ids, json=[HELLO]).raise_for_status()
        yield server


@pytest.fixture
def client(server: Forked) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def answered(response: httpx.Response) -> tuple[int, Any, dict[str, str]]:
    """Return all that a client sees of an answer, without the id of the request and the time."""
    return (
        response.status_code,
        response.content,
        {k: v for k, v in response.headers.items() if k not in ("x-request-id", "date")},
    )


# Who may call


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer nobody",
        "Basic token-of-alice",
        "token-of-alice",
        "Bearer token-of-alice x",
        "Bearer é",
    ],
)
@pytest.mark.parametrize("path", ["/v1/state", "/v1/history/session", "/nowhere"])
def test_without_a_known_token_nothing_is_said(server: Forked, header: str | None, path: str):
    headers = {} if header is None else {b"Authorization": header.encode("latin-1")}
    with server.client(None) as client:
        answers = [client.request(method, path, headers=headers) for method in ("GET", "POST", "DELETE", "PUT")]
    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}
    assert {answer.json()["error"]["type"] for answer in answers} == {"AccessDeniedError"}


def test_the_document_and_the_health_are_open(server: Forked):
    with server.client(None) as client:
        assert client.get("/health").json() == {"status": "ok"}
        document = client.get("/openapi.json").json()
    described = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert described == {(each.path, each.method.lower()) for each in OPERATIONS} | {("/health", "get")}


def test_the_scheme_of_a_token_is_in_any_case(server: Forked):
    with server.client(None) as client:
        assert client.get("/v1/state?session_id=mine", headers={"Authorization": f"bEARER  {ALICE}"}).status_code == 200


def test_a_token_needs_the_scope(server: Forked):
    with server.client(READER) as client:
        assert client.get("/v1/state?session_id=mine").json() == {"mood": "calm"}
        assert client.post("/v1/memory/search", json={"messages": [HELLO]}).json()[0]["content"] == [
            {"type": "text", "text": "hello"}
        ]
        for answer in (
            client.post("/v1/state?session_id=mine", json={}),
            client.post("/v1/state", content=b"{", headers={"Content-Type": "text/plain"}),
            client.delete("/v1/state?session_id=mine"),
            client.post("/v1/history/messages?session_id=mine", json=HELLO),
            client.post("/v1/memory", json=[HELLO]),
            client.delete("/v1/memory"),
        ):
            assert answer.status_code == 403
            assert 'scope="write"' in answer.headers["www-authenticate"]
        assert client.get("/v1/state/rounds?session_id=mine").json() == [1]


def test_a_token_for_every_user_needs_to_say_which(server: Forked):
    with server.client(ALL) as client:
        assert client.get("/v1/state").status_code == 422
        assert client.get("/v1/state?user_id=bob&session_id=trip").json() == {"mood": "calm"}


# The one answer

NEEDS_SESSION = [
    ("GET", "/v1/state"),
    ("DELETE", "/v1/state"),
    ("GET", "/v1/state/rounds"),
    ("GET", "/v1/history/session"),
    ("DELETE", "/v1/history/session"),
    ("POST", "/v1/history/messages"),
    ("DELETE", "/v1/memory"),
]


@pytest.mark.parametrize(("method", "path"), NEEDS_SESSION)
@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"params": {"zebra": "1"}},
        {"params": {"round_id": "x", "last": "y"}},
        {"headers": {"Accept": "text/html"}},
        {"headers": {"Content-Type": "text/plain"}, "content": b"{"},
    ],
    ids=["plain", "unknown parameter", "bad parameter", "no form", "bad body"],
)
def test_another_users_session_looks_like_one_that_is_not_there(
    server: Forked, method: str, path: str, extra: dict[str, Any]
):
    given = {"json": HELLO} if method == "POST" and "content" not in extra else {}
    found = set()
    for token in (ALICE, READER):
        with server.client(token) as client:
            for user, session in (("bob", "trip"), ("bob", "none"), ("alice", "none"), ("nobody", "trip")):
                params = {"user_id": user, "session_id": session, **extra.get("params", {})}
                answer = client.request(method, path, **{**extra, **given, "params": params})
                status, body, headers = answered(answer)
                found.add((status, body, tuple(sorted(headers.items()))))
    [(status, body, _)] = found
    assert status == 404
    assert b"bob" not in body
    assert b"trip" not in body


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_no_operation_reaches_another_user(server: Forked, operation: Any):
    body: dict[str, Any] = (
        {"content": b"[]", "headers": {"Content-Type": "application/json"}} if operation.method == "POST" else {}
    )
    with server.client(ALICE) as client:
        answers = [
            client.request(operation.method, operation.path, params={"user_id": user, "session_id": session}, **body)
            for user, session in (("bob", "trip"), ("bob", "none"), ("nobody", "trip"))
        ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    with server.client(BOB) as client:
        assert client.get("/v1/state?session_id=trip").json() == {"mood": "calm"}
        assert client.get("/v1/state/rounds?session_id=trip").json() == [1]
        assert len(client.get("/v1/history/session?session_id=trip").json()["messages"]) == 1
        assert len(client.post("/v1/memory/list", json={}).json()) == 1


def test_a_second_user_in_the_query_does_not_help(client: httpx.Client):
    for params in ("user_id=alice&user_id=bob&session_id=trip", "user_id=bob&user_id=alice&session_id=trip"):
        assert client.get(f"/v1/state?{params}").status_code == 404
    assert client.get("/v1/state?user_id=alice&user_id=alice&session_id=mine").status_code == 422


# Sizes


def test_a_body_that_is_too_large_is_refused_before_the_session_is_looked_for(client: httpx.Client):
    for params in ({"session_id": "mine"}, {"user_id": "bob"}, {"zebra": "1"}):
        answer = client.post("/v1/state", params=params, content=b"x" * (LIMIT + 1))
        assert (answer.status_code, answer.json()["error"]["type"]) == (413, "LimitExceededError")
    assert client.post("/nowhere", content=b"x" * (LIMIT + 1)).status_code == 413
    assert client.get("/v1/state?session_id=mine").json() == {"mood": "calm"}


def exchange(port: int, *pieces: bytes) -> bytes:
    """What a server says to some bytes, before the connection ends, or its whole answer is there."""
    with closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.settimeout(20)
        for piece in pieces:
            connection.sendall(piece)
        said = b""
        while b"\r\n\r\n" not in said or b'"facts"' not in said:
            more = connection.recv(65536)
            if not more:
                break
            said += more
        return said


@pytest.mark.parametrize("token", [ALICE, "nobody"])
def test_a_request_that_two_servers_may_read_as_two_is_refused_and_its_connection_ends(server: Forked, token: str):
    head = (
        f"POST /v1/state?session_id=two HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/json\r\n"
    )
    said = exchange(
        server.port, f"{head}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode()
    )
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in said
    with server.client() as client:
        assert client.get("/v1/state?session_id=two").status_code == 404


@pytest.mark.parametrize("path", ["/v1/state/rounds?session_id=mine", "/health"])
def test_the_head_of_a_request_has_a_limit(server: Forked, path: str):
    with server.client() as client:
        assert client.get(path, headers={"X-Long": "x" * 60_000}).status_code == 200
        answer = client.get(path, headers={"X-Long": "x" * 66_000})
        assert (answer.status_code, answer.json()["error"]["type"]) == (431, "LimitExceededError")
        assert client.get(path, headers={f"X-{number}": "x" * 100 for number in range(700)}).status_code == 431
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\nX: ".encode() + b"x" * 40_000
    # the same if it comes in pieces
    with closing(socket.create_connection(("127.0.0.1", server.port), timeout=20)) as connection:
        for start in range(0, len(head), 10_000):
            connection.sendall(head[start : start + 10_000])
            time.sleep(0.01)
        connection.sendall(b"\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")


def test_a_compressed_body_is_refused(client: httpx.Client):
    for encoding, status in (("gzip", 415), ("br, gzip", 415), ("Identity", 200)):
        headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
        assert client.post("/v1/state?session_id=compressed", content=b"{}", headers=headers).status_code == status


def test_a_chunked_body_is_refused_before_it_ends(server: Forked):
    head = (
        f"POST /v1/state HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\nContent-Type: application/json\r\n"
    ).encode()
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n" % (LIMIT // 2) + b"x" * (LIMIT // 2) + b"\r\n"
    said = exchange(server.port, head, chunk, chunk, chunk)
    assert said.startswith(b"HTTP/1.1 413 ")


def test_a_declared_length_is_refused_before_a_byte_of_the_body(server: Forked):
    head = f"POST /v1/state HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\nContent-Length: {LIMIT + 1}\r\n"
    assert exchange(server.port, f"{head}\r\n".encode()).startswith(b"HTTP/1.1 413 ")
    said = exchange(server.port, f"{head}Expect: 100-continue\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 413 ")
    assert exchange(server.port, head.replace(ALICE, "nobody").encode() + b"\r\n").startswith(b"HTTP/1.1 401 ")


# Forms


@pytest.mark.parametrize(
    ("value", "path"),
    [((1, 2), "a.b[1]"), ({1: 2}, "a.b[1]"), (float("inf"), "a.b[1]"), (b"x", "a.b[1]"), ({3}, "a.b[1]")],
)
def test_json_never_changes_a_type_silently(client: httpx.Client, value: Any, path: str):
    state = bodies.encode({"a": {"b": [0, value]}})
    client.post("/v1/state?session_id=forms", content=state, headers={"Content-Type": bodies.NATIVE}).raise_for_status()
    answer = client.get("/v1/state?session_id=forms", headers={"Accept": "application/json"})
    assert answer.status_code == 406
    assert answer.json()["error"]["facts"]["path"] == path
    # A client that takes both gets the form that holds it.
    for accept in ("*/*", f"application/json, {bodies.NATIVE};q=0.1", ""):
        answer = client.get("/v1/state?session_id=forms", headers={"Accept": accept})
        assert answer.headers["content-type"] == bodies.NATIVE
        assert bodies.decode(answer.content) == {"a": {"b": [0, value]}}


def test_json_comes_back_as_it_was(client: httpx.Client):
    state = {"a": [1, -0.0, 2**70, "\ud800", "é\0", None, True, {"": {}}], "b": 1e-300}
    answer = client.post(
        "/v1/state?session_id=json", content=json.dumps(state), headers={"Content-Type": "application/json"}
    )
    assert answer.json() == {"round_id": 1}
    answer = client.get("/v1/state?session_id=json")
    assert answer.headers["content-type"] == "application/json"
    assert same(answer.json(), state)


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("text/html", 406),
        ("application/json;q=0", 406),
        ("application/json;q=2", 400),
        ("application/json;q=x", 400),
        ("APPLICATION/JSON; charset=utf-8", 200),
        ("application/*", 200),
        ("text/html, */*;q=0.1", 200),
    ],
)
def test_the_accepted_form(client: httpx.Client, accept: str, status: int):
    assert client.get("/v1/state?session_id=mine", headers={"Accept": accept}).status_code == status


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"", 400),
        ("application/json", b"{", 400),
        ("application/json", b'{"a": NaN}', 400),
        ("application/json", b'{"a": 1e999}', 400),
        ("application/json", b'{"a": 1, "a": 2}', 400),
        ("application/json", b"[" * 50_000, 400),
        ("application/json", b'{"a": ' + b"9" * 5000 + b"}", 400),
        ("application/json", b"\xff", 400),
        ("application/json", b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", 422),
        ("application/json", b"[]", 422),
        ("application/json", b"null", 422),
        (bodies.NATIVE, b"", 400),
        (bodies.NATIVE, b"\xc1", 400),
        (bodies.NATIVE, b"\x81\xa1a\xd4\x20\x00", 400),
        (bodies.NATIVE, bodies.encode([1]), 422),
        (bodies.NATIVE, bodies.encode({1: 2}), 422),
        ("text/plain", b"{}", 415),
        ("", b"{}", 415),
        ("application/x-www-form-urlencoded", b"a=1", 415),
    ],
)
def test_a_body_that_is_not_a_state(client: httpx.Client, kind: str, body: bytes, status: int):
    answer = client.post("/v1/state?session_id=bad", content=body, headers={"Content-Type": kind} if kind else {})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["remains"] in ("nothing was changed", "nothing was saved", "")
    assert client.get("/v1/state?session_id=bad").status_code == 404


def test_a_pickle_is_neither_stored_nor_loaded(client: httpx.Client):
    object_cell = b"\xc7\x0c\x16" + b"\x95\xa1x\xc0\xc2\xd4\x01\x00\xc2\xd4\x01\x00"
    answer = client.post("/v1/state", content=b"\x81\xa1a" + object_cell, headers={"Content-Type": bodies.NATIVE})
    assert answer.status_code in (400, 422)
    assert client.get("/v1/state").status_code == 404


def test_a_class_is_not_imported_by_the_server_and_passes_through(client: httpx.Client, server: Forked):
    from versioned_state import Tagged

    state = {"x": Tagged("antigravity:Nothing", {"a": (1,)})}
    client.post(
        "/v1/state?session_id=class", content=bodies.encode(state), headers={"Content-Type": bodies.NATIVE}
    ).raise_for_status()
    answer = client.get("/v1/state?session_id=class", headers={"Accept": bodies.NATIVE})
    assert bodies.decode(answer.content) == state
    assert not any("antigravity" in line for line in server.log)


# Ids and parameters


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ("round_id=x", 422),
        ("round_id=", 422),
        ("round_id=1.0", 422),
        ("round_id=%D9%A1", 422),  # a digit, but not one of ASCII
        ("round_id=1_0", 422),
        ("round_id=" + "9" * 5000, 422),
        ("round_id=1&round_id=2", 422),
        ("zebra=1", 422),
        ("session_id=%FF", 400),
        ("%FF=1", 400),
        ("round_id=" + "9" * 4000, 404),
        ("round_id=-1", 404),
        ("round_id=1", 200),
        ("round_id=1" + 62 * "&", 200),
        ("round_id=1" + 63 * "&", 400),  # 65 with the session, though most of them are empty
    ],
)
def test_parameters(client: httpx.Client, params: str, status: int):
    assert client.get(f"/v1/state?session_id=mine&{params}").status_code == status


def test_what_is_no_operation(client: httpx.Client):
    assert client.get("/nowhere").status_code == 404
    assert client.get("/v1/state/").status_code == 404
    answer = client.put("/v1/state", json={})
    assert (answer.status_code, answer.json()["error"]["type"]) == (405, "InvalidArgumentError")
    assert set(answer.headers["allow"].replace(",", " ").split()) == {"GET", "HEAD", "POST", "DELETE"}
    assert client.head("/v1/state?session_id=mine").status_code == 200


@pytest.mark.parametrize(
    "message", [{"role": "nobody"}, {"content": 1}, {"content": [{"type": "x"}]}, [HELLO, {"role": 1}]]
)
def test_a_message_that_is_not_valid_appends_nothing_and_shows_no_value(client: httpx.Client, message: Any):
    answer = client.post("/v1/history/messages?session_id=mine", json=message)
    assert answer.status_code == 422
    assert "nobody" not in answer.text
    assert len(client.get("/v1/history/session?session_id=mine").json()["messages"]) == 1


def test_the_key_of_a_write_says_nothing_of_other_writes(client: httpx.Client):
    ids, key = {"session_id": "keys"}, {"Idempotency-Key": "one"}
    assert client.post("/v1/state", params=ids, json={"n": 1}, headers=key).json() == {"round_id": 1}
    assert client.delete("/v1/state", params={**ids, "round_id": 1}, headers=key).status_code == 204
    assert client.get("/v1/state", params=ids).status_code == 404
    assert client.post("/v1/state", params=ids, json={"n": 2}, headers={"Idempotency-Key": "two"}).json()[
        "round_id"
    ] in (1, 2)
    for session in ("keys a", "keys b"):
        assert client.post("/v1/memory", params={"session_id": session}, json=[HELLO], headers=key).status_code == 204
        assert client.delete("/v1/memory", params={"session_id": session}).status_code == 204


def test_writes_to_two_sessions_with_one_key_are_both_done(client: httpx.Client):
    big = {"text": "x" * (LIMIT // 2)}

    def save(session: str, key: str) -> int:
        return client.post(
            "/v1/state", params={"session_id": session}, json=big, headers={"Idempotency-Key": key}
        ).status_code

    with ThreadPoolExecutor(2) as threads:
        for number in range(5):
            sessions = [f"both {number} {each}" for each in "ab"]
            assert [*threads.map(save, sessions, [f"b{number}"] * 2)] == [200, 200]
            for session in sessions:
                assert client.get("/v1/state", params={"session_id": session}).status_code == 200


def test_another_request_with_the_key_of_a_write_is_refused(client: httpx.Client):
    ids, key = {"session_id": "reused"}, {"Idempotency-Key": "one"}
    assert client.post("/v1/state", params=ids, json={"n": 1}, headers=key).json() == {"round_id": 1}
    for params, body in ((ids, {"n": 2}), (ids | {"ttl_seconds": "60"}, {"n": 1})):
        for more in ({}, {"Idempotency-Age": "5"}):
            answer = client.post("/v1/state", params=params, json=body, headers=key | more)
            assert answer.status_code == 422
            assert isinstance(error_of(answer.json()), IdempotencyConflictError)
    assert client.post("/v1/state", params=ids, json={"n": 1}, headers=key).json() == {"round_id": 1}
    assert client.get("/v1/state", params=ids).json() == {"n": 1}


def test_a_request_with_two_tokens_is_refused(client: httpx.Client):
    headers = [("Authorization", client.headers["authorization"]), ("Authorization", "Bearer other")]
    answer = httpx.get(client.base_url.join("/v1/state/sessions"), headers=headers)
    assert answer.status_code == 400
    assert "2 Authorization headers" in answer.json()["error"]["what"]


def test_a_session_without_an_id_is_created_once(client: httpx.Client):
    made = [
        client.post("/v1/history/sessions", headers={"Idempotency-Key": key}).json()["id"] for key in ("s1", "s1", "s2")
    ]
    assert made[0] == made[1] != made[2]


# Ids of requests, and the log


def test_each_answer_has_the_id_of_its_request(client: httpx.Client):
    assert client.get("/health", headers={"X-Request-ID": "abc-1"}).headers["x-request-id"] == "abc-1"
    made = {
        client.get("/nowhere", headers={"X-Request-ID": id}).headers["x-request-id"] for id in ("", "a b", "x" * 200)
    }
    assert len(made) == 3
    assert not made & {"", "a b", "x" * 200}


def test_the_log_tells_nothing_of_users(server: Forked, client: httpx.Client):
    secret = "SECRET"
    client.post(f"/v1/state?session_id={secret}", json={secret: secret})
    client.get(f"/v1/state?round_id={secret}&session_id={secret}")
    client.get(f"/{secret}")
    client.get("/v1/state", headers={"Authorization": f"Bearer {secret}", "X-Request-ID": "last"})
    records = server.records()
    while records[-1].get("request_id") != "last":
        records = server.records()
    assert secret not in json.dumps(records)
    assert ALICE not in json.dumps(records)
    last = records[-1]
    assert (last["event"], last["method"], last["status"], last["error"]) == (
        "request",
        "GET",
        401,
        "AccessDeniedError",
    )
    assert {"time", "level", "ms", "received", "sent", "path"} <= last.keys()
