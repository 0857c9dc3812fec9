"""Assignment in place: a live value gets the content of another value, so that references to it stay valid.

Layer: state.

A container whose type does not change keeps its identity. Dicts are matched by key and lists by aligned elements; sets,
bytearrays, arrays and plain objects are refilled; of an instance each field is set. Equal parts are not changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from versioned_state.errors import StateError
from versioned_state.values.changes.diff import diff_lists
from versioned_state.values.codec.arrays import is_array
from versioned_state.values.codec.scalars import TooDeepError, is_plain
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.typed.layout import NotPlainDataError
from versioned_state.values.typed.registry import layout_of, make
from versioned_state.values.typed.tagged import Tagged


class Claims(dict[int, Any]):
    """The live objects, by id, that have a path in the new content.

    If one object was at two paths, the second path gets a copy.

    Attributes:
        lenient: replace an object whose own code refuses its new content, instead of raising.
        refused: the number of objects replaced for this reason.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lenient = False
        self.refused = 0


def replace_content(live: Any, decode: Callable[[], Any], fingerprinter: Fingerprinter, claimed: Claims) -> Any:
    """Assign to ``live`` the content of ``decode()``, in place if possible.

    Returns the value as ``assign_in_place`` does.

    An exception comes either from an object that refuses its content, or from an interrupt such as a timeout. Only the
    first kind recurs in the second attempt.
    """
    known = len(claimed)
    try:
        return assign_in_place(live, decode(), fingerprinter, claimed)
    except StateError:
        raise
    except Exception:
        while len(claimed) > known:
            claimed.popitem()
        refused = claimed.refused
        claimed.lenient = True
        try:
            value = assign_in_place(live, decode(), fingerprinter, claimed)
        finally:
            claimed.lenient = False
        if claimed.refused == refused:
            raise
        return value


def assign_in_place(live: Any, target: Any, fingerprinter: Fingerprinter, claimed: Claims) -> Any:
    """Assign to ``live`` the content of ``target``.

    Returns ``live`` if its type allows that, or else ``target``. Cost: the size of both.

    Args:
        target: a value without other references: its parts become parts of ``live``.
        claimed: the live objects that must not be changed again.
    """
    if type(target) is Tagged and type(live) is not Tagged:
        target = _as_live(live, target)
    if live is target or not _is_one_type(type(live), type(target)) or id(live) in claimed:
        return target
    claimed[id(live)] = live
    try:
        return _assign(live, target, fingerprinter, claimed)
    except Exception:  # raised by the type's own code, or because a buffer is exported
        if not claimed.lenient:
            raise
        claimed.refused += 1
        return target


def _as_live(live: Any, target: Tagged) -> Any:
    """Return the target as an instance of the class of ``live``, if it was stored under that class's name.

    Then the store need not be trusted.
    """
    layout = layout_of(type(live))
    if layout is None or layout.name != target.name:
        return target
    try:
        return make(layout, target.name, target.fields, target.notes or {})[0]
    except NotPlainDataError:
        return target


def _is_one_type(a: type, b: type) -> bool:
    """Return whether two classes' values are stored under one name, as after a notebook's cell has run again."""
    if a is b:
        return True
    layout, other = layout_of(a), layout_of(b)
    return layout is not None and other is not None and layout.name == other.name and type(layout) is type(other)


def _assign(live: Any, target: Any, fingerprinter: Fingerprinter, claimed: Claims) -> Any:
    cls = type(live)
    if cls is list:
        _update_list(live, target, fingerprinter, claimed)
    elif cls is dict:
        _update_dict(live, target, fingerprinter, claimed)
    elif cls is set:
        # Elements in both sets keep their identity. Compare types too: 1 and True are equal but different values.
        wanted = {element: element for element in target}
        live -= {
            element
            for element in live
            if element not in wanted or not _is_same(element, wanted[element], fingerprinter)
        }
        live |= target
    elif cls is bytearray:
        live[:] = target
    elif is_array(live):
        if live.dtype != target.dtype or live.shape != target.shape or not live.flags.writeable:
            return target
        live[...] = target
    elif (layout := layout_of(cls)) is not None:
        return (
            live
            if layout.assign(live, target, lambda held, part: assign_in_place(held, part, fingerprinter, claimed))
            else target
        )
    elif cls is Tagged:
        return _assign_tagged(live, target, fingerprinter, claimed)
    elif _is_plain_object(cls):
        _update_dict(live.__dict__, target.__dict__, fingerprinter, claimed)
    else:
        return target
    return live


def _assign_tagged(live: Tagged, target: Tagged, fingerprinter: Fingerprinter, claimed: Claims) -> Tagged:
    """Assign to a ``Tagged``: only its fields can be changed in place, if they are a dict or a list."""
    fields = assign_in_place(live.fields, target.fields, fingerprinter, claimed)
    if fields is live.fields and live.name == target.name and live.notes == target.notes:
        return live
    return Tagged(target.name, fields, target.notes)


def _is_plain_object(cls: type) -> bool:
    """Return whether ``__dict__`` holds all state of an instance, and the class does not customize pickling."""
    return (
        cls.__dictoffset__ != 0
        and not issubclass(cls, (type, int, str, bytes, float, tuple, frozenset, list, set, BaseException))
        and cls.__reduce_ex__ is object.__reduce_ex__
        and cls.__reduce__ is object.__reduce__
        and not hasattr(cls, "__setstate__")
        and not any("__slots__" in base.__dict__ and base.__dict__["__slots__"] for base in cls.__mro__)
    )


def _update_dict(live: dict[Any, Any], target: dict[Any, Any], fingerprinter: Fingerprinter, claimed: Claims) -> None:
    # Equal keys may differ in type (1, True), so take the keys of the target, and reuse the live values.
    old = dict(live)
    new = {}
    for key, value in target.items():
        new[key] = assign_in_place(old[key], value, fingerprinter, claimed) if key in old else value
    if list(map(_key, live)) == list(map(_key, new)):
        # Assign by the live key: a NaN is found only by its identity.
        for (key, held), value in zip(list(live.items()), new.values(), strict=True):
            if held is not value:
                live[key] = value
        return
    try:
        live.clear()
        live.update(new)
    except BaseException:  # an interrupt: complete the change, because otherwise entries would be lost
        live.clear()
        live.update(new)
        raise


def _key(key: Any) -> Any:
    return (type(key), repr(key)) if type(key) is not str else key


def _update_list(live: list[Any], target: list[Any], fingerprinter: Fingerprinter, claimed: Claims) -> None:
    old = [_fingerprint(value, fingerprinter, index) for index, value in enumerate(live)]
    new = [_fingerprint(value, fingerprinter, -1 - index) for index, value in enumerate(target)]
    prefix = 0
    least = min(len(old), len(new))
    while prefix < least and old[prefix] == new[prefix]:
        prefix += 1
    suffix = 0
    while suffix < least - prefix and old[-1 - suffix] == new[-1 - suffix]:
        suffix += 1
    parts = [
        (prefix + part.old_start, prefix + part.old_end, prefix + part.new_start, prefix + part.new_end)
        for part in diff_lists(old[prefix : len(old) - suffix], new[prefix : len(new) - suffix])
    ]
    stays = list(
        zip([0, *(end for _, end, _, _ in parts)], [*(start for start, _, _, _ in parts), len(live)], strict=True)
    )
    for start, end in stays:
        # An element that stays must not be changed as part of another path.
        claimed.update((id(part), part) for part in live[start:end])
    result = live[: stays[0][1]]
    for (start, end, new_start, new_end), (stay_start, stay_end) in zip(parts, stays[1:], strict=True):
        both = min(end - start, new_end - new_start)
        result += [assign_in_place(live[start + k], target[new_start + k], fingerprinter, claimed) for k in range(both)]
        result += target[new_start + both : new_end]
        result += live[stay_start:stay_end]
    live[:] = result


def _is_same(a: Any, b: Any, fingerprinter: Fingerprinter) -> bool:
    """Return whether two equal elements have the same stored form."""
    return type(a) is type(b) and (
        type(a) is str or _fingerprint(a, fingerprinter, 0) == _fingerprint(b, fingerprinter, 1)
    )


def _fingerprint(value: Any, fingerprinter: Fingerprinter, otherwise: int) -> Any:
    """Return the fingerprint for aligning an element. An element without a fingerprint matches no other element."""
    try:
        plain = is_plain(value)
    except (TooDeepError, RecursionError):
        plain = False
    fingerprint = fingerprinter.of([value], plain=True)[0] if plain else fingerprinter.content(value)
    return ("none", otherwise) if fingerprint is None else fingerprint
