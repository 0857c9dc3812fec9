"""The components of the page and of a notebook: data of this package as HTML. Layer: repository.

Each text is escaped, and its unseen characters are written out. A link is made of an address that the caller gives; a
notebook has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final, Protocol

from versioned_state.repository.shown.text import visible

Data = Mapping[str, Any]


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the text: templates do not escape what has this method."""
        return self


@cache
def style_sheet() -> str:
    """Return the style sheet of the components.

    The place where they are shown sets the colours: ``--ink``, ``--line`` and others.
    """
    return Path(__file__).with_name("components.css").read_text("utf-8")


def escaped(text: object) -> Html:
    """Return a text as HTML, and HTML as it is."""
    return text if isinstance(text, Html) else Html(escape(visible(str(text))))


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Return parts in a row, texts escaped."""
    return Html(between.join(map(escaped, parts)))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """Return an element.

    An attribute that is None or empty is left out; ``class_`` and ``aria_label`` are ``class`` and ``aria-label``.
    """
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for name, value in attributes.items()
        if value is not None and value != ""
    )
    return Html(f"<{tag}{given}>{joined(children)}</{tag}>")


class Addresses(Protocol):
    """The addresses to which components link, or ``""`` for none."""

    def log(self, branch: str) -> str: ...
    def commit(self, id: str) -> str: ...
    def state(self, id: str, path: str = "") -> str: ...
    def history(self, rev: str, path: str = "") -> str: ...
    def blame(self, rev: str, path: str = "", **query: object) -> str: ...


class NoAddresses:
    """Of a place without links."""

    def log(self, branch: str) -> str:
        return ""

    def commit(self, id: str) -> str:
        return ""

    def state(self, id: str, path: str = "") -> str:
        return ""

    def history(self, rev: str, path: str = "") -> str:
        return ""

    def blame(self, rev: str, path: str = "", **query: object) -> str:
        return ""


NOWHERE: Final = NoAddresses()


def anchor(address: str, *children: object, class_: str = "") -> Html:
    """Return a link, or the same without one if there is no address."""
    if address:
        return element("a", *children, href=address, class_=class_)
    return element("span", *children, class_=class_) if class_ else joined(children)


def hidden(*children: object) -> Html:
    """Return what is read aloud and not seen."""
    return element("span", *children, class_="hidden")


def number(value: int) -> str:
    """Return a number with its thousands set apart."""
    return f"{value:,}"


def plural(count: int, one: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


# Commits

_ROW: Final = 36
"""Pixels of a row of a log, as in the style sheet: the lanes of each row meet those of the next."""


def time(at: Data) -> Html:
    """Return a moment: a dict of ``commits.moment``."""
    return element(
        "time", f"{at['date']} ", element("span", at["clock"], class_="clock"), datetime=at["iso"], title=at["iso"]
    )


def outcome(commit: Data) -> Html:
    """Return how the task of a commit ended, unless it succeeded."""
    return element("span", commit["outcome"], class_="badge bad") if commit["outcome"] else Html()


def message(commit: Data) -> Html:
    """Return the first line of the message of a commit: a dict of ``commits.facts``."""
    if commit["is_root"]:
        return Html("the empty beginning")
    if not commit["message"]:
        return Html("<i>no message</i>")
    return joined([commit["message"], Html("&nbsp;…") if commit["has_more"] else ""])


def log(rows: Iterable[Data], width: int, to: Addresses = NOWHERE, *, ids: bool = False, **attributes: object) -> Html:
    """Return commits with the lanes of their graph.

    Args:
        width: the lanes of the widest row.
        ids: whether each row has the id of its commit.
        attributes: of the list.
    """
    return element("ol", *(_log_row(row, width, to, ids=ids) for row in rows), class_="list log", **attributes)


def _log_row(row: Data, width: int, to: Addresses, *, ids: bool) -> Html:
    parents = row["parents"]
    said = (
        f", a merge of {' and '.join(parents)}"
        if len(parents) > 1
        else f", after {parents[0]}"
        if parents
        else ", the first one"
    )
    side = f", on side line {row['graph']['lane']}" if row["graph"]["lane"] else ""
    words = element(
        "span", outcome(row), " ", anchor(to.commit(row["id"]), message(row)), hidden(said, side), class_="message"
    )
    return element(
        "li",
        graph(row["graph"], width),
        element("span", number(row["round"]), class_="round n"),
        words,
        element("span", row["author"], class_="author"),
        element("span", time(row["time"]), class_="when"),
        element("code", row["short"], class_="id"),
        class_="row",
        id=f"c-{row['short']}" if ids else None,
    )


def graph(row: Data, width: int) -> Html:
    """Return the lanes beside one commit: a row of ``lanes``."""
    w = width * 14 + 6
    drawn = []
    for a, b in row["lines"]:
        x1, x2 = ((at if at >= 0 else row["lane"]) * 14 + 9 for at in (a, b))
        y1, y2 = 0 if a >= 0 else _ROW // 2, _ROW if b >= 0 else _ROW // 2
        middle = (y1 + y2) // 2
        curve = f"V{y2}" if x1 == x2 else f"C{x1} {middle} {x2} {middle} {x2} {y2}"
        drawn.append(element("path", class_="lane" if (a if a >= 0 else b) else "lane first", d=f"M{x1} {y1}{curve}"))
    drawn.append(
        element("circle", class_="dot" if row["lane"] else "dot first", cx=row["lane"] * 14 + 9, cy=_ROW // 2, r=4)
    )
    return element("svg", *drawn, class_="lanes", aria_hidden="true", width=w, height=_ROW, viewBox=f"0 0 {w} {_ROW}")


def facts(rows: Iterable[tuple[object, object]]) -> Html:
    """Return a list of terms, each with what is said of it."""
    return element(
        "dl",
        *(element("div", element("dt", term), element("dd", text)) for term, text in rows if text not in ("", None)),
        class_="facts",
    )


def commit_facts(data: Data, to: Addresses = NOWHERE) -> Html:
    """Return what a commit says of itself: a dict of ``commits.said``."""
    commit, parents = data["commit"], data["parents"]
    rows: list[tuple[object, object]] = [
        ("Round", element("span", number(commit["round"]), class_="n")),
        ("Time (UTC)", time(commit["time"])),
        ("Author", commit["author"]),
        ("Id", element("code", commit["id"])),
    ]
    for at, parent in enumerate(parents, 1):
        shown = anchor(to.commit(parent["id"]), element("code", parent["short"]))
        said = message(parent) if "message" in parent else ""
        rows.append(("Parent" if len(parents) == 1 else f"Parent {at}", joined([shown, " ", said])))
    rows.append(("Tag", data["tag"] or ""))
    if data["signed_by"]:
        unchecked = element("span", "not checked here: vstate verify", class_="what")
        rows.append(("Signed by", joined([element("code", data["signed_by"]), " ", unchecked])))
    return facts([*rows, *_entries(data["meta"])])


def entries(rows: Iterable[Data]) -> Html:
    """Return the entries of meta or of a note."""
    return facts(_entries(rows))


def _entries(rows: Iterable[Data]) -> Iterator[tuple[object, object]]:
    return ((element("span", each["key"], class_="path"), each["line"]) for each in rows)


def refs(rows: Iterable[Data], to: Addresses = NOWHERE, **attributes: object) -> Html:
    """Return branches or tags, each with its newest commit."""
    return element("ol", *(_ref_row(row, to) for row in rows), class_="list sessions", **attributes)


def _ref_row(row: Data, to: Addresses) -> Html:
    head = row["head"]
    default = joined([element("span", "default", class_="badge"), " "]) if row["is_default"] else ""
    rounds = element("span", number(head["round"]), class_="n")
    return element(
        "li",
        element("span", anchor(to.log(row["name"]), row["label"]), class_="name"),
        element("span", default, outcome(head), " ", message(head), class_="message"),
        element("span", rounds, " round" if head["round"] == 1 else " rounds", class_="round n"),
        element("span", time(row["changed"]), class_="when"),
        class_="row",
    )


# Changes


def _spans(cell: Data, side: str) -> Html:
    key = [element("b", cell["key"], class_="key"), " "] if cell["key"] else []
    tag = "del" if side == "old" else "ins"
    return joined([*key, *(element(tag, text) if marked else text for text, marked in cell["spans"])])


def _side(row: Data, side: str) -> Html:
    cell = row[side]
    if not cell:
        return element("td", class_=f"{side} none")
    if row["kind"] == "same":
        return element("td", _sign(" "), element("span", _spans(cell, side), class_="code"), class_=side)
    sign, word = ("−", "removed: ") if side == "old" else ("+", "added: ")  # noqa: RUF001 - the sign of a number
    return element(
        "td", _sign(sign), hidden(word), element("span", _spans(cell, side), class_="code"), class_=f"{side} on"
    )


def _sign(sign: str) -> Html:
    return element("span", sign, class_="sign", aria_hidden="true")


_SIGNS: Final = {"added": "+", "removed": "−", "changed": "~"}  # noqa: RUF001 - the sign of a number


def change(each: Data, id: str = "", base: str = "", to: Addresses = NOWHERE) -> Html:
    """Return one change.

    Args:
        id, base: the commits with the value after and before it, for the links.
    """
    path, kind = each["path"], each["kind"]
    at = base if kind == "removed" else id
    label = anchor(to.state(at, path) if at and path is not None else "", each["label"], class_="path")
    what = element("span", each["what"], class_="what") if each["what"] else ""
    more: object = ""
    if id and path is not None and not each["is_run"] and kind != "removed":
        more = anchor(to.history(id, path), "history", hidden(f" of {each['label']}"))
        more = element("span", more, class_="more")
    head = element("h3", _sign(_SIGNS[kind]), hidden(f"{kind}: "), label, " ", what, " ", more)
    cut = element("p", f"{each['cut']:,} more lines of this change are left out.", class_="note") if each["cut"] else ""
    return element("section", head, _rows(each), cut, class_=f"change {kind}")


def _rows(each: Data) -> Html:
    if each["picture"] is not None:
        return element("div", picture(each["picture"]), class_=f"one {each['kind']}")
    if not each["rows"]:
        return Html()
    if each["kind"] != "changed":
        lines = (element("div", _spans(row["new"] or row["old"], ""), class_="line") for row in each["rows"])
        return element("div", *lines, class_=f"one {each['kind']}")
    heads = element("tr", element("th", "Before", scope="col"), element("th", "After", scope="col"))
    table = element(
        "table", element("thead", heads, class_="hidden"), element("tbody", *map(_row, each["rows"])), class_="sides"
    )
    return element("div", table, class_="scroll", tabindex="0", role="group", aria_label=f"Changes of {each['label']}")


def _row(row: Data) -> Html:
    if row["kind"] == "fold":
        return element("tr", element("td", plural(row["lines"], "equal line"), colspan="2"), class_="fold")
    if row["kind"] == "place":
        return element("tr", element("td", row["text"], colspan="2"), class_="fold")
    return element("tr", _side(row, "old"), _side(row, "new"), class_=row["kind"])


def diff(found: Data, id: str = "", base: str = "", to: Addresses = NOWHERE) -> Html:
    """Return the changes from one state to another: a dict of ``changes.shown``."""
    parts = []
    if not found["changes"] and not found["more"]:
        parts.append(element("p", "Nothing differs.", class_="empty"))
    else:
        counted = [
            element("span", f"+{found['added']:,}", class_="n add"),
            " ",
            element("span", f"−{found['removed']:,}", class_="n del"),  # noqa: RUF001 - the sign of a number
            " ",
            element("span", f"~{found['changed']:,}", class_="n"),
        ]
        if found["more"]:
            counted += [" ", element("span", f"and more: these are the first {found['total']:,}")]
        elif found["is_cut"]:
            counted += [" ", element("span", "of which the first are shown")]
        parts.append(element("p", *counted, class_="stat"))
        parts += (change(each, id, base, to) for each in found["changes"])
        if found["more"] or found["is_cut"]:
            parts.append(
                element(
                    "p", "There are more changes than are shown. Choose a path to see those below it.", class_="note"
                )
            )
    if found["late"]:
        parts.append(
            element("p", "The search for changes was ended after its time: there may be others.", class_="note")
        )
    return joined(parts)


# Values


def tree(rows: Iterable[Data], to: Addresses = NOWHERE, id: str = "", **attributes: object) -> Html:
    """Return the parts of a value, each on a line."""
    return element("ul", *(_part(row, to, id) for row in rows), class_="list tree", **attributes)


def _part(row: Data, to: Addresses, id: str) -> Html:
    path = row["path"]
    opens = path if row["opens"] and path is not None and to is not NOWHERE else None
    line = (
        element("span", sparkline(row["picture"]), class_="line")
        if row["picture"]
        else element("code", row["line"], class_="line")
    )
    return element(
        "li",
        anchor("" if path is None else to.state(id, path), row["label"], class_="label path"),
        element("span", row["type"], class_="type"),
        element("span", row["size"], class_="size n"),
        line,
        class_="row",
        data_path=opens,
    )


def sparkline(picture: Data) -> Html:
    """Return a line through numbers."""
    said = f"a line of the numbers, from {picture['low']} to {picture['high']}"
    box = f"0 0 {picture['width']} {picture['height']}"
    drawn = element("path", d=picture["path"])
    return element(
        "svg", drawn, class_="sparkline", viewBox=box, preserveAspectRatio="none", role="img", aria_label=said
    )


def _grid(picture: Data) -> Html:
    said = f"the numbers as shades, from {picture['low']} to {picture['high']}"
    box = f"0 0 {picture['width']} {picture['height']}"
    cells = (element("rect", x=x, y=y, width=w, height=1, fill_opacity=shade) for x, y, w, shade in picture["cells"])
    return element("svg", *cells, class_="grid", viewBox=box, preserveAspectRatio="none", role="img", aria_label=said)


def picture(found: Data) -> Html:
    """Return the small picture of a value: a dict of ``pictures.picture``."""
    if found["kind"] == "table":
        heads = [hidden("row"), *found["columns"]]
        numbers = [at for at, is_number in enumerate(found["numbers"], 1) if is_number]
        shown = table(heads, found["rows"], label="The first rows", numbers=numbers)
        said = [
            plural(found[name], f"more {one}")
            for name, one in (("more_rows", "row"), ("more_columns", "column"))
            if found[name]
        ]
        caption = joined(said, " ")
    else:
        shown = sparkline(found) if found["kind"] == "line" else _grid(found)
        low, high = (element("span", found[name], class_="n") for name in ("low", "high"))
        missing = f", {found['missing']:,} not a finite number" if found["missing"] else ""
        caption = joined([low, " to ", high, missing])
    return element("figure", shown, element("figcaption", caption, class_="what"), class_="picture")


def table(
    heads: Sequence[object], rows: Iterable[Sequence[object]], *, label: str, numbers: Sequence[int] = ()
) -> Html:
    """Return a table, the first cell of each row being its head.

    Args:
        label: of the table, for who does not see it.
        numbers: the columns that are numbers.
    """
    aligned = ["number" if at in numbers else "" for at in range(len(heads))]
    head = element(
        "tr", *(element("th", name, scope="col", class_=kind) for name, kind in zip(heads, aligned, strict=True))
    )
    body = []
    for row in rows:
        cells = [element("th", row[0], scope="row", class_="n")]
        cells += (
            element("td", cell, class_=kind and "n number") for cell, kind in zip(row[1:], aligned[1:], strict=False)
        )
        body.append(element("tr", *cells))
    made = element("table", element("thead", head), element("tbody", *body), class_="table")
    return element("div", made, class_="scroll", tabindex="0", role="group", aria_label=label)


# Searches


def blame(rows: Iterable[Data], to: Addresses = NOWHERE, id: str = "", **attributes: object) -> Html:
    """Return the parts of a value, each with the commit that it comes from and a bar that is dark for what is new."""
    return element("ol", *(_blamed(row, to, id) for row in rows), class_="list blame", **attributes)


def _blamed(row: Data, to: Addresses, id: str) -> Html:
    commit, path = row["commit"], row["path"]
    before = "" if row["complete"] else "≤ "
    said = hidden(f": {commit['message']}" if row["complete"] else f": or before, {commit['message']}")
    label = anchor("" if path is None else to.state(id, path), row["label"], class_="label path")
    return element(
        "li",
        element("span", anchor(to.commit(commit["id"]), before, number(commit["round"]), said), class_="round n"),
        element("span", message(commit) if row["complete"] else "not searched further", class_="origin"),
        label,
        element("code", row["line"], class_="line"),
        class_=f"row heat-{row['heat']}",
    )


def hits(rows: Iterable[Data], to: Addresses = NOWHERE, id: str = "", **attributes: object) -> Html:
    """Return the lines that match, with the matches marked."""
    return element("ol", *(hit(row, to, id) for row in rows), class_="list hits", **attributes)


def hit(row: Data, to: Addresses = NOWHERE, id: str = "") -> Html:
    """Return one line that matches."""
    place = (
        element("span", "key", class_="type")
        if row["is_key"]
        else element("span", f"line {row['number']:,}", class_="type n")
    )
    found = (element("mark", text) if marked else text for text, marked in row["spans"])
    label = anchor("" if row["path"] is None else to.state(id, row["path"]), row["label"], class_="label path")
    return element("li", label, place, element("span", *found, class_="found"), class_="row")


def step(row: Data, to: Addresses = NOWHERE) -> Html:
    """Return a commit that changed a path, with the changes."""
    commit = row["commit"]
    said = element(
        "p",
        element("span", f"round {commit['round']:,}", class_="n"),
        " ",
        element("span", commit["author"]),
        " ",
        time(commit["time"]),
        class_="facts",
    )
    changed = [change(each, commit["id"], "", to) for each in row["changes"]]
    if row["more"]:
        whole = anchor(to.commit(commit["id"]), "all of the round") if to is not NOWHERE else ""
        changed.append(
            element(
                "p", plural(row["more"], "more change"), " below this path", ": " if whole else "", whole, class_="note"
            )
        )
    return element(
        "section", element("h2", anchor(to.commit(commit["id"]), message(commit))), said, *changed, class_="step"
    )
