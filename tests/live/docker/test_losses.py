"""Packet loss makes a link slow, is counted, and affects no other link."""

from __future__ import annotations

from typing import Any

import pytest

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.contract import Link, Loss, RuntimeCapability, StreamDirection
from squall.chaos.runtimes.docker.runtime import DockerRuntime
from squall.chaos.toolchain.engine import DockerEngine
from tests.live.docker.conftest import MakeRuntime
from tests.live.docker.test_containers import inspected

HURT, OTHER_WAY, CLIENT = Link(1, 2), Link(2, 1), Link("CLIENT", 2)
MOST = Loss(0.3)


async def _meets_a_loss(runtime: DockerRuntime) -> bool:
    """Probe up to a hundred times until one probe is late: TCP's first retransmission comes after 200 ms, that of a SYN
    after 1 s.

    With a loss of three packets in ten in one direction, every second probe loses a packet.
    """
    for _ in range(100):
        if (await runtime.probe(HURT, timeout_s=5)).round_trip_ms > 150:
            return True
    return False


@pytest.mark.parametrize(
    "fault", [MOST, Loss(0.3, stream=StreamDirection.THERE), Loss(0.3, stream=StreamDirection.BACK)], ids=str
)
async def test_lost_packets_come_late_are_counted_and_only_of_their_link(
    make_runtime: MakeRuntime, fault: Loss
) -> None:
    runtime = make_runtime(lossy=True)
    await runtime.start()
    assert RuntimeCapability.LOSS in runtime.acts
    await runtime.fault_link("lost", HURT, fault)
    with pytest.raises(HarnessError, match="already has a fault named lost"):
        await runtime.fault_link("lost", HURT, fault)
    assert await _meets_a_loss(runtime)
    for link in (OTHER_WAY, CLIENT):
        assert (await runtime.probe(link)).ok
    healed: Any = await runtime.heal_link("lost", HURT)
    assert healed["hits"] > 0
    quick = [await runtime.probe(HURT) for _ in range(6)]
    assert all(probe.ok for probe in quick)
    assert "hits" not in await runtime.heal_link("lost", HURT)


async def test_healing_everything_heals_losses(make_runtime: MakeRuntime, engine: DockerEngine) -> None:
    runtime = make_runtime(lossy=True)
    await runtime.start()
    await runtime.fault_link("lost", CLIENT, Loss(0.9))
    assert (await runtime.heal())["failed"] == []
    assert "hits" not in await runtime.heal_link("lost", CLIENT)
    assert inspected(engine, runtime.run, "toxiproxy")["HostConfig"]["CapAdd"] in (["NET_ADMIN"], ["CAP_NET_ADMIN"])
    assert inspected(engine, runtime.run, "broker-1")["HostConfig"]["CapAdd"] is None


async def test_without_the_capability_it_is_refused(make_runtime: MakeRuntime) -> None:
    runtime = make_runtime(nodes=2)
    await runtime.start()
    assert RuntimeCapability.LOSS not in runtime.acts
    with pytest.raises(PreconditionError, match="no packets can be lost"):
        await runtime.fault_link("lost", HURT, MOST)
