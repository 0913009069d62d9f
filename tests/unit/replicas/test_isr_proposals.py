"""ISR proposals go out until they are answered for or overtaken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.control.port import IsrAnswer, IsrConfirmed, IsrProposal, IsrRejected, RequestRefused
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas import isr_proposals
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.broker.replicas.isr_proposals import IsrProposals
from tests.support.brokers.in_memory import IDS, MemoryBroker, answers
from tests.support.brokers.memory_env import FakeEnv


class Controller:
    """Simulates the control plane: answers each proposal with the next element of `script`, and repeats the last one.
    """

    def __init__(self, *script: ErrorCode | str) -> None:
        self.script = list(script)
        self.requests: list[tuple[float, IsrProposal]] = []

    async def alter_isr(self, proposals: Sequence[IsrProposal]) -> list[IsrAnswer]:
        [asked] = proposals
        self.requests.append((trio.current_time(), asked))
        await trio.lowlevel.checkpoint()
        word = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if word == "silence":
            raise OSError("nobody there")
        if word == "refuse all":
            raise RequestRefused(ErrorCode.NOT_CONTROLLER)
        assert isinstance(word, ErrorCode)
        if word:
            return [IsrRejected(asked.topic_id, asked.index, word)]
        isr = tuple(broker_id for broker_id, _ in asked.isr)
        return [IsrConfirmed(asked.topic_id, asked.index, asked.leader_epoch, asked.partition_epoch + 1, isr)]


@asynccontextmanager
async def leading(
    *script: ErrorCode | str, of: type[Controller] = Controller
) -> AsyncIterator[tuple[MemoryBroker, Controller, HostedPartition]]:
    """t-0 is led here with the ISR (1, 2); broker 3 has just asked to be let in."""
    broker = MemoryBroker()
    controller: Any = of(*script)
    env: Any = FakeEnv()
    env.mono = broker.env.mono
    proposals = IsrProposals(env, controller)
    proposals.replicas = broker.replicas
    broker.replicas._proposals = proposals
    h = broker.give(isr=(1, 2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(proposals.run)
        broker.follower_has(3, 0)
        yield broker, controller, h
        nursery.cancel_scope.cancel()


async def quiet() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def asked_times(controller: Controller, count: int) -> list[float]:
    """Return when, in s, the first `count` requests came."""
    while len(controller.requests) < count:
        await trio.sleep(0.01)
    return [when for when, _ in controller.requests[:count]]


async def test_what_the_controller_accepts_is_in_force(autojump_clock: Any) -> None:
    async with leading(ErrorCode.NONE) as (_, controller, h):
        await quiet()
        [(_, asked)] = controller.requests
        assert (asked.leader_epoch, asked.partition_epoch) == (5, 10)
        assert asked.isr == ((1, 101), (2, -1), (3, 103))
        assert h.state.isr == (1, 2, 3)
        assert (h.state.pending, h.state.partition_epoch) == (None, 11)


async def test_an_accepted_shrink_lets_the_producers_go(autojump_clock: Any) -> None:
    async with leading(ErrorCode.NONE) as (broker, _, h):
        await quiet()
        conn = broker.client()
        broker.produce(conn, timeout_ms=100_000)
        for _ in range(2):
            broker.pass_ms(25_000)
            broker.follower_has(2, 1)
        broker.replicas.check_isr()
        await quiet()
        assert h.state.isr == (1, 2)
        assert len(answers(conn)) == 1


async def test_an_ineligible_member_is_given_up_and_not_asked_for_again(autojump_clock: Any) -> None:
    async with leading(ErrorCode.INELIGIBLE_REPLICA) as (_, controller, h):
        await quiet()
        assert h.state.pending is None
        assert h.state.maximal_isr == (1, 2)
        assert len(controller.requests) == 1


async def test_a_fenced_proposal_stays_in_doubt_until_metadata_comes(autojump_clock: Any) -> None:
    async with leading(ErrorCode.FENCED_LEADER_EPOCH) as (broker, controller, h):
        await quiet()
        assert h.state.maximal_isr == (1, 2, 3)
        assert len(controller.requests) == 1
        broker.give(isr=(1, 2), epoch=6, partition_epoch=12)
        assert h.state.maximal_isr == (1, 2)


async def test_an_unreachable_controller_is_asked_again_after_a_pause(autojump_clock: Any) -> None:
    async with leading("silence", ErrorCode.NONE) as (_, controller, h):
        first, second = await asked_times(controller, 2)
        assert second - first >= 0.09
        await quiet()
        assert h.state.isr == (1, 2, 3)


async def test_a_request_refused_as_a_whole_is_asked_again_after_a_pause(autojump_clock: Any) -> None:
    async with leading("refuse all", ErrorCode.NONE) as (_, controller, h):
        first, second = await asked_times(controller, 2)
        assert second - first >= 0.09
        await quiet()
        assert h.state.isr == (1, 2, 3)


async def test_an_error_that_decides_nothing_is_not_answered_by_asking_without_a_pause(autojump_clock: Any) -> None:
    async with leading(ErrorCode.UNKNOWN_SERVER_ERROR) as (_, controller, h):
        times = await asked_times(controller, 3)
        assert times[2] - times[0] >= 0.18
        assert h.state.pending is not None


async def test_a_proposal_that_newer_metadata_has_overtaken_is_not_asked_again(autojump_clock: Any) -> None:
    async with leading("silence") as (broker, controller, h):
        await asked_times(controller, 1)
        broker.give(isr=(1, 2), epoch=6, partition_epoch=12)
        count = len(controller.requests)
        await trio.sleep(5)
        assert len(controller.requests) == count
        assert h.state.pending is None


async def test_a_request_has_so_many_partitions_and_no_more(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """A broker that led 10,000 partitions asked for all of them at once, was refused, and asked again for ever."""
    monkeypatch.setattr(isr_proposals, "MOST_IN_A_REQUEST", 3)
    asked: list[list[int]] = []

    class Many(Controller):
        async def alter_isr(self, proposals: Sequence[IsrProposal]) -> list[IsrAnswer]:
            asked.append([one.topic_id[0] for one in proposals])
            return [answer for one in proposals for answer in await super(Many, self).alter_isr([one])]

    names = [f"many-{n}" for n in range(1, 9)]
    for n, name in enumerate(names, 1):
        monkeypatch.setitem(IDS, name, bytes([n]) * 16)
    async with leading(ErrorCode.NONE, of=Many) as (broker, _, _):
        await quiet()
        hosted = [broker.give(name, isr=(1, 2)) for name in names]
        for name in names:
            broker.follower_has(3, 0, name=name)
        await quiet()
        assert asked[1:] == [[1, 2, 3], [4, 5, 6], [7, 8]]
        assert {h.state.isr for h in hosted} == {(1, 2, 3)}
    assert trio.current_time() < 0.05
