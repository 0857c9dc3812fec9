"""Errors as they cross from a server to its clients: by name, out of a closed table. Layer: services."""

from __future__ import annotations

from typing import Any, Final

from versioned_state import errors
from versioned_state.errors import StateError, StorageError
from versioned_state.errors.base import restore

_CLASSES: Final[dict[str, type[StateError]]] = {
    name: _cls
    for name in errors.__all__
    if isinstance(_cls := getattr(errors, name), type) and issubclass(_cls, StateError)
}

_PARTS: Final = frozenset({"what", "remains", "_hint"})


def error_document(error: StateError) -> dict[str, Any]:
    """Return an error as JSON: its class, its three parts, and the attributes that are texts or numbers."""
    facts = {
        name: value
        for name, value in vars(error).items()
        if name not in _PARTS and name[:1] != "_" and (value is None or type(value) in (str, int, bool))
    }
    return {
        "error": {
            "type": type(error).__name__,
            "what": error.what,
            "remains": error.remains,
            "hint": error.hint,
            "facts": facts,
        }
    }


def error_of(document: Any) -> StateError | None:
    """Return the error that a server's JSON stands for, or None if it is another document.

    An unknown class becomes ``StateError``.
    """
    parts = document.get("error") if type(document) is dict else None
    if type(parts) is not dict or any(type(parts.get(name)) is not str for name in ("type", "what", "remains", "hint")):
        return None
    cls = _CLASSES.get(parts["type"], StateError)
    error = restore(cls, (parts["what"],))
    error.__dict__.update(what=parts["what"], remains=parts["remains"], _hint="")
    error.hint = parts["hint"]
    facts = parts.get("facts")
    if type(facts) is dict:
        known = {
            name: value
            for name, value in facts.items()
            if name.isidentifier() and name[:1] != "_" and not hasattr(cls, name)
        }
        error.__dict__.update({name: value for name, value in known.items() if name not in _PARTS})
    return error


def without_details(error: StorageError) -> StorageError:
    """Return a storage error for clients: its kind, without details of the server's store."""
    public = restore(type(error), ())
    assert isinstance(public, StorageError)
    what = f"the server's store failed ({type(error).__name__})"
    public.args = (what,)
    public.__dict__.update(what=what, remains=error.remains, _hint="")
    return public
