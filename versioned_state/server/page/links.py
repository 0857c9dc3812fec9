"""``Links``: the addresses of the page.

They are made of names, ids and paths, each quoted, and never of stored text. Layer: server.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode


class Links:
    """The addresses of the page below a prefix such as ``/ui``. Each method has the name of what its address shows.

    Attributes:
        on: the branch by which a viewer came to a commit: the way back and, for one who may not see all, the reason to
            show the commit.
    """

    def __init__(self, prefix: str = "", on: str = "") -> None:
        self.prefix = prefix
        self.on = on

    def to(self, *parts: str, **query: object) -> str:
        """Return an address: parts of a path, each quoted as a whole, and a query without what is None or empty."""
        path = self.prefix + "".join(f"/{quote(part, safe='@', errors='surrogatepass')}" for part in parts)
        given = [(name.removesuffix("_"), str(value)) for name, value in query.items() if value not in (None, "")]
        return (path or "/") + (f"?{urlencode(given, errors='surrogatepass')}" if given else "")

    def _on(self, query: dict[str, object]) -> dict[str, object]:
        return {"on": self.on, **query}

    def sessions(self, **query: object) -> str:
        return f"{self.prefix}/{self.to('', **query)[len(self.prefix) + 1 :]}"

    def log(self, branch: str, **query: object) -> str:
        return self.to("b", branch, **query)

    def commit(self, id: str, **query: object) -> str:
        return self.to("c", id, **self._on(query))

    def state(self, id: str, path: str = "", **query: object) -> str:
        return self.to("c", id, "state", path=path, **self._on(query))

    def raw(self, id: str, path: str) -> str:
        return self.to("c", id, "raw", path=path, **self._on({}))

    def diff(self, a: str, b: str, path: str = "", **query: object) -> str:
        return self.to("diff", f"{a}..{b}", path=path, **self._on(query))

    def blame(self, rev: str, path: str = "", **query: object) -> str:
        return self.to("blame", rev, path=path, **self._on(query))

    def history(self, rev: str, path: str = "", **query: object) -> str:
        return self.to("history", rev, path=path, **self._on(query))

    def chat(self, rev: str, path: str = "", **query: object) -> str:
        return self.to("chat", rev, path=path, **self._on(query))

    def events(self, rev: str, **query: object) -> str:
        return self.to("events", rev, **self._on(query))

    def compare(self, a: str, b: str, **query: object) -> str:
        return self.to("compare", a, b, **query)

    def search(self, rev: str, **query: object) -> str:
        return self.to("search", rev, **self._on(query))

    def live(self, branch: str) -> str:
        return self.to("live", branch)

    def edit(self, verb: str, branch: str, **query: object) -> str:
        return self.to("edit", verb, branch, **query)

    def static(self, name: str) -> str:
        return self.to("static", *name.split("/"))
