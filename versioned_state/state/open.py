"""``open`` and ``open_async``: a state at a URL, in one call. Layer: state."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Final, ParamSpec

from versioned_state.repository.history.signing import Signer
from versioned_state.state.versioned import Versioned
from versioned_state.storage import Cache, open_store
from versioned_state.storage.url import is_remote
from versioned_state.storage.wrappers.cache import CACHE_BYTES
from versioned_state.values.codec.pickles import PickleMode
from versioned_state.values.codec.trust import TrustedModules

if TYPE_CHECKING:
    from versioned_state.repository.refs.stamps import StampSource
    from versioned_state.state.shape.migrations import Migrations

P = ParamSpec("P")


def open(  # noqa: A001, PLR0913 - read as versioned_state.open, as gzip.open is; each is an option of its own
    url: str | os.PathLike[str],
    *,
    branch: str = "main",
    author: str | None = None,
    pickle: PickleMode = "own",
    pickle_key: bytes | None = None,
    classes: TrustedModules = (),
    signer: Signer | None = None,
    ttl_seconds: float | None = None,
    encryption_key: bytes | None = None,
    read_only: bool = False,
    create: bool = True,
    cache_bytes: int = CACHE_BYTES,
    schema: Any = None,
    check_reads: bool = False,
    migrations: Migrations | None = None,
    stamp: StampSource | None = None,
) -> Versioned:
    """Open the state at a URL or path, of the kinds that ``open_store`` accepts. Closing the state closes its store.

    Args:
        branch, author, pickle, pickle_key, classes, signer, schema, check_reads, migrations, stamp: as for
        ``Versioned``. encryption_key: 32 bytes, the key of an ``Encrypted`` store; an empty store becomes one.
        read_only: write nothing; ``commit`` raises ``ReadOnlyError``. create: create the store if it does not exist;
        otherwise, and with ``read_only``, that is a ``StoreNotFoundError``. cache_bytes: the size of the cache of a
        store across a network; 0 for none. A local store has no cache.

    Raises:
        InvalidArgumentError: the URL is malformed.
        StorageError: the store cannot be opened, or is not a store of this library; see ``errors``. Nothing stays open.
    """
    store = open_store(url, read_only=read_only, create=create, encryption_key=encryption_key)
    try:
        if cache_bytes and is_remote(url):
            store = Cache(store, cache_bytes)
        state = Versioned(
            store,
            branch=branch,
            author=author,
            pickle=pickle,
            pickle_key=pickle_key,
            classes=classes,
            signer=signer,
            ttl_seconds=ttl_seconds,
            schema=schema,
            check_reads=check_reads,
            migrations=migrations,
            stamp=stamp,
        )
    except BaseException:
        store.close()
        raise
    state._own_store = store
    return state


def _twin(opening: Callable[P, Versioned]) -> Callable[P, Coroutine[Any, Any, Versioned]]:
    async def open_async(*args: P.args, **kwargs: P.kwargs) -> Versioned:
        """Open the state at a URL or path off the event loop, as ``versioned_state.open`` does.

        ``await state.aio.close()`` closes the state and its store, and so does the end of ``async with await
        open_async(url) as state:``. If the call is cancelled, nothing stays open.

        Raises:
            EventLoopError: asyncio runs no event loop here.
        """
        from versioned_state.off_loop import off_loop

        return await off_loop(partial(opening, *args, **kwargs), undo=lambda state: state.aio.close())

    return update_wrapper(open_async, opening, assigned=())


open_async: Final = _twin(open)
