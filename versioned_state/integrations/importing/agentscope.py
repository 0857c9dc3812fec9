"""AgentScope's JSON sessions: a file of the states of modules for each session. Layer: integrations.

A session becomes the branch that ``versioned_state.agents.modules.VersionedSession`` has for it. A file holds the last
state only: it becomes a commit, and another one if it has changed since it was imported. Nothing of AgentScope is
imported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import ClassVar, Final

from versioned_state.integrations.importing.appended import Appended, Step
from versioned_state.integrations.importing.source import SourceFormatError, Thread, object_of
from versioned_state.repository.names.branch_name import branch_name

_ENDING: Final = ".json"


class AgentScopeImporter(Appended):
    """The sessions of a folder, or of one file.

    Args:
        users: the ids of users. A file of one begins with the id and ``_``. Without them, the whole name is the id of a
            session.
    """

    framework: ClassVar[str] = "agentscope"
    key: ClassVar[str] = ""

    def __init__(self, source: str, *, allow_pickle: bool = False, users: Collection[str] = ()) -> None:
        super().__init__(source, allow_pickle=allow_pickle)
        self._users = sorted(users, key=len, reverse=True)  # of two that fit, the longer one
        path = Path(source)
        if path.is_dir():
            self._files = sorted(
                each for each in path.glob(f"*{_ENDING}") if each.is_file() and not each.name.startswith(".")
            )
        else:
            with path.open("rb"):
                self._files = [path]
        if not self._files:
            raise SourceFormatError(source, f"the folder has no files that end in {_ENDING}")

    def threads(self) -> list[Thread]:
        """Return the sessions."""
        return [self._thread(file) for file in self._files]

    def _thread(self, file: Path) -> Thread:
        stem = file.name.removesuffix(_ENDING)
        user = next((each for each in self._users if stem.startswith(f"{each}_")), "")
        session = stem[len(user) + 1 :] if user else stem
        return Thread(
            f"session {session!r}" + (f" of {user!r}" if user else ""), branch_name(user, session), 1, (str(file),)
        )

    def steps(self, thread: Thread) -> Iterator[Step]:
        """Yield the one step of a session: the states of its modules."""
        (file,) = thread.ids
        states = object_of(self.source, file, Path(file).read_bytes())
        yield Step((), f"imported: {', '.join(states)}"[:200], states)
