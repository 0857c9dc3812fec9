"""The factories of sandboxes, by type. Layer: sandbox."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from inspect import Parameter
from typing import Any, Final

from versioned_state.arguments import instance_of, string
from versioned_state.errors import InvalidArgumentError
from versioned_state.sandbox.enums import SandboxType

Factory = Callable[..., Any]

OPTIONS: Final = (
    *("folder", "session_id", "user_id", "timeout", "max_memory", "max_file_bytes"),
    *("max_total_memory", "max_folder_bytes", "base_url", "bearer_token"),
)
"""The options that a factory may have, by name."""

_LOCAL: Final = (SandboxType.BASE, SandboxType.FILESYSTEM)

_registered: dict[str, Factory] = {}


def register(name: str | SandboxType, factory: Factory) -> None:
    """Make sandboxes of a type by ``factory`` from now on.

    The type may be new or known, ``base`` and ``filesystem`` included.

    The factory is called once for each session that needs the type. It gets those of these arguments that it names, or
    all with ``**options``: ``folder`` (the session's, a ``Path``; files that it is to share with the other sandboxes go
    there), ``session_id``, ``user_id``, ``timeout`` (seconds), ``max_memory``, ``max_file_bytes``,
    ``max_total_memory``, ``max_folder_bytes``, ``base_url``, ``bearer_token``. What it returns is the sandbox: the
    tools of its type are its methods, or go through its ``call_tool(name, arguments)``; its ``close()``, if it has one,
    releases it.

    Raises:
        InvalidArgumentError: the name is empty, or the factory cannot be called so.
    """
    key = type_name(name)
    instance_of(f"the factory of {key!r}", factory, Callable)
    needed = [
        each.name
        for each in _parameters(factory).values()
        if each.default is Parameter.empty
        and each.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        and (each.kind is Parameter.POSITIONAL_ONLY or each.name not in OPTIONS)
    ]
    if needed:
        raise InvalidArgumentError(
            f"the factory of {key!r} needs {', '.join(needed)}, which no sandbox is made with",
            hint=f"it can ask for {', '.join(OPTIONS)}",
        )
    _registered[key] = factory


def unregister(name: str | SandboxType) -> None:
    """Remove the factory of a type.

    ``base`` and ``filesystem`` are local again. Raises ``InvalidArgumentError`` if there is none.
    """
    if _registered.pop(type_name(name), None) is None:
        raise InvalidArgumentError(f"no factory is registered for {type_name(name)!r}")


def type_name(name: object) -> str:
    """Return the name of a type, from a string or a member of an Enum. Raises ``InvalidArgumentError``."""
    value = name.value if isinstance(name, Enum) else name
    return string("the type of a sandbox", str(value) if isinstance(value, str) else value, empty=False)


def is_local(name: str) -> bool:
    """Return whether sandboxes of a type run on this machine, made by the library."""
    return name in _LOCAL and name not in _registered


def check_type(name: object) -> str:
    """Return the name of a type that has a factory. Raises ``InvalidArgumentError``, which says how to register one."""
    key = type_name(name)
    if key in _registered or key in _LOCAL:
        return key
    hint = f"versioned_state.sandbox.register({key!r}, factory)"
    if key in list(SandboxType):
        raise InvalidArgumentError(
            f"no factory is registered for sandboxes of type {key!r}; "
            f"only {' and '.join(_LOCAL)} come with the library",
            remains="no sandbox was made",
            hint=hint,
        )
    known = sorted({*SandboxType, *_registered})
    raise InvalidArgumentError(
        f"there is no type of sandbox {key!r}",
        remains="no sandbox was made",
        hint=f"known are {', '.join(known)}; for a new one: {hint}",
    )


def make(name: str, options: Mapping[str, Any]) -> Any:
    """Return a new sandbox of a type, by its factory. Raises what the factory raises."""
    factory = _registered.get(check_type(name)) or _local(name)
    parameters = _parameters(factory)
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
        return factory(**options)
    return factory(**{name: value for name, value in options.items() if name in parameters})


def _local(name: str) -> Factory:
    if name == SandboxType.BASE:
        from versioned_state.sandbox.local.base_sandbox import BaseSandbox

        return BaseSandbox
    from versioned_state.sandbox.local.filesystem_sandbox import FilesystemSandbox

    return FilesystemSandbox


def _parameters(factory: Factory) -> Mapping[str, Parameter]:
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):  # a callable of C that does not say
        return {}
