"""``open``: a state at a URL, in one call. Layer: state."""

from __future__ import annotations

import os
from typing import Final

from versioned_state.repository.history.signing import Signer
from versioned_state.state.versioned import Versioned
from versioned_state.storage import Cache, open_store
from versioned_state.storage.url import is_remote
from versioned_state.values.codec.pickles import PickleMode

CACHE_BYTES: Final = 64 * 1024 * 1024


def open(  # noqa: A001, PLR0913 - read as versioned_state.open, as gzip.open is; each is an option of its own
    url: str | os.PathLike[str],
    *,
    branch: str = "main",
    author: str | None = None,
    pickle: PickleMode = "own",
    pickle_key: bytes | None = None,
    signer: Signer | None = None,
    encryption_key: bytes | None = None,
    read_only: bool = False,
    create: bool = True,
    cache_bytes: int = CACHE_BYTES,
) -> Versioned:
    """The state at a URL or path, as ``open_store`` takes them; closing it closes the store.

    Args:
        branch, author, pickle, pickle_key, signer: as for ``Versioned``.
        encryption_key: 32 bytes; the store is ``Encrypted`` with them, or is made so where it is empty.
        read_only: the store is not written to; ``commit`` raises ``ReadOnlyError``.
        create: make a store where there is none. If not, or ``read_only``: ``StoreNotFoundError``.
        cache_bytes: how much of a store across a network is kept in memory, once read; 0 for none. A local one has no cache.

    Raises:
        InvalidArgumentError: a URL that cannot be meant.
        StorageError: the store cannot be opened, or is none of ours; see ``errors``. Nothing is left open.
    """
    store = open_store(url, read_only=read_only, create=create, encryption_key=encryption_key)
    try:
        if cache_bytes and is_remote(url):
            store = Cache(store, cache_bytes)
        state = Versioned(store, branch=branch, author=author, pickle=pickle, pickle_key=pickle_key, signer=signer)
    except BaseException:
        store.close()
        raise
    state._own_store = store
    return state
