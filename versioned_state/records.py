"""Dataclasses that are cheap to define. Beneath all layers.

``dataclasses`` loads ``inspect`` and compiles every method of every class, 0.5 ms each: a third of the time that
importing ``Versioned`` took. Here ``__init__`` alone is compiled, when it is first used, and the other methods are
closures over the names of the fields. The instances behave alike, and ``is_dataclass``, ``fields`` and ``asdict`` of
the standard library work on them. Type checkers see its ``dataclass``, ``field`` and ``replace``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Standard", "dataclass", "field", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:
    from operator import attrgetter
    from reprlib import recursive_repr

    _MISSING = object()
    _FIELDS = "__record_fields__"

    class _Field:
        """The result of ``field()``. The arguments are those of ``dataclasses.field``."""

        __slots__ = ("annotation", "options")

        def __init__(self, options):
            self.options = options
            self.annotation = None

        def get(self, option, default=_MISSING):
            return self.options.get(option, default)

    def field(**options):
        """Describe a field, by ``default``, ``default_factory``, ``compare`` and ``repr``."""
        return _Field(options)

    def replace(instance, **changes):
        """Return a record with some fields changed."""
        for name in instance.__match_args__:
            if name not in changes:
                changes[name] = getattr(instance, name)
        return instance.__class__(**changes)

    def dataclass(*, slots, frozen=False, eq=True, repr=True, unsafe_hash=False):  # noqa: A002 - as in dataclasses
        """Make a class a dataclass with slots, as ``dataclasses.dataclass`` does."""
        if not slots:
            raise TypeError("a record has slots")
        options = {"frozen": frozen, "eq": eq, "repr": repr, "unsafe_hash": unsafe_hash}
        return lambda cls: _record(cls, **options)

    def _record(cls, *, frozen, eq, repr, unsafe_hash):  # noqa: A002 - as in dataclasses
        fields = {}
        for base in reversed(cls.__mro__[1:]):
            fields |= base.__dict__.get(_FIELDS, {})
        inherited = frozenset(fields)
        namespace = dict(cls.__dict__)
        for name, annotation in namespace.get("__annotations__", {}).items():
            if not annotation.startswith("ClassVar"):
                given = namespace.pop(name, _MISSING)
                described = (
                    given if isinstance(given, _Field) else _Field({} if given is _MISSING else {"default": given})
                )
                described.annotation = annotation
                fields[name] = described
        names = tuple(fields)
        namespace |= {
            "__slots__": tuple(name for name in names if name not in inherited),
            "__match_args__": names,
            _FIELDS: fields,
        }
        namespace.pop("__dict__", None)
        namespace.pop("__weakref__", None)
        qualname = cls.__qualname__
        cls = type(cls)(cls.__name__, cls.__bases__, namespace)
        cls.__qualname__ = qualname
        cls.__init__ = _Initializer(cls, fields, frozen=frozen)
        if repr and "__repr__" not in namespace:
            cls.__repr__ = _shown(tuple(name for name in names if fields[name].get("repr", True)))
        if eq:
            _compared(
                cls,
                tuple(name for name in names if fields[name].get("compare", True)),
                namespace,
                hashed=frozen or unsafe_hash,
            )
        if frozen:
            _freeze(cls, names)
        cls.__dataclass_fields__ = Standard("__dataclass_fields__", frozen=frozen)
        cls.__dataclass_params__ = Standard("__dataclass_params__", frozen=frozen)
        return cls

    class _Initializer:
        """The ``__init__`` of a record, compiled at first use: most are never used, and compiling takes longest."""

        def __init__(self, cls, fields, *, frozen):
            self._cls = cls
            self._fields = fields
            self._frozen = frozen

        def __get__(self, instance, cls):
            self._cls.__init__ = method = _initializer(self._cls, self._fields, frozen=self._frozen)
            return method.__get__(instance, cls)

    def _initializer(cls, fields, *, frozen):
        scope = {"__builtins__": {}}
        parameters, lines = [], []
        for name, each in fields.items():
            given = name
            if (default := each.get("default")) is not _MISSING:
                scope[f"_default_{name}"] = default
                parameters.append(f"{name}=_default_{name}")
            elif (factory := each.get("default_factory")) is not _MISSING:
                scope |= {f"_make_{name}": factory, "_missing": _MISSING}
                parameters.append(f"{name}=_missing")
                given = f"_make_{name}() if {name} is _missing else {name}"
            else:
                parameters.append(name)
            if frozen:
                scope[f"_set_{name}"] = getattr(cls, name).__set__  # past __setattr__, which refuses
                lines.append(f" _set_{name}(self, {given})")
            else:
                lines.append(f" self.{name} = {given}")
        if hasattr(cls, "__post_init__"):
            lines.append(" self.__post_init__()")
        source = f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(lines or [" pass"])
        exec(compile(source, f"<__init__ of {cls.__qualname__}>", "exec"), scope)  # noqa: S102 - the names of the fields are its only input
        method = scope["__init__"]
        method.__qualname__ = f"{cls.__qualname__}.__init__"
        method.__module__ = cls.__module__
        method.__annotations__ = {name: each.annotation for name, each in fields.items()} | {"return": "None"}
        return method

    def _shown(names):
        @recursive_repr()
        def shown(self):
            return f"{self.__class__.__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

        return shown

    def _compared(cls, names, namespace, *, hashed):
        equal, hash_of = _comparison(names)
        if "__eq__" not in namespace:
            cls.__eq__ = equal
        if not hashed and namespace.get("__hash__") is None:
            cls.__hash__ = None
        elif "__hash__" not in namespace:
            cls.__hash__ = hash_of

    def _comparison(names):
        if len(names) == 1:  # without a tuple, as this is the one of Commit and of the steps of paths
            (value,) = map(attrgetter, names)

            def equal(self, other):
                if other.__class__ is not self.__class__:
                    return NotImplemented
                mine, theirs = value(self), value(other)
                return mine is theirs or mine == theirs

            def hash_of(self):
                return hash((value(self),))

        else:
            values = attrgetter(*names) if names else lambda _: ()

            def equal(self, other):
                return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

            def hash_of(self):
                return hash(values(self))

        return equal, hash_of

    def _freeze(cls, names):
        def refuse_assignment(self, name, value):
            if type(self) is cls or name in names:
                from dataclasses import FrozenInstanceError

                raise FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def refuse_deletion(self, name):
            if type(self) is cls or name in names:
                from dataclasses import FrozenInstanceError

                raise FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        cls.__setattr__, cls.__delattr__ = refuse_assignment, refuse_deletion
        cls.__getstate__, cls.__setstate__ = _getstate, _setstate

    def _getstate(self):
        return [getattr(self, name) for name in self.__match_args__]

    def _setstate(self, state):
        for name, value in zip(self.__match_args__, state, strict=False):
            object.__setattr__(self, name, value)


class Standard:
    """The attributes that ``dataclasses`` adds to a class, made at the first access."""

    def __init__(self, name: str, *, frozen: bool) -> None:
        self._name = name
        self.frozen = frozen

    def options_of(self, cls: Any) -> dict[str, dict[str, Any]]:
        """Return the options of each field of a class, by its name."""
        return {name: each.options for name, each in cls.__record_fields__.items()}

    def __get__(self, instance: object, cls: Any) -> object:
        import dataclasses

        described = [
            (name, each.annotation, dataclasses.field(**each.options)) for name, each in cls.__record_fields__.items()
        ]
        made = getattr(dataclasses.make_dataclass(cls.__name__, described, frozen=self.frozen), self._name)
        owner = next(base for base in cls.__mro__ if base.__dict__.get(self._name) is self)
        setattr(owner, self._name, made)
        return made
