"""A small S3 server in memory, that honours conditional requests and fails on purpose.

Run as a program: it prints its port.

What it has of S3: PUT with `If-None-Match: *` and `If-Match`, GET, DELETE, ListObjectsV2 and DeleteObjects, strong
consistency, ETags. One thread serves all connections, so a condition and its write are one step. Signatures are not
checked.

Besides, under `/-/`: POST `faults` takes a JSON list of `tests.support.servers.s3.Fault` and cuts what stalled before;
GET `log` gives the requests since it was last asked, each as [method, key].
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from bisect import bisect_right, insort
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "states"

Answer = tuple[int, bytes, str]  # status, body, ETag or ""

CODES = {
    400: "AuthorizationHeaderMalformed",
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    500: "InternalError",
    503: "SlowDown",
    507: "StorageFull",
}


class Bucket:
    """Objects by key, and the keys in order."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.ordered: list[str] = []

    def put(self, key: str, body: bytes, headers: dict[str, str]) -> Answer:
        found = self.objects.get(key)
        if "if-none-match" in headers and found is not None:
            return refusal(412)
        if "if-match" in headers:
            if found is None:
                return refusal(404)
            if found[1] != headers["if-match"]:
                return refusal(412)
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        if found is None:
            insort(self.ordered, key)
        self.objects[key] = (body, etag)
        return 200, b"", etag

    def get(self, key: str) -> Answer:
        found = self.objects.get(key)
        return refusal(404) if found is None else (200, *found)

    def delete(self, key: str) -> Answer:
        if self.objects.pop(key, None) is not None:
            self.ordered.remove(key)
        return 204, b"", ""

    def delete_several(self, body: bytes) -> Answer:
        for key in re.findall(r"<Key>(.*?)</Key>", body.decode()):
            self.delete(key)
        return 200, b"<DeleteResult></DeleteResult>", ""

    def page(self, query: dict[str, str]) -> Answer:
        prefix = query.get("prefix", "")
        start = max(query.get("start-after", ""), query.get("continuation-token", ""), prefix[:-1])
        size = int(query.get("max-keys", 1000))
        first = bisect_right(self.ordered, start)
        names = []
        for key in self.ordered[first : first + size + 1]:
            if key.startswith(prefix):
                names.append(key)
            elif key > prefix:
                break
        more, names = len(names) > size, names[:size]
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(self.objects[name][1])}</ETag><Size>{len(self.objects[name][0])}</Size></Contents>"
            for name in names
        )
        token = f"<NextContinuationToken>{escape(names[-1])}</NextContinuationToken>" if more else ""
        text = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
        return 200, text.encode(), ""


def refusal(status: int, code: str = "") -> Answer:
    return (
        status,
        f"<Error><Code>{code or CODES[status]}</Code><Message>on purpose, or by its rules</Message></Error>".encode(),
        "",
    )


class Server:
    """One bucket, the faults that are to come, and a log."""

    def __init__(self) -> None:
        self.bucket = Bucket()
        self.faults: list[dict[str, Any]] = []
        self.log: list[tuple[str, str]] = []
        self.stalled: list[asyncio.Transport] = []

    def control(self, method: str, path: str, body: bytes) -> Answer:
        if method == "POST" and path == "/-/faults":
            self.faults = json.loads(body)
            while self.stalled:
                self.stalled.pop().abort()
            return 200, b"[]", ""
        log, self.log = self.log, []
        return 200, json.dumps(log).encode(), ""

    def request(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes
    ) -> Callable[[bool], Answer]:
        """Return the work of a request, as a call that says whether conditions count."""
        bucket, _, key = path[1:].partition("/")
        self.log.append((method, key))
        if bucket != BUCKET:
            return lambda _: refusal(404, "NoSuchBucket")
        match method, key:
            case "GET", "":
                return lambda _: self.bucket.page(query)
            case "POST", "":
                return lambda _: self.bucket.delete_several(body)
            case "GET", _:
                return lambda _: self.bucket.get(key)
            case "PUT", _:
                return lambda conditions: self.bucket.put(key, body, headers if conditions else {})
            case "DELETE", _:
                return lambda _: self.bucket.delete(key)
        return lambda _: refusal(403)

    def fault(self, method: str, path: str) -> dict[str, Any] | None:
        """Return the fault that this request meets: the first that matches it and is due."""
        for fault in self.faults:
            if fault["method"] in ("", method) and re.search(fault["path"], path):
                if fault["skip"] > 0:
                    fault["skip"] -= 1
                elif fault["times"] > 0:
                    fault["times"] -= 1
                    return fault
        return None


class Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, as much of it as clients of S3 use."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.received = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if not self.received[:1].isupper():
            self.transport.abort()  # no HTTP; TLS, perhaps
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            first, *lines = self.received[:end].decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            size = end + 4 + int(headers.get("content-length", 0))
            if len(self.received) < size:
                return
            body = bytes(self.received[end + 4 : size])
            del self.received[:size]
            method, target, _ = first.split(" ")
            self.serve(method, target, headers, body)

    def serve(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        url = urlsplit(target)
        path = unquote(url.path)
        if path.startswith("/-/"):
            self.answer(self.server.control(method, path, body))
            return
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        work = self.server.request(method, path, query, headers, body)
        fault = self.server.fault(method, path) or {"apply": "now", "answer": "real"}
        answer: Answer | None = None
        if fault["apply"] == "later":
            asyncio.get_running_loop().call_later(fault["delay"], partial(work, True))
        elif fault["apply"] != "never":
            answer = work(fault["apply"] != "blindly")
        match fault["answer"]:
            case "real":
                assert answer is not None
                self.answer(answer)
            case "slow":
                assert answer is not None
                asyncio.get_running_loop().call_later(fault["delay"], self.answer, answer)
            case "none":
                self.transport.abort()
            case "stall":
                self.server.stalled.append(self.transport)
            case status:
                self.answer(refusal(status))

    def answer(self, answer: Answer) -> None:
        status, body, etag = answer
        tag = f"ETag: {etag}\r\n" if etag else ""
        head = (
            f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n"
            f"Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n{tag}\r\n"
        )
        self.transport.write(head.encode() + body)


async def main() -> None:
    server = Server()
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: Connection(server), "127.0.0.1", 0)
    sys.stdout.write(f"{listening.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    # Whoever started the server holds the other end: it ends with them, however they end.
    await loop.run_in_executor(None, sys.stdin.read)
    listening.close()


if __name__ == "__main__":
    asyncio.run(main())
