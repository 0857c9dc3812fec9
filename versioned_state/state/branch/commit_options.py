"""The options of ``commit()``, checked once and passed down as one value. Layer: state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from versioned_state.arguments import check_text, instance_of, list_of
from versioned_state.records import dataclass, field
from versioned_state.repository.committing import OnMoved
from versioned_state.values.keys import user_key

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.merging.policies import Policy
    from versioned_state.repository.refs.notes import CommitNote


@dataclass(slots=True)
class CommitOptions:
    """The options of a commit.

    See ``Versioned.commit``. An author of ``""`` becomes None. Raises ``InvalidArgumentError``.

    ``subject`` precedes the summary, which is the default message. ``parent`` is the commit to commit onto, if it is
    not the head.
    """

    message: str = ""
    author: str | None = None
    meta: Mapping[str, Any] | None = None
    allow_empty: bool = False
    skip_unserializable: bool = False
    on_moved: OnMoved = OnMoved.MERGE
    policies: Mapping[str, Policy] = field(default_factory=dict)
    keys: Collection[str] | None = None
    tag: str | None = None
    subject: str = ""
    parent: Commit | None = None
    note: CommitNote | None = None

    def __post_init__(self) -> None:
        # Each commit and each call of a task comes here: the checks are only called for what they may refuse.
        if type(self.message) is not str:
            check_text("message", self.message)
        if self.meta is not None and type(self.meta) is not dict:
            check_meta(self.meta)
        if self.author is not None:
            check_text("author", self.author)
            self.author = self.author or None
        if self.tag is not None:
            from versioned_state.repository.refs.ref import check_name

            check_name("tag", self.tag)
        if self.keys is not None:
            self.keys = _check_keys(self.keys)


def as_note(values: Mapping[str, Any] | None) -> CommitNote | None:
    """Return the note that a commit is to bring along, or None. Raises as ``Notes.update``."""
    if values is None:
        return None
    from versioned_state.repository.refs.notes import CommitNote

    return CommitNote(values)


def _check_keys(keys: object) -> tuple[str, ...]:
    keys = tuple(list_of("keys", keys))
    for key in keys:
        user_key(key)
    return keys


def check_meta(meta: object) -> None:
    """Raise ``InvalidArgumentError`` unless ``meta`` is a mapping or None."""
    if meta is not None and type(meta) is not dict:
        instance_of("meta", meta, Mapping, hint="a dict with string keys")


def check_policies(policies: Mapping[str, Policy] | None) -> dict[str, Policy]:
    """Return a copy of the merge policies of a call.

    Raises ``InvalidArgumentError`` at once, not when a conflict needs a bad one.
    """
    if policies is None or policies == {}:
        return {}
    from versioned_state.repository.merging.policies import Policies

    Policies(policies)
    return dict(policies)
