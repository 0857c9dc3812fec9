"""The findings of ``fsck``, and its report. Layer: repository."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Problem = Literal["missing", "corrupt", "misplaced", "not canonical"]
"""The kinds of fault.

missing
    The object is not in the store.
corrupt
    Its bytes do not match its address or checksum, or do not decode.
misplaced
    It is sound, but not what the reference to it states.
not canonical
    It is sound, but not cut as its content says, so that it may hold elements twice, and equal content may have another
    root.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a store.

    Attributes:
        problem: missing, corrupt, misplaced or not canonical.
        what: the kind of thing: ``commit``, ``map``, ``branch``, ``record`` and so on.
        id: the id of an object, 48 hex digits; the name of a ref; the key of a record.
        named_by: the id of an object that refers to it, or ``branch main``, or empty if nothing does.
        commit: the id of a commit whose content needs it, or empty if none is known.
        error: the fault in words.
        path: of an object in the content of that commit, the value that needs it, or that contains that, or empty if it
            is in none, or if it is not known.
    """

    problem: Problem
    what: str
    id: str
    named_by: str
    commit: str
    error: str
    path: str = ""

    def __str__(self) -> str:
        where = f", named by {self.named_by}" if self.named_by else ""
        within = (
            f", needed by commit {self.commit[:12]}"
            if self.commit and self.commit not in (self.id, self.named_by)
            else ""
        )
        at = f", in {self.path}" if self.path else ""
        return f"{self.problem} {self.what} {self.id}: {self.error}{at}{where}{within}"


@dataclass(frozen=True, slots=True)
class FsckReport:
    """The result of a check.

    Attributes:
        objects, commits, refs: how many were checked.
        deleted: how many of the refs are deleted, and have only a reflog.
        dangling: how many objects nothing leads to. That is not a fault: gc deletes them.
        findings: the faults, at most 1,000.
        more: how many more faults there are.
        unknown: how the keys of records of other releases begin, up to the first slash; at most 100. They are no fault,
            and nothing changes them.
        seconds: how long it took.
    """

    objects: int
    commits: int
    refs: int
    deleted: int
    dangling: int
    findings: tuple[Finding, ...]
    more: int
    seconds: float
    unknown: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.findings
