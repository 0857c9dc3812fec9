"""The states of modules as dicts. Layer: agents."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from versioned_state.agents.modules.containers import ATOMS, copied
from versioned_state.agents.modules.kinds import LEVELS, Overrides, before_init, contains_itself, overrides

_ANCESTORS: ContextVar[frozenset[int]] = ContextVar("modules around the one whose state is read", default=frozenset())


def state_of(root: Any, *, copying: bool = True) -> dict[str, Any]:
    """Return the state of a module, to any depth.

    Args:
        copying: copy the containers in it. Otherwise the caller must read the state at once and not pass it on.
    """
    state: dict[str, Any] = {}
    walk = _Walk(copying=copying)
    walk.below.append((root, state, set(_ANCESTORS.get())))
    while walk.below:
        walk.fill(*walk.below.pop(), LEVELS)
    return state


class _Walk:
    """A walk over modules that fills their states.

    Attributes:
        below: modules that are too deep for recursion, the dicts for their states, and the modules that contain them.
    """

    def __init__(self, *, copying: bool) -> None:
        self.below: list[tuple[Any, dict[str, Any], set[int]]] = []
        self._copying = copying
        self._overrides = Overrides("state_dict")

    def fill(self, module: Any, state: dict[str, Any], path: set[int], levels: int) -> None:
        """Fill the state of a module. ``path`` has the ids of the modules that contain it."""
        fields = module.__dict__  # not by registered_in: it is the inner loop
        try:
            attributes, modules = fields["_attribute_dict"], fields["_module_dict"]
        except KeyError:
            raise before_init(module, "using its state") from None
        if modules:
            self._fill_nested(module, modules, state, path, levels)
        copying = self._copying
        for key in tuple(attributes):
            if modules and key in modules:
                continue
            value = getattr(module, key)
            to_json = attributes[key].to_json
            if to_json is not None:
                value = to_json(value)
            state[key] = copied(value) if copying and type(value) not in ATOMS else value

    def _fill_nested(
        self, module: Any, modules: dict[str, Any], state: dict[str, Any], path: set[int], levels: int
    ) -> None:
        if id(module) in path:
            raise contains_itself(module)
        path.add(id(module))
        overrides = self._overrides
        for key in tuple(modules):  # a copy: another thread may add one
            nested = getattr(module, key, None)
            is_override = overrides[type(nested)]
            if is_override is False:
                below: dict[str, Any] = {}
                state[key] = below
                if levels:
                    self.fill(nested, below, path, levels - 1)
                else:
                    self.below.append((nested, below, path.copy()))
            elif is_override:
                state[key] = _state_by_override(nested, path, copying=self._copying)
        path.discard(id(module))


def _state_by_override(module: Any, path: set[int], *, copying: bool) -> Any:
    """Return the state of a module whose class overrides ``state_dict``."""
    if id(module) in path:
        raise contains_itself(module)
    token = _ANCESTORS.set(frozenset(path))
    try:
        state = module.state_dict()
        return copied(state) if copying else state
    finally:
        _ANCESTORS.reset(token)


def state_by_kind(module: Any) -> Any:
    """Return the state of a module, ours or agentscope's, as its class makes it.

    It shares containers with the module.
    """
    if overrides(type(module), "state_dict"):
        return _state_by_override(module, set(_ANCESTORS.get()), copying=False)
    return state_of(module, copying=False)
