"""LangGraph on versioned-state: ``VersionedSaver`` keeps threads' checkpoints, ``VersionedStore`` a store's items."""

from versioned_state.integrations.frameworks import check_version
from versioned_state.integrations.langgraph.saver import VersionedSaver
from versioned_state.integrations.langgraph.store import VersionedStore

check_version("langgraph")

__all__ = ["VersionedSaver", "VersionedStore"]
