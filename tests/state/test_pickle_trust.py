"""Unpickling runs code, so the caller must trust every writer, store by store: by ``pickle=`` and ``pickle_key=``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import versioned_state
from tests.support.data_samples import CONTAINERS, SCALARS
from tests.support.exact import exact
from tests.support.mutations import Opaque
from versioned_state import Cache, Disk, Memory, ObjectInfo, Versioned
from versioned_state.errors import PickleRefusedError, StateError
from versioned_state.storage import Counting, ReadOnly, SingleProcessStore
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.trees.nodes import Nodes

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


class Shared(Memory):
    """A store that others can write to, as a custom one is unless it says otherwise."""

    private = False


def filled(store: Memory, **options: Any) -> Memory:
    """A store with data and objects, written by whoever may."""
    state = Versioned(store, **options)
    state["data"] = {"a": [1, (2,)]}
    state["object"] = Opaque(a=[1])
    state["inside"] = [1, {"x": Opaque(b=2)}, "text"]
    state["large"] = [*("x" * 100 for _ in range(200)), Opaque(c=list(range(3000)))]
    state.commit("filled")
    return store


WRITES: list[tuple[type[Memory], dict[str, Any], bool]] = [
    (Memory, {}, True),
    (Memory, {"pickle": "own"}, True),
    (Memory, {"pickle": "allow"}, True),
    (Memory, {"pickle": "refuse"}, False),
    (Memory, {"pickle_key": KEY}, True),
    (Shared, {}, False),
    (Shared, {"pickle": "own"}, False),
    (Shared, {"pickle": "allow"}, True),
    (Shared, {"pickle": "refuse"}, False),
    (Shared, {"pickle_key": KEY}, True),
]


@pytest.mark.parametrize(("store", "options", "allowed"), WRITES)
def test_who_may_write_and_read_objects(store, options, allowed):
    kv = store()
    state = Versioned(kv, **options)
    state["data"] = [1]
    state.commit()
    state["data"].append(2)
    state["object"] = thing = {"at": [Opaque(a=1)]}
    if allowed:
        commit = state.commit()
        read = Versioned(kv, **options)
        assert exact(read["object"]) == exact(thing)
        assert exact(state.checkout(commit)["object"]) == exact(thing)
        read["object"]["at"][0].a = 2
        assert len(read.status()) == 1
    else:
        with pytest.raises(PickleRefusedError, match=r"object\.at\[0\].*Opaque") as caught:
            state.commit()
        assert "nothing was committed" in str(caught.value)
        shown = state.status().unstorable["object.at[0]"]
        for error in (caught.value, shown):
            assert isinstance(error, PickleRefusedError)
            assert error.path == "object.at[0]"
            assert error.type_name == "tests.support.mutations.Opaque"
            assert error.hint
        assert state["object"] is thing
        assert state.commit(skip_unserializable=True).skipped == ("object.at[0]",)
        del state["object"]
        assert not state.status()
        assert state.checkout("HEAD").copy() == {"data": [1, 2]}


READS: list[tuple[type[Memory], dict[str, Any], dict[str, Any], str | None]] = [
    (Memory, {}, {"pickle": "refuse"}, "pickle='refuse'"),
    (Memory, {}, {"pickle": "allow"}, None),
    (Memory, {}, {"pickle_key": KEY}, "pickle_key"),
    (Memory, {"pickle_key": KEY}, {"pickle_key": KEY}, None),
    (Memory, {"pickle_key": KEY}, {"pickle_key": OTHER_KEY}, "pickle_key"),
    (Memory, {"pickle_key": KEY}, {}, None),
    (Shared, {"pickle": "allow"}, {}, "others may write"),
    (Shared, {"pickle": "allow"}, {"pickle": "refuse"}, "pickle='refuse'"),
    (Shared, {"pickle": "allow"}, {"pickle_key": KEY}, "pickle_key"),
    (Shared, {"pickle_key": KEY}, {}, "others may write"),
    (Shared, {"pickle_key": KEY}, {"pickle_key": KEY, "pickle": "refuse"}, None),
]


@pytest.mark.parametrize(("store", "writer", "reader", "refused"), READS)
def test_a_refused_read_does_not_spoil_its_neighbours(store, writer, reader, refused):
    kv = filled(store(), **writer)
    state = Versioned(kv, **reader)
    snapshot = state.checkout("HEAD")
    for view in (state, snapshot):
        for key in ("object", "inside", "large"):
            if refused is None:
                assert exact(view[key]) == exact(Versioned(kv, **writer)[key])
            else:
                with pytest.raises(PickleRefusedError, match=refused) as caught:
                    view[key]
                assert caught.value.hint
                assert caught.value.policy == ("key" if refused == "pickle_key" else reader.get("pickle", "own"))
                assert caught.value.type_name == "tests.support.mutations.Opaque"
                assert "Opaque" in str(caught.value)
        assert view["data"] == {"a": [1, (2,)]}
        assert list(view) == ["data", "inside", "large", "object"]
    if refused is not None:
        assert snapshot.at("inside[0]") == 1
        assert snapshot.at("inside[2]") == "text"
        assert snapshot.at("large[5]") == "x" * 100
    # Whoever may not read it can still work beside it, move it out of the way, and look at what it is.
    state["data"]["a"].append(3)
    assert [str(change) for change in state.status()] == ["+ data.a[2] = 3"]
    state.commit("beside")
    described = state.repository.snapshot("HEAD", describe=True)
    assert isinstance(described["object"], ObjectInfo)
    assert described["object"].type_name == "tests.support.mutations.Opaque"
    assert "tests.support.mutations.Opaque" in described["object"].imports
    assert "Opaque" in str(state.diff("HEAD~2", "HEAD"))
    del state["object"]
    state.commit("without")
    state.reset("HEAD~1")
    state.reset("main@{1}")
    state.refresh()
    assert "object" not in state


def test_wrappers_pass_on_whether_a_store_is_private():
    for wrap in (Cache, Counting, ReadOnly):
        assert wrap(Memory()).private
        assert not wrap(Shared()).private
    assert not SingleProcessStore.private, "nor is a custom store, unless it says so"


def test_a_folder_that_others_can_write_to_is_not_ones_own(tmp_path):
    with Versioned(Disk(tmp_path / "store")) as state:
        state["object"] = Opaque(a=1)
        state.commit()
    (tmp_path / "store").chmod(0o777)
    with Versioned(Disk(tmp_path / "store")) as state, pytest.raises(PickleRefusedError, match="others may write"):
        state["object"]
    (tmp_path / "store").chmod(0o700)
    with Versioned(Disk(tmp_path / "store")) as state:
        assert state["object"].a == 1


# The MAC


def test_a_pickle_that_was_put_in_the_place_of_another_is_refused(tmp_path):
    """With valid hashes all the way up, as one who can write to the store can make them: but not the MAC."""
    trace = tmp_path / "trace"

    class Harmful:
        def __reduce__(self) -> Any:
            return Path.touch, (trace,)

    theirs = Memory()
    attacker = Versioned(theirs, pickle="allow")
    for size in (0, 5000):
        attacker["object"] = [Harmful(), "x" * size]
        attacker.commit()
        victim = Versioned(theirs, pickle_key=KEY)
        with pytest.raises(PickleRefusedError, match="pickle_key"):
            victim["object"]
        with pytest.raises(PickleRefusedError, match="pickle_key"):
            victim.checkout("HEAD")["object"]
    assert not trace.exists()


def test_a_mac_covers_type_and_content():
    state = Versioned(pickle_key=KEY)
    state["a"] = Opaque(name="first")
    repository = state.repository
    cell = state.checkout(state.commit()).cell_at("a")
    decoder = Decoder(Nodes(repository.database.objects), repository.database.policy)
    assert decoder.decode(cell).name == "first"
    for old, new in ((b"first", b"fist!"), (b"tests.support", b"tests,support"), (b"name", b"nome")):
        assert old in cell
        with pytest.raises(StateError):
            decoder.decode(cell.replace(old, new))


def test_keys_are_told_apart_by_purpose_and_length():
    for short in (b"", b"short", b"x" * 15):
        with pytest.raises(ValueError, match="pickle_key"):
            Versioned(pickle_key=short)
    Versioned(pickle_key=b"x" * 16)


def test_no_data_needs_a_pickle():
    """A state of data only is read and written where nothing may be pickled, and holds no pickle."""
    store = Shared()
    state = Versioned(store, pickle="refuse")
    state.update(CONTAINERS)
    state["scalars"] = SCALARS
    state.commit()
    assert exact(Versioned(store, pickle="refuse").copy()) == exact(state.copy())


def test_nothing_else_in_the_package_unpickles():
    """Calls of ``pickle.loads`` are behind the policy, or import what the user allowed; only sandboxes run code."""
    package = Path(versioned_state.__file__).parent
    words = ("pickle.load", "Unpickler", "cloudpickle.load", "marshal.load", "shelve", "eval(", "exec(")
    found = [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in package.rglob("*.py")
        for line in path.read_text().splitlines()
        if any(word in line.replace("literal_eval(", "") for word in words)
    ]
    assert sorted(line.partition("  #")[0] for line in found) == [
        "integrations/importing/adk.py: actions: Any = pickle.loads(raw)",  # import --allow-pickle, which says so
        # names of fields, as dataclasses
        'records.py: exec(compile(source, f"<__init__ of {cls.__qualname__}>", "exec"), scope)',
        # runs cells: the program of a sandbox's own process
        "sandbox/local/worker.py: result = eval(code, self._names)",
        "values/codec/pickles.py: return pickle.loads(data, buffers=buffers)",
    ]
