"""``StateModule``: an object whose state is a dict of its registered attributes and modules. Layer: agents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from versioned_state.agents.modules.kinds import Function, Registered, before_init, is_module, own, registered_in
from versioned_state.agents.modules.loading import load_states
from versioned_state.agents.modules.states import state_of
from versioned_state.arguments import check_function
from versioned_state.errors import InvalidArgumentError, UnserializableValueError


class StateModule:
    """An object whose state goes into a dict and comes back from one, with all modules that are among its attributes.

    Call ``super().__init__()`` before any attribute is set to a module. An attribute that is a ``StateModule`` or an
    agentscope module is state by itself, and any other if ``register_state`` names it. Not for two threads that load at
    once.
    """

    def __init__(self) -> None:
        fields = vars(self)
        fields.setdefault("_module_dict", {})
        fields.setdefault("_attribute_dict", {})

    @own
    def __setattr__(self, key: str, value: Any) -> None:
        modules = vars(self).get("_module_dict")
        if not is_module(value):
            super().__setattr__(key, value)
            if modules and key in modules:
                del modules[key]
            return
        if modules is None:
            raise before_init(self, f"setting {key!r} to a module")
        super().__setattr__(key, value)
        registered = vars(self)["_attribute_dict"].get(key)
        if registered is None or registered.to_json is None:
            modules[key] = value

    def __delattr__(self, key: str) -> None:
        super().__delattr__(key)
        for names in ("_module_dict", "_attribute_dict"):
            vars(self).get(names, {}).pop(key, None)

    def register_state(
        self, attr_name: str, custom_to_json: Function | None = None, custom_from_json: Function | None = None
    ) -> None:
        """Make an attribute part of the state.

        Args:
            attr_name: an existing attribute.
            custom_to_json: converts its value to JSON. By default the value must be JSON now.
            custom_from_json: converts the result of ``custom_to_json`` to the value. By default the JSON is the value.

        Raises:
            AttributeError: there is no such attribute, or ``super().__init__()`` was not called.
            TypeError: JSON cannot hold the value, and no function was given.
            ValueError: the attribute is a module, which is state already, or a function cannot be called, or is
                asynchronous.
        """
        attributes, modules = registered_in(self)
        value = getattr(self, attr_name)
        for name, function in (("custom_to_json", custom_to_json), ("custom_from_json", custom_from_json)):
            if function is not None:
                check_function(name, function)
        if custom_to_json is None:
            try:
                json.dumps(value)
            except (TypeError, ValueError, RecursionError) as error:
                raise _not_json(attr_name, value, error) from error
        if attr_name in modules:
            raise InvalidArgumentError(f"attribute {attr_name!r} is a module, so it is part of the state already")
        attributes[attr_name] = Registered(custom_to_json, custom_from_json)

    @own
    def state_dict(self) -> dict[str, Any]:
        """Return the state: nested modules first, each as a dict of its own, then the registered attributes.

        It shares no container with this object. An override may call it and convert the result. Cost: the modules, and
        the containers in their attributes.

        Raises:
            ValueError: a module contains itself.
            AttributeError: a registered attribute is gone, or ``super().__init__()`` was not called.
        """
        return state_of(self)

    @own
    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:  # noqa: FBT001, FBT002 - agentscope's signature
        """Load a state that ``state_dict`` returned: all of it, or nothing if it raises.

        Keys that it does not have are ignored.

        Args:
            state_dict: is not changed, and shares no container with this object afterwards.
            strict: raise ``KeyError`` if a key is missing, here or in a nested module. Otherwise that part stays as it
                is.

        Raises:
            KeyError: see ``strict``.
            ValueError: the state of a module is not a dict.
        """
        load_states([(self, state_dict, "")], strict=strict, whole=False)


def _not_json(name: str, value: Any, error: Exception) -> UnserializableValueError:
    found = UnserializableValueError(name, type(value).__name__, f"JSON cannot hold it ({error})")
    found.hint = f"register_state({name!r}, custom_to_json=…, custom_from_json=…)"
    return found
