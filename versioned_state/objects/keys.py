"""The keys of a ``KVStore``, and the functions that format and parse them.

No other module formats a key. Layer: objects.

=============================  ==========================================================
key                            value
=============================  ==========================================================
``o/<48 hex digits>``          an object, in its envelope; immutable
``format``                     the format version of the store
``ref/branch/<name>``          a branch: name, head, checksum
``ref/tag/<name>``             a tag: the same
``born/branch/<name>``         the branch was created: if its ref is missing, it was lost
``born/tag/<name>``            the same for a tag
``shared/<32 characters>``     a ref was pointed at this commit, or merged it, after it was made: see ``refs/shared``
``recent/<16 digits>/<name>``  a branch, by when it changed last: see ``refs/ref``; the value is empty
``gone/<16 digits>/<name>``    a deleted branch, by when it was deleted: see ``refs/ref``; the value is empty
``due/<16 digits>/<name>``     a branch that expires, by when: see ``refs/ref``; the value is empty
``meta/<8>/<16 digits>/<ref>`` a ref, under hashes of a key and a value in the meta of its head: see
                               ``refs/meta_index``; the value is empty
``note/<32 characters>``       the note of a commit, under its address in URL-safe base64
``record/<name>``              a named record: data beside the history; see ``refs/named_records``
``stamp/<24 digits>``          what made commits, under a hash of its content: see ``refs/stamps``
``merge``                      merge policies, by the pattern of a path
``cuts``                       where history ends, after ``prune``
``cuts/<32 digits>``           a page of that record, under a hash of its content
``gc``                         the fence between gc and writers
``gc-marks/<8 digits>``        the marks of a gc whose time was over, for the next one
``moved/<16 digits>/<ref>``    a ref moved since the marking of gc with this number; ``<ref>`` is ``branch/<name>`` or
                               ``tag/<name>``
``keepers``                    which marking the keepers of objects are from, and which of them were erased since
``keepers/<16 digits>/<page>`` the keepers of the objects whose addresses begin alike: see
                               ``maintenance/gc/keeper_table``
``lock/<name>``                the lock of a branch: its token, who has it or had it last, and the time to live
``purge/<32 digits>``          the journal of a purge that has not finished, under a hash of its arguments
``effect/<48 digits>``         an effect, under the hash of its key: begun, or done, with its result
=============================  ==========================================================
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, Literal

from blake3 import blake3

from versioned_state.objects.address import ADDRESS_SIZE, HEX_SIZE, Address

RefKind = Literal["branch", "tag"]

REF_KINDS: Final[tuple[RefKind, ...]] = ("branch", "tag")

FORMAT = "format"

MERGE_POLICIES = "merge"

SHALLOW = "cuts"

SHALLOW_PAGES = "cuts/"

GC = "gc"

OBJECTS = "o/"

EFFECTS = "effect/"

NOTES = "note/"

RECORDS = "record/"

SHARED = "shared/"

STAMPS = "stamp/"

LOCKS = "lock/"

RECENT = "recent/"

GONE = "gone/"

DUE = "due/"

META = "meta/"

GC_MARKS = "gc-marks/"

REFS = "ref/"

MOVED = "moved/"

KEEPERS = "keepers"

KEEPER_PAGES = "keepers/"

PURGES = "purge/"

_DIGITS = 16  # of a time in the key of an index

_RECORDS: Final = frozenset({FORMAT, SHALLOW, GC, KEEPERS, MERGE_POLICIES})
_PREFIXES: Final = (
    DUE,
    EFFECTS,
    GC_MARKS,
    GONE,
    KEEPER_PAGES,
    LOCKS,
    META,
    MOVED,
    NOTES,
    PURGES,
    RECENT,
    RECORDS,
    SHALLOW_PAGES,
    SHARED,
    STAMPS,
)


def is_record(key: str) -> bool:
    """Return whether a mutable key is one of the library's."""
    return key in _RECORDS or key.startswith(
        (*_PREFIXES, *(prefix(kind, "") for kind in REF_KINDS for prefix in (ref_key, birth_key)))
    )


def object_key(address: Address) -> str:
    """Return the key of an object."""
    return "o/" + address.hex()


def address_in(key: str) -> Address:
    """Return the address in an object's key. Raises ``ValueError`` for any other key."""
    address = bytes.fromhex(key[2:])
    if len(key) != HEX_SIZE + 2:
        raise ValueError(f"not the key of an object: {key!r}")
    return Address(address)


def ref_key(kind: RefKind, name: str) -> str:
    """Return the key of a ref's record."""
    return f"{REFS}{kind}/{name}"


def read_ref_key(key: str) -> tuple[RefKind, str]:
    """Return the kind and the name in the key of a ref's record. Raises ``ValueError`` for any other key."""
    for kind in REF_KINDS:
        if key.startswith(start := ref_key(kind, "")):
            return kind, key[len(start) :]
    raise ValueError(f"not the key of a ref: {key!r}")


def birth_key(kind: RefKind, name: str) -> str:
    """Return the key that says that a ref was created."""
    return f"born/{kind}/{name}"


def lock_key(branch: str) -> str:
    """Return the key of the record of a branch's lock."""
    return LOCKS + branch


def recent_key(time: int, name: str) -> str:
    """Return the key of a branch in the index by the time of its last change."""
    return f"{RECENT}{time:0{_DIGITS}x}/{name}"


def gone_key(time: int, name: str) -> str:
    """Return the key of a deleted branch in the index by the time of its deletion."""
    return f"{GONE}{time:0{_DIGITS}x}/{name}"


def due_key(time: int, name: str) -> str:
    """Return the key of a branch in the index by the time at which it expires."""
    return f"{DUE}{time:0{_DIGITS}x}/{name}"


def read_index_key(key: str) -> tuple[int, str]:
    """Return the time and the branch in a key of any of these indexes. Raises ``ValueError`` for any other key."""
    _, digits, name = key.split("/", 2)
    return int(digits, 16), name


def meta_prefix(key: str, value: bytes, kind: RefKind) -> str:
    """Return the beginning of the keys of the refs whose heads have a value under a key of meta.

    Args:
        value: the value, as its cell.
        kind: the kind of the refs.
    """
    hashed = blake3(key.encode()).hexdigest(length=4)
    return f"{META}{hashed}/{blake3(value).hexdigest(length=8)}/{kind}/"


def read_meta_key(key: str) -> str:
    """Return the key of the ref's record in a key of the index of meta. Raises ``ValueError`` for any other key."""
    _, _, _, ref = key.split("/", 3)
    return REFS + ref


def gc_marks_key(number: int) -> str:
    """Return the key of a part of the marks that a gc left."""
    return f"{GC_MARKS}{number:08}"


def moved_key(marking: int, key: str) -> str:
    """Return the key that says that a ref, given by the key of its record, has moved since a marking of gc."""
    return f"{MOVED}{marking:0{_DIGITS}x}/{key.removeprefix(REFS)}"


def read_moved_key(key: str) -> tuple[int, str]:
    """Return the marking, and the key of the ref's record, in a ``moved_key``.

    Raises ``ValueError`` for any other key.
    """
    _, digits, ref = key.split("/", 2)
    return int(digits, 16), REFS + ref


def keeper_page_key(salt: bytes, page: int) -> str:
    """Return the key of a page of the keepers of objects, in the table with this salt."""
    return f"{KEEPER_PAGES}{salt.hex()}/{page:04x}"


def read_keeper_page_key(key: str) -> bytes:
    """Return the salt in a ``keeper_page_key``. Raises ``ValueError`` for any other key."""
    return bytes.fromhex(key.split("/", 2)[1])


def purge_key(digest: bytes) -> str:
    """Return the key of the journal of a purge, given a hash of its arguments."""
    return PURGES + digest.hex()


def shallow_page_key(body: bytes) -> str:
    """Return the key of a page of the record of shallow history."""
    return SHALLOW_PAGES + blake3(body).hexdigest(length=16)


def note_key(address: Address) -> str:
    """Return the key of the note of a commit."""
    return NOTES + urlsafe_b64encode(address).decode()


def record_key(name: str) -> str:
    """Return the key of a named record."""
    return RECORDS + name


def stamp_key(id: str) -> str:
    """Return the key of a stamp of commits."""
    return STAMPS + id


def shared_key(address: Address) -> str:
    """Return the key that says that a ref was pointed at this commit, or merged it, after it was made."""
    return SHARED + urlsafe_b64encode(address).decode()


def commit_in(key: str) -> Address:
    """Return the commit in the key of a note, or of shared commits. Raises ``ValueError`` for any other key."""
    address = urlsafe_b64decode(key.partition("/")[2])
    if len(address) != ADDRESS_SIZE or not key.startswith((NOTES, SHARED)):
        raise ValueError(f"not the key of a commit: {key!r}")
    return Address(address)


def effect_key(name: str) -> str:
    """Return the key of the record of an effect.

    It is a hash: the effect's own key may be of any length, and can be erased from the record.
    """
    return EFFECTS + blake3(name.encode("utf-8", "surrogatepass")).hexdigest(length=ADDRESS_SIZE)
