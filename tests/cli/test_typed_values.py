"""Values of types that JSON lacks, to the terminal and back: what is printed is read, and typed places stay typed."""

from __future__ import annotations

import datetime as dt
import enum
import json
import shutil
from collections import Counter, deque
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.support import strategies, typed_classes
from tests.support.command_line import Vstate, assert_error
from versioned_state import Disk, Repository, Versioned
from versioned_state.cli.main import vstate as group
from versioned_state.values.encode.inline import InlineEncoder

NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


class Status(enum.Enum):
    OPEN = "open"
    DONE = "done"


class Names(list[str]):
    pass


@dataclass
class Job:
    item: str = "laptop"
    status: Status = Status.DONE
    price: Decimal = Decimal(3)
    count: int = 1
    weight: float = 2.5
    urgent: bool = False
    due: dt.date = dt.date(2026, 1, 2)
    at: dt.datetime = NOON
    left: dt.timedelta = dt.timedelta(hours=1)
    id: UUID = field(default_factory=lambda: UUID(int=5))
    where: PurePosixPath = field(default_factory=lambda: PurePosixPath("a"))
    part: Fraction = Fraction(1, 2)
    place: tuple[int, ...] = (1, 2)
    tags: set[str] = field(default_factory=lambda: {"a"})
    queue: deque[int] = field(default_factory=lambda: deque([1], 3))
    names: Names = field(default_factory=lambda: Names(["a"]))
    seen: Counter[str] = field(default_factory=lambda: Counter("a"))
    row: Any = field(default_factory=lambda: np.array([1.0, 2.0], "f4"))
    inner: Any = None


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    with Versioned(Disk(tmp_path / "jobs")) as state:
        state["job"] = Job()
        state["limit"], state["plain"] = Decimal(1), {"a": "text"}
        state.commit()
    return tmp_path / "jobs"


def job_in(path: Path) -> Job:
    with Versioned(Disk(path)) as state:
        job = state["job"]
        assert type(job) is Job
        return job


def run(*args: str, stdin: bytes = b"") -> bytes:
    result = CliRunner().invoke(group, args, input=stdin, prog_name="vstate")
    assert result.exit_code == 0, result.stderr
    return result.stdout_bytes


# Both ways


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(strategies.values | typed_classes.nested(4), min_size=1, max_size=6))
def test_what_is_printed_is_read_back(tmp_path: Path, values: list[Any]):
    for name in ("from", "to", "copy"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    source, target, copy = (str(tmp_path / name) for name in ("from", "to", "copy"))
    encoder = InlineEncoder()
    with Versioned(Disk(source)) as state:
        for index, value in enumerate(values):
            state.namespace("worker")[f"k{index}"] = state[f"k{index}"] = value
        state.commit("values")
        root = state.head.root
    run("--store", target, "init")
    run("--store", target, "set", "@worker.k0", "-", stdin=run("--store", source, "get", "k0", "--json"))
    run("--store", copy, "import", "--per-item", "-", stdin=run("--store", source, "export"))
    with Repository(Disk(copy, read_only=True), pickle="refuse") as repository:
        assert repository.commit("main").root == root, values
    with Repository(Disk(target, read_only=True), pickle="refuse") as repository:
        found = repository.snapshot("main", describe=True).namespace("worker")["k0"]
        assert encoder.encode_inline(found) == encoder.encode_inline(values[0])


def test_a_merge_takes_the_forms_that_are_printed(vstate: Vstate, tmp_path: Path):
    path = tmp_path / "store"
    with Versioned(Disk(path)) as state:
        state["limit"], state["at"] = Decimal(1), NOON
        state.commit()
        with state.fork("b") as other:
            other["limit"], other["at"] = Decimal(2), NOON.replace(year=2027)
            other.commit()
        state["limit"], state["at"] = Decimal(3), NOON.replace(year=2028)
        state.commit()
    at = ["--set", "at", '{"$datetime": "2026-01-02T12:00:00+00:00"}']
    assert_error(
        vstate("merge", "b", *at, "--set", "limit", '"much"', store=path), "not of the type", "Decimal", "--ours"
    )
    assert_error(vstate("merge", "b", *at, "--set", "limit", '{"$Money": "1"}', store=path), "$Money", "--literal")
    assert vstate("merge", "b", *at, "--set", "limit", "2.50", store=path).code == 0
    with Versioned(Disk(path)) as state:
        assert (str(state["limit"]), state["at"]) == ("2.50", NOON)


def test_a_patch_takes_the_changes_that_are_printed(vstate: Vstate, jobs: Path):
    assert vstate("set", "job.price", "4", store=jobs).code == 0
    changes = vstate("diff", "main~1", "main", "--json", store=jobs).stdout
    assert "$Decimal" in changes
    assert vstate("restore", "main~1:job.price", store=jobs).code == 0
    for options, price in (([], Decimal(4)), (["--literal"], {"$Decimal": "4"})):
        result = vstate("apply", "-", *options, store=jobs, stdin=changes.encode())
        if options:
            assert_error(result, "does not fit at job.price")
        else:
            assert job_in(jobs).price == price


def test_an_import_takes_the_values_that_are_printed(vstate: Vstate, tmp_path: Path):
    message = {
        "role": "user",
        "content": "hi",
        "at": {"$datetime": "2026-01-02T12:00:00+00:00"},
        "price": {"$Decimal": "2.5"},
    }
    typed = {"$typed": {"name": "app:Message", "fields": {"role": "assistant", "content": "yes"}}}
    text = json.dumps([message, typed]).encode()
    for _ in range(2):  # the second time, all is there
        result = vstate("import", "-", store=tmp_path / "store", stdin=text)
        assert result.code == 0, result.stderr
    assert "2 were there already" in result.stderr
    assert vstate("get", "messages[0].price", store=tmp_path / "store").stdout == "Decimal('2.5')\n"
    assert vstate("log", "--oneline", store=tmp_path / "store").stdout.splitlines()[0].endswith("assistant: yes")
    unknown = json.dumps([message | {"tool": {"$ref": "#/a"}}]).encode()
    assert_error(
        vstate("import", "-", "-b", "b", store=tmp_path / "store", stdin=unknown), "item 0", "$ref", "--literal"
    )
    assert vstate("import", "-", "-b", "b", "--literal", store=tmp_path / "store", stdin=unknown).code == 0
    assert vstate("get", "b:messages[0].price", "--plain", store=tmp_path / "store").stdout


def test_a_whole_state_is_read_back_with_its_namespaces_and_its_note(vstate: Vstate, tmp_path: Path):
    path = tmp_path / "store"
    with Versioned(Disk(path)) as state:
        state["$x"], state["a"] = 1, (1,)
        state.namespace("w").namespace("deep")["b"] = {2}
        state.repository.notes.update(state.commit(), {"score": Decimal("0.9")})
        root = state.head.root
    exported = vstate("export", store=path).stdout
    later = json.dumps({"c": 3})
    both = f"{json.dumps(json.loads(exported))}\n{later}\n".encode()
    assert vstate("import", "--per-item", "-", store=tmp_path / "copy", stdin=both).code == 0
    with Repository(Disk(tmp_path / "copy", read_only=True), pickle="refuse") as repository:
        assert repository.commit("main~1").root == root
        assert repository.notes["main~1"] == {"score": Decimal("0.9")}
    assert json.loads(vstate("export", store=tmp_path / "copy").stdout) == {"c": 3}
    for wrong in ({"$namespaces": [1]}, {"$namespaces": {"w": 1}}, {"$note": 5}, {"$Money": 1}):
        assert_error(
            vstate("import", "--per-item", "-", "-b", "x", store=path, stdin=json.dumps(wrong).encode()), "--literal"
        )
    assert (
        vstate("import", "--per-item", "-", "-b", "x", "--literal", store=path, stdin=b'{"$namespaces": [1]}').code == 0
    )


def test_a_note_takes_the_forms_that_are_printed(vstate: Vstate, jobs: Path):
    printed = vstate("note", "main", "score", '{"$Decimal": "0.9"}', "--json", store=jobs).stdout
    assert json.loads(printed)["note"] == {"score": {"$Decimal": "0.9"}}
    assert_error(vstate("note", "main", "score", '{"$Money": 1}', store=jobs), "$Money", "--literal")


# A typed place keeps its type

FITTING: list[tuple[str, str, Any]] = [
    ("item", "phone", "phone"),
    ("item", '"phone"', "phone"),
    ("status", "OPEN", Status.OPEN),
    ("status", '"OPEN"', Status.OPEN),
    ("price", "12.50", Decimal("12.50")),
    ("price", '"12.50"', Decimal("12.50")),
    ("price", '{"$Decimal": "1"}', Decimal(1)),
    ("count", "7", 7),
    ("weight", "3", 3.0),
    ("urgent", "true", True),
    ("due", "2026-12-01", dt.date(2026, 12, 1)),
    ("at", "2026-12-01T10:00+01:00", dt.datetime(2026, 12, 1, 10, tzinfo=dt.timezone(dt.timedelta(hours=1)))),
    ("left", "2 days, 0:30:00", dt.timedelta(days=2, minutes=30)),
    ("id", str(UUID(int=6)), UUID(int=6)),
    ("where", "b/c", PurePosixPath("b/c")),
    ("part", "1/3", Fraction(1, 3)),
    ("place", "[3]", (3,)),
    ("tags", '["b", "c"]', {"b", "c"}),
    ("queue", "[2, 3]", deque([2, 3], 3)),
    ("names", '["b"]', Names(["b"])),
    ("seen", '{"b": 2}', Counter("bb")),
    ("inner", '{"any": 1}', {"any": 1}),
]


def test_what_fits_is_taken_as_the_type_that_is_there(vstate: Vstate, jobs: Path):
    for name, typed, value in FITTING:
        result = vstate("set", f"job.{name}", typed, store=jobs)
        assert result.code == 0, (name, typed, result.stderr)
        held = getattr(job_in(jobs), name)
        assert (type(held), str(held)) == (type(value), str(value)) if name != "tags" else held == value
    assert job_in(jobs).queue.maxlen == 3
    assert vstate("set", "job.row", "[3, 4]", store=jobs).code == 0
    assert (job_in(jobs).row.dtype, job_in(jobs).row.tolist()) == (np.dtype("f4"), [3, 4])
    assert vstate("set", "limit", "2.5", store=jobs).code == 0
    assert vstate("get", "limit", store=jobs).stdout == "Decimal('2.5')\n"
    assert vstate("set", "plain.a", "5", store=jobs).code == 0  # a plain dict has no types
    assert (
        vstate("set", "job.status", "OPEN", "--text", store=jobs).stderr
        == "job.status has that value already: no commit\n"
    )


@pytest.mark.parametrize(
    ("path", "typed", "words"),
    [
        ("job.item", "12", ["12 is not of the type", "str", "--force"]),
        ("job.item", "null", ["null", "str"]),
        ("job.status", "open", ["'open' does not look like a member of Status", "OPEN", "--force"]),
        ("job.status", '"open"', ["'open' does not look like"]),
        ("job.status", "1", ["Status"]),
        ("job.price", "much", ["much", "Decimal"]),
        ("job.price", "true", ["true", "Decimal"]),
        ("job.price", "[1]", ["Decimal"]),
        ("job.count", "2.5", ["2.5", "int"]),
        ("job.count", "true", ["true", "int"]),
        ("job.count", "many", ["'many'", "int"]),
        ("job.urgent", "1", ["bool"]),
        ("job.weight", '"3"', ["float"]),
        ("job.due", "soon", ["soon", "date"]),
        ("job.due", '{"$Decimal": "1"}', ["date"]),
        ("job.at", "2026-12-01T10:00", ["has a time zone", "2026-12-01T10:00:00+00:00"]),
        ("job.id", "5", ["UUID"]),
        ("job.place", "5", ["tuple"]),
        ("job.tags", "[[1]]", ["set"]),
        ("job.tags", '{"a": 1}', ["set"]),
        ("job.queue", "[1, 2, 3, 4]", []),
        ("job.names", '{"a": 1}', ["Names"]),
        ("job.seen", "[1]", ["Counter"]),
        ("job.row", "[1, 2, 3]", ["shape"]),
        ("job.row", "rows", ["ndarray"]),
        ("job", '{"item": "a"}', ["Job", "whose fields are at, count"]),
        ("job", "5", ["Job"]),
        ("job", '{"$typed": {"name": "app:Other", "fields": {}}}', ["Job"]),
        ("limit", '"much"', ["Decimal"]),
        ("plain.a", "text", ["not JSON", "--text"]),
        ("plain.a", '{"$Money": 5}', ["$Money", "--literal"]),
    ],
)
def test_another_type_is_refused_and_nothing_changes(
    path: str, typed: str, words: list[str], vstate: Vstate, jobs: Path
):
    result = vstate("set", path, typed, store=jobs)
    if words:
        assert_error(result, *words, "nothing was changed")
        assert vstate("log", "--oneline", store=jobs).stdout.count("\n") == 1
    else:
        assert list(job_in(jobs).queue) == [2, 3, 4]  # as the deque itself would keep them


def test_force_sets_another_type(vstate: Vstate, jobs: Path):
    for path, typed in (("job.item", "12"), ("job.price", '"much"'), ("limit", "[1]")):
        assert vstate("set", path, typed, "--force", store=jobs).code == 0
    assert str(job_in(jobs)).startswith("Job(item=12, ")
    assert vstate("get", "job.price", store=jobs).stdout == "much\n"
    assert_error(vstate("set", "job.item", "text", "--force", store=jobs), "not JSON", "--text")
    assert vstate("set", "plain.a", '{"$Money": 5}', "--literal", store=jobs).code == 0
    assert vstate("get", "plain.a", store=jobs).stdout == "{'$Money': 5}\n"
    assert vstate("set", "job.status", "other", "--force", store=jobs).code == 0
    assert vstate("get", "job.status", store=jobs).stdout == "Status.other\n"


def test_a_whole_instance_is_set_by_its_fields(vstate: Vstate, jobs: Path):
    fields = json.loads(vstate("get", "job", "--plain", store=jobs).stdout)
    fields |= {"status": "OPEN", "price": 2.5, "item": "phone"}
    assert vstate("set", "job", json.dumps(fields), store=jobs).code == 0
    job = job_in(jobs)
    assert (job.status, job.price, job.item) == (Status.OPEN, Decimal("2.5"), "phone")
    with Versioned(Disk(jobs)) as state:
        assert type(state["job"]) is Job


def test_plain_and_json_exclude_each_other(vstate: Vstate, jobs: Path):
    assert_error(vstate("get", "job", "--plain", "--json", store=jobs), "exclude", code=2)
    assert json.loads(vstate("get", "job", "--plain", store=jobs).stdout)["at"] == "2026-01-02T12:00:00+00:00"
