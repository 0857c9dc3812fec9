"""``JSONSession``: the states of modules in a file of JSON for each session. Layer: agents."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any, Final

from versioned_state.agents.modules.files import SessionFiles, agentscope_file, session_file
from versioned_state.agents.modules.loading import load_states
from versioned_state.agents.modules.module import StateModule
from versioned_state.agents.modules.session import SessionBase, check_ids, check_modules
from versioned_state.agents.modules.states import state_by_kind
from versioned_state.errors import (
    CorruptStoreError,
    InvalidArgumentError,
    LimitExceededError,
    SessionFileError,
    UnserializableValueError,
)

_files: Final = SessionFiles()

_OURS: Final = b" "
"""Our files begin with a blank.

So ``a_b.json``, the file of our session ``a_b``, is not mistaken for AgentScope's of user ``a``.
"""


class JSONSession(SessionBase):
    """Sessions as files of JSON in a folder. A save replaces the file as a whole, on a background thread.

    Two ways to call it: ``JSONSession(session_id, save_dir)`` is one session, and ``save_session_state(agent=agent)``
    saves it. ``JSONSession(save_dir=…)`` is all sessions of a folder, and ``save_session_state(session_id, user_id,
    agent=agent)`` names one.

    Calls on one session in this process run in the order in which they were made. Any number of processes may save: a
    file is always one of the states that were saved.

    Args:
        session_id: the session of the calls that name none.
        save_dir: the folder, which the first save makes.
    """

    def __init__(self, session_id: str | None = None, save_dir: str | os.PathLike[str] = "./") -> None:
        super().__init__(session_id if session_id is None else check_ids(session_id, "")[0])
        self.save_dir: Final = os.fspath(save_dir)

    @property
    def save_path(self) -> str:
        """The file of the session of the constructor. Makes its folder if it is missing."""
        if self.session_id is None:
            raise AttributeError(
                "save_path is the file of one session: JSONSession(session_id, save_dir)", name="save_path", obj=self
            )
        Path(self.save_dir).mkdir(parents=True, exist_ok=True)
        return self._path(self.session_id, "")

    async def save_session_state(
        self, session_id: str | None = None, user_id: str = "", **state_modules_mapping: StateModule
    ) -> None:
        """Save the states of modules, as they are when this is called, in place of those in the session's file.

        If it is cancelled, or the power is lost, the file holds the old states or the new ones.

        Args:
            session_id, user_id: the session, as described for the class.
            state_modules_mapping: the modules by name.

        Raises:
            TypeError: JSON cannot hold the state of a module, at the path that the error names. The file is as it was.
            SessionFileError: also ``OSError``: the disk is full, or the folder cannot be written. The file is as it
                was.
        """
        session, user = self._ids(session_id, user_id)
        check_modules(state_modules_mapping)
        # As JSON at once: the states share containers with the modules, which may change as soon as this waits.
        data = _to_json({name: state_by_kind(module) for name, module in state_modules_mapping.items()})
        path = self._path(session, user)
        try:
            await _files.write(_place(path), data)
        except OSError as error:
            raise _failed("written", path, error) from error

    async def load_session_state(
        self,
        session_id: str | None = None,
        user_id: str = "",
        allow_not_exist: bool | None = None,  # noqa: FBT001 - agentscope's signature
        **state_modules_mapping: StateModule,
    ) -> None:
        """Load the states of modules: all of them, or none if it raises.

        A module whose name was not saved stays as it is.

        If the session was never saved here, a file that AgentScope wrote for it is read.

        Args:
            session_id, user_id: the session, as described for the class.
            allow_not_exist: change nothing if the session was never saved. By default True if this call names the
                session.
            state_modules_mapping: the modules by name.

        Raises:
            ValueError: the session was never saved, or the state of a module is not a dict.
            KeyError: the state of a module lacks a key.
            CorruptStoreError: the file is not one of a session.
            SessionFileError: also ``OSError``: the file cannot be read.
        """
        if allow_not_exist is None:
            allow_not_exist = session_id is not None
        session, user = self._ids(session_id, user_id)
        check_modules(state_modules_mapping)
        path = self._path(session, user)
        states = await _files.read(_place(path), partial(self._read, session, user))
        if states is not None:
            load_states(
                ((module, states[name], name) for name, module in state_modules_mapping.items() if name in states),
                owned=True,
            )
        elif not allow_not_exist:
            raise InvalidArgumentError(
                f"session {session!r} was never saved: there is no {path}",
                hint="allow_not_exist=True leaves the modules as they are",
            )

    def _ids(self, session_id: str | None, user_id: str) -> tuple[str, str]:
        if self.session_id is not None and session_id not in (None, self.session_id):
            raise InvalidArgumentError(
                f"this is session {self.session_id!r}, not {session_id!r}",
                remains="nothing was saved or loaded",
                hint=f"JSONSession(save_dir={self.save_dir!r}) is all sessions of a folder",
            )
        return check_ids(self.session_id if session_id is None else session_id, user_id)

    def _path(self, session_id: str, user_id: str) -> str:
        return os.path.join(self.save_dir, session_file(session_id, user_id))  # noqa: PTH118 - a folder "./x/" stays as it is written

    def _read(self, session_id: str, user_id: str) -> dict[str, Any] | None:
        """Return the states in the file of a session, or None if there is no such file."""
        path = self._path(session_id, user_id)
        data = _read_file(path)
        old = agentscope_file(session_id, user_id)
        if data is None and old is not None:
            path = str(Path(self.save_dir, old))
            data = _read_file(path)
            if data is not None and data.startswith(_OURS):
                data = None  # the file of another session of ours
        return None if data is None else _from_json(path, data)


def _place(path: str) -> str:
    """Return the absolute path, which two paths of one file have in common unless links are on the way."""
    return os.path.abspath(path)  # noqa: PTH100 - resolve() reads the folders


def _read_file(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _failed("read", path, error) from error


def _failed(what: str, path: str, error: OSError) -> SessionFileError:
    return SessionFileError(
        f"{path} could not be {what}: {error.strerror or error}", errno=error.errno, remains="it is as it was before"
    )


def _to_json(states: dict[str, Any]) -> bytes:
    try:
        # A value that contains itself ends the recursion. A check at every container would take a fifth of the time.
        text = json.dumps(states, ensure_ascii=False, check_circular=False)
        try:
            return _OURS + text.encode()
        except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot hold
            return _OURS + json.dumps(states, check_circular=False).encode()
    except RecursionError as error:
        raise LimitExceededError("the depth of a state", limit=_DEEPEST) from error
    except (TypeError, ValueError) as error:
        path, value = _culprit(states)
        found = UnserializableValueError(
            path, type(value).__name__, f"JSON cannot hold it ({error})", remains="nothing was saved"
        )
        found.hint = (
            "register_state(…, custom_to_json=…, custom_from_json=…), or a VersionedSession, which keeps any data"
        )
        raise found from error


_DEEPEST: Final = 1000
"""About how deep JSON may be nested: Python's limit, which counts its own calls too."""


def _culprit(value: Any) -> tuple[str, Any]:
    """Return the path and the value of the first part of a value that JSON cannot hold."""
    path: list[str] = []
    around: set[int] = set()
    while id(value) not in around:
        around.add(id(value))
        parts = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
        )
        for key, part in parts:
            if not _fits(part):
                path.append(f".{key}" if isinstance(value, dict) else f"[{key}]")
                value = part
                break
        else:
            break
    return "".join(path).removeprefix("."), value


def _fits(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _from_json(path: str, data: bytes) -> dict[str, Any]:
    try:
        states = json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise CorruptStoreError(f"{path} is not JSON: {error}", remains="nothing was loaded") from error
    if not isinstance(states, dict):
        raise CorruptStoreError(f"{path} is not the file of a session", remains="nothing was loaded")
    return states
