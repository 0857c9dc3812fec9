"""A commit that a real server sees only after its client gave up: it is not made then, and the caller was told so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.servers.postgres import PostgresServer
from tests.support.servers.proxy import Fault, Proxy
from tests.support.servers.redis import RedisServer
from versioned_state import KVStore, Versioned
from versioned_state.errors import CommitInDoubtError, UnreachableStoreError
from versioned_state.storage import Postgres, Redis

Open = Callable[[float], KVStore]
Place = tuple[Proxy, Open, KVStore]


@pytest.fixture(params=["redis", "postgres"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A proxy, how to open a store behind it with a timeout, and the same store without it."""
    with ExitStack() as stack:
        if request.param == "redis":
            redis: RedisServer = request.getfixturevalue("redis_server")
            prefix = redis.fresh_prefix()
            proxy = stack.enter_context(Proxy(redis.socket_path))
            url = f"redis://127.0.0.1:{proxy.port}"
            direct: KVStore = stack.enter_context(Redis(redis.url, prefix=prefix))

            def open_it(timeout: float) -> KVStore:
                return stack.enter_context(Redis(url, prefix=prefix, timeout=timeout))

        else:
            postgres: PostgresServer = request.getfixturevalue("postgres_server")
            schema = postgres.fresh_schema()
            proxy = stack.enter_context(Proxy(postgres.socket_path))
            direct = stack.enter_context(Postgres(postgres.url, schema=schema))

            def open_it(timeout: float) -> KVStore:
                return stack.enter_context(Postgres(postgres.url_through(proxy), schema=schema, timeout=timeout))

        yield proxy, open_it, direct


@pytest.mark.parametrize("kind", ["hold request", "hold reply"])
def test_it_is_made_once_or_not_at_all(place, kind):
    proxy, open_it, direct = place
    state = Versioned(open_it(1.0))
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


def test_while_nobody_answers_it_is_in_doubt(place):
    proxy, open_it, direct = place
    state = Versioned(open_it(0.5))
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
