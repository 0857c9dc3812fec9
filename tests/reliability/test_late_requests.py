"""A commit that a server sees after its client gave up, or whose connection is cut, is made once or not at all."""

from __future__ import annotations

import pytest

from tests.support.servers.kinds import Place
from tests.support.servers.proxy import Fault
from versioned_state import Versioned
from versioned_state.errors import CommitInDoubtError, UnreachableStoreError


@pytest.mark.parametrize("kind", ["hold request", "hold reply", "cut request", "cut reply"])
def test_it_is_made_once_or_not_at_all(place_behind_proxy: Place, kind):
    proxy, direct = place_behind_proxy.proxy, place_behind_proxy.direct
    state = Versioned(place_behind_proxy.open(1.0))
    state["log"] = ["start"]
    state.commit("start")
    for number in range(3):
        state["log"].append(number)
        proxy.arm(Fault(kind))
        made = True
        try:
            state.commit(f"round {number}")
        except CommitInDoubtError:
            pytest.fail("the server answers on another connection, so what became of it can be known")
        except UnreachableStoreError:
            made = False
        proxy.disarm()  # now the server may see the request
        seen = Versioned(direct)
        assert seen.head.message == (f"round {number}" if made else f"again {number - 1}" if number else "start")
        if not made:
            assert state.commit(f"again {number}").message == f"again {number}"
        assert Versioned(direct)["log"] == ["start", *range(number + 1)]
    assert len(list(Versioned(direct).log())) == 4
    assert list(Versioned(direct).log()) == list(Versioned(direct).log(first_parent=True))


def test_while_nobody_answers_it_is_in_doubt(place_behind_proxy: Place):
    proxy, direct = place_behind_proxy.proxy, place_behind_proxy.direct
    state = Versioned(place_behind_proxy.open(0.5))
    state["log"] = ["start"]
    state.commit("start")
    state["log"].append(1)
    proxy.arm(Fault("cut reply"))
    proxy.accepting = False
    with pytest.raises(CommitInDoubtError) as caught:
        state.commit("one")
    proxy.accepting = True
    proxy.disarm()
    assert Versioned(direct).head.id == caught.value.commit, "it was made, and its reply was lost"
    state["log"].append(2)
    assert state.commit("two").parents == (caught.value.commit,)
    assert Versioned(direct)["log"] == ["start", 1, 2]
