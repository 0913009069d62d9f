"""Checks how many connections a broker takes, and on which listener."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from squall.broker.cluster.settings import with_altered
from tests.support.brokers.in_memory import MemoryBroker
from tests.support.brokers.memory_env import MemoryTransport

INNER, OUTER = "INTERNAL", "CLIENT"
TWO = f"{INNER}://127.0.0.1:1,{OUTER}://127.0.0.1:2"


class ListenerHarness:
    """A broker's listeners."""

    def __init__(self, **settings: str) -> None:
        self.broker = MemoryBroker(**{"listeners": TWO, **settings})

    async def come(self, name: str, count: int = 1) -> list[MemoryTransport]:
        """Open connections to a listener, and return the clients' ends."""
        found = []
        for _ in range(count):
            found.append(self.broker.network.connect("h", self.broker.server.ports[name]))
            await trio.testing.wait_all_tasks_blocked()
        return found

    def pass_s(self, seconds: float) -> None:
        self.broker.env.now_ms += int(seconds * 1000)


@asynccontextmanager
async def house(**settings: str) -> AsyncIterator[ListenerHarness]:
    made = ListenerHarness(**settings)
    async with trio.open_nursery() as nursery:
        await made.broker.listen(nursery)
        yield made
        nursery.cancel_scope.cancel()


def served(links: list[MemoryTransport]) -> int:
    """Return how many links the broker has not closed."""
    return sum(not link.incoming.ended for link in links)


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_ip"])
async def test_clients_that_have_all_connections_do_not_keep_brokers_out(limit: str) -> None:
    async with house(**{limit: "3"}) as made:
        assert served(await made.come(OUTER, 5)) == 3
        assert served(await made.come(INNER, 2)) == 2
        assert served(await made.come(OUTER)) == 0


async def test_connections_between_brokers_count_for_clients() -> None:
    async with house(max_connections="3") as made:
        assert served(await made.come(INNER, 2)) == 2
        assert served(await made.come(OUTER, 5)) == 1


async def test_the_listener_of_brokers_has_a_bound_of_its_own() -> None:
    async with house(squall_inter_broker_max_connections="3") as made:
        assert served(await made.come(INNER, 5)) == 3
        assert served(await made.come(OUTER, 5)) == 5


async def test_where_it_is_reached_a_quiet_connection_makes_room_and_one_in_use_does_not() -> None:
    async with house(squall_inter_broker_max_connections="2") as made:
        [quiet] = await made.come(INNER)
        made.pass_s(6)
        [recent] = await made.come(INNER)
        made.pass_s(6)
        [new] = await made.come(INNER)
        assert [link.incoming.ended for link in (quiet, recent, new)] == [True, False, False]
        assert served(await made.come(INNER)) == 0


async def test_on_the_only_listener_there_is_one_limit_for_all() -> None:
    async with house(listeners=f"{INNER}://127.0.0.1:1", max_connections="2") as made:
        assert served(await made.come(INNER, 4)) == 2


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
def test_a_limit_that_would_lock_everybody_out_has_no_effect_where_the_metadata_log_has_it(name: str) -> None:
    """Of an earlier version, which took it."""
    config = MemoryBroker(listeners=TWO, max_connections="7").config
    assert with_altered(config, {name: "0"}) is config
    assert with_altered(config, {name: "0", "num.network.threads": "5"}).num_network_threads == 5
