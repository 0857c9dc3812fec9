"""The size limit of a ``Disk``: where it is kept, what counts, and the reserve that objects cannot use.

Layer: storage.
"""

from __future__ import annotations

from versioned_state.storage.local.sqlite_file import Connection

# The smallest size_limit that leaves space beside the reserve.
MIN_SIZE_LIMIT = 256 * 1024

SELECT = "SELECT value FROM settings WHERE name = 'size_limit'"
_PUT = "INSERT OR REPLACE INTO settings(name, value) VALUES('size_limit', ?)"


def read(connection: Connection) -> int | None:
    """Return the limit in bytes, or None if there is none."""
    row = connection.execute(SELECT).fetchone()
    return None if row is None else parse(row[0])


def parse(stored: object) -> int | None:
    """Return the limit that the result of ``SELECT`` states, or None if it states none."""
    return stored if isinstance(stored, int) and stored > 0 else None


def write(connection: Connection, limit: int) -> None:
    """Set the limit, or remove it with 0."""
    connection.execute(_PUT, (limit,))


def used_bytes(connection: Connection) -> int:
    """Return the bytes of the pages in use."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    used: int = (pages - free) * page_bytes
    return used


def allowed_bytes(limit: int, *, objects: bool, deletes: bool) -> int:
    """Return how many bytes may be in use after a batch. Only batches without objects may use the reserve.

    Half of the reserve is for refs, so that branches can be moved in a full store. The other half is for batches that
    delete: SQLite may need a few pages before it frees many.

    Args:
        objects, deletes: whether the batch stores objects, or deletes anything.
    """
    reserve = 64 * 1024 + limit // 64
    if objects:
        return limit - reserve
    return limit if deletes else limit - reserve // 2
