"""Modules for tests: an agent with a memory, and others that do by themselves what ``StateModule`` does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from versioned_state.agents.modules import StateModule


class Memory(StateModule):
    """Messages as plain dicts."""

    def __init__(self, content: Iterable[Any] = ()) -> None:
        super().__init__()
        self.content: list[Any] = list(content)
        self.register_state("content")


class Agent(StateModule):
    """An agent with a memory and a name."""

    if TYPE_CHECKING:  # tests give it more

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, name: str = "Friday", content: Iterable[Any] = ()) -> None:
        super().__init__()
        self.memory: Any = Memory(content)
        self.name = name
        self.register_state("name")


class Message:
    """A message that JSON cannot hold."""

    def __init__(self, text: str) -> None:
        self.text = text


class ObjectMemory(StateModule):
    """Messages as objects, which the class itself turns into dicts and back, as agentscope's memories do."""

    def __init__(self) -> None:
        super().__init__()
        self.content: list[Message] = []
        self.register_state("content")

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "content": [{"text": message.text} for message in self.content]}

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> None:  # noqa: FBT001, FBT002 - agentscope's signature
        self.content = []
        for each in state_dict["content"] if strict else state_dict.get("content", []):
            self.content.append(Message(each["text"]))


class Toolkit(StateModule):
    """Has its state in objects that no attribute names, as agentscope's toolkit does."""

    def __init__(self, **groups: bool) -> None:
        super().__init__()
        self.groups = {name: [active] for name, active in groups.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"active_groups": [name for name, group in self.groups.items() if group[0]]}

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> None:  # noqa: FBT001, FBT002 - agentscope's signature
        if strict and list(state_dict) != ["active_groups"]:
            raise ValueError(f"additional keys: {list(state_dict)}")
        for name, group in self.groups.items():
            group[0] = name in state_dict["active_groups"]
