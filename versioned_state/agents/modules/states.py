"""The states of modules as dicts. Layer: agents."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from versioned_state.agents.modules.containers import ATOMS, copied
from versioned_state.agents.modules.kinds import Kinds, contains_itself, registered_in

_ANCESTORS: ContextVar[frozenset[int]] = ContextVar("modules that contain the one whose state is asked for", default=frozenset())


def state_of(root: Any, *, copying: bool = True) -> dict[str, Any]:
    """The state of a module, to any depth. It has a stack of its own, so that a long chain of modules does not end Python's.

    Args:
        copying: copy the containers in it. Without, it is to be read at once and given to nobody.
    """
    state: dict[str, Any] = {}
    path: set[int] = set(_ANCESTORS.get())
    kinds = Kinds()
    todo: list[tuple[Any, dict[str, Any] | None]] = [(root, state)]
    while todo:
        module, into = todo.pop()
        if into is None:  # everything in it is done
            path.discard(id(module))
            continue
        attributes, modules = registered_in(module)
        if modules:
            if id(module) in path:
                raise contains_itself(module)
            path.add(id(module))
            todo.append((module, None))
            for key in tuple(modules):
                nested = getattr(module, key, None)
                kind = kinds[type(nested)]
                if kind is None:
                    continue
                if kind.gives_state_itself:
                    into[key] = _state_by_override(nested, path, copying=copying)
                else:
                    below: dict[str, Any] = {}
                    into[key] = below
                    todo.append((nested, below))
        for key, registered in tuple(attributes.items()):
            if modules and key in modules:
                continue
            value = getattr(module, key)
            if registered.to_json is not None:
                value = registered.to_json(value)
            into[key] = value if type(value) in ATOMS or not copying else copied(value)
    return state


def _state_by_override(module: Any, path: set[int], *, copying: bool) -> Any:
    """The state of a module whose class says itself what that is."""
    if id(module) in path:
        raise contains_itself(module)
    token = _ANCESTORS.set(frozenset(path))
    try:
        state = module.state_dict()
        return copied(state) if copying else state
    finally:
        _ANCESTORS.reset(token)


def state_by_kind(module: Any, *, copying: bool) -> Any:
    """The state of a module, ours or agentscope's, as its class gives it; see ``state_of``."""
    kind = Kinds()[type(module)]
    if kind is None or kind.gives_state_itself:
        return _state_by_override(module, set(_ANCESTORS.get()), copying=copying)
    return state_of(module, copying=copying)
