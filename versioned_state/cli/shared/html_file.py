"""``--html FILE``: commits as one file that opens without a server. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from versioned_state.cli.shared import store
from versioned_state.cli.shared.settings import Settings
from versioned_state.errors import InvalidArgumentError, MissingDependencyError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.storage.url import redact


def write_html(
    settings: Settings, repository: Repository, commits: Iterable[Commit], path: Path, **options: Any
) -> None:
    """Write commits to a file.

    Raises ``MissingDependencyError`` without the extra ``ui``, and ``InvalidArgumentError``.
    """
    try:
        from versioned_state.server.page.file import file_of
    except ModuleNotFoundError as error:
        raise MissingDependencyError("--html", extra="ui") from error
    content = file_of(repository, commits, store=redact(store.locate(settings.store)), **options)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InvalidArgumentError(f"cannot write {path}: {error.strerror}") from error
    settings.output.note(f"wrote {path}")
