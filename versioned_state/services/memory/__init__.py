"""The memory service: messages by user and session, found by keyword, by rank or by meaning.

Needs the extra ``services``.
"""

from versioned_state.services.memory.embedder import Embedder
from versioned_state.services.memory.memory_service import (
    InMemoryMemoryService,
    MemoryService,
    RedisMemoryService,
    VersionedMemoryService,
)

__all__ = ["Embedder", "InMemoryMemoryService", "MemoryService", "RedisMemoryService", "VersionedMemoryService"]
