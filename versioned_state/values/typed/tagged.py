"""``Tagged``: a typed value whose class is not available. Layer: values."""

from __future__ import annotations

from typing import Any, Final, Never

from versioned_state.arguments import string
from versioned_state.records import dataclass, field
from versioned_state.values.codec.arrays import is_array

Notes = dict[str, Any] | None
"""The data of an instance beside its fields: which were given, and which are extra. None for most instances."""


_NAMES: Final = frozenset({"more", "unset", "extra", "set"})
"""The notes that are sets of names of fields."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """A typed value whose class is not registered, and not found or not imported because the store is not trusted.

    The paths of the instance lead into it. It can be edited, and is stored again without loss.

    Attributes:
        name: ``module:qualified.name``, or the registered name. Raises ``InvalidArgumentError`` if it is not a string,
            or empty.
        fields: the data: the fields by name, the elements of a container, the name of an Enum's member, or the result
            of ``to_data``.
    """

    name: str
    fields: Any
    notes: Notes = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_name(self.name)

    def __hash__(self) -> int:
        return hash((self.name, _hash_of(self.fields)))

    def notes_for(self, before: dict[str, Any]) -> Notes:
        """Return the notes after an edit of the fields from ``before``, as far as they are known without the class."""
        fields = self.fields
        if self.notes is None or type(fields) is not dict:
            return self.notes
        notes, names = dict(self.notes), frozenset(name for name in fields if type(name) is str)
        for key in notes.keys() & _NAMES:
            if type(notes[key]) is frozenset:
                notes[key] = notes[key] - names if key == "unset" else notes[key] & names
        if type(notes.get("set")) is frozenset:
            own = {name for name in names if name in notes.get("extra", ()) or name[:1] != "_"}.difference(
                notes.get("more", ())
            )
            notes["set"] |= {name for name in own if name not in before or fields[name] is not before[name]}
            if notes["set"] == own:  # a set of all fields is not noted
                del notes["set"]
        return {key: held for key, held in notes.items() if held or key not in _NAMES or key == "set"} or None

    def __getattr__(self, attribute: str) -> Never:
        raise AttributeError(
            f"{attribute!r}: {_why_tagged(self.name)}; its fields are in .fields", name=attribute, obj=self
        )


def _hash_of(data: Any) -> int:
    """Return the hash of data by content, for keys and elements of sets, which are not edited while they are there."""
    cls = type(data)
    if cls is dict:
        return hash(frozenset((key, _hash_of(part)) for key, part in data.items()))
    if cls is list or cls is tuple:
        return hash((cls is list, *map(_hash_of, data)))
    if cls is set or cls is bytearray:
        return hash(frozenset(data) if cls is set else bytes(data))
    if is_array(data):
        return hash(data.tobytes())  # of one hash, they would be compared, which arrays do element by element
    try:
        return hash(data)
    except TypeError:
        return 0


def _refuse_change(self: Tagged, attribute: str, *_value: object) -> Never:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"{attribute!r}: {_why_tagged(self.name)}; change its fields in .fields")


# Up to Python 3.12, the methods that dataclasses makes for a frozen class with slots refer to the class before it had
# slots.
Tagged.__setattr__ = Tagged.__delattr__ = _refuse_change  # type: ignore[method-assign, assignment]


def _why_tagged(name: str) -> str:
    return (
        f"this {name} was read as Tagged, "
        "since its class is not registered here, not found, or not to be imported from this store"
    )


def check_name(name: Any) -> None:
    """Raise ``InvalidArgumentError`` for a name that no type can have."""
    string("the name of a type", name, empty=False)
