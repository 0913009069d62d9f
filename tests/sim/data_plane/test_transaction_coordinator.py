"""The transaction coordinator of whole nodes: its log, its answers, its failovers."""

from __future__ import annotations

import trio
import trio.testing

from tests.support.brokers.transactional import LOG, SMALL, Talk
from tests.support.brokers.whole_nodes import WholeCluster


async def started(nursery: trio.Nursery, count: int = 3, **settings: str) -> tuple[WholeCluster, Talk]:
    cluster = WholeCluster(nursery, count, **SMALL, **settings)
    await cluster.start()
    talk = Talk(cluster)
    await nursery.start(talk.run)
    return cluster, talk


async def test_the_log_is_created_when_first_asked_for_and_keeps_who_had_which_epoch(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        cluster, talk = await started(nursery)
        producer_id, epoch = await talk.init("a")
        assert epoch == 0
        assert await talk.init("a") == (producer_id, 1)
        assert len(cluster.image().topic(LOG).partitions) == 3
        first = await talk.coordinator("a")
        await cluster.kill(first)
        assert await talk.init("a") == (producer_id, 2)
        assert await talk.coordinator("a") != first
        assert await talk.state("a") == "Empty"
        nursery.cancel_scope.cancel()


async def test_an_abort_of_v2_that_added_nothing_completes_and_bumps_the_epoch(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        _, talk = await started(nursery)
        producer = await talk.init("a")
        response = await talk.end("a", producer, commit=False, version=5)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, producer[0], 1)
        with trio.fail_after(10):
            while await talk.state("a") != "CompleteAbort":
                await trio.sleep(0.01)
        again = await talk.end("a", producer, commit=False, version=5)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, producer[0], 1)
        nursery.cancel_scope.cancel()
