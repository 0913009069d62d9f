"""Packet loss, in containers: clients notice it, and a loss that is switched off has counted no packet.

The simulator's losses: `tests/sim/world`. Protocol faults of real brokers: `test_frames.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runtimes.contract import Runtime
from tests.live.contract.client import OneClient
from tests.live.contract.conftest import our_contained_broker
from tests.live.contract.player import play, unproven
from tests.support.clusters.pretender import Pretending
from tests.support.patience import scaled

ON_S, LATE_S = 1.0, 0.15
"""Duration of a fault, and the least delay of an answer that lost a packet: TCP's first retransmission comes after 0.2
s, and no client sends a request again.
"""
LOSS = {"probability": 0.5, "rto_ms": 200, "side": "clients"}


def test_what_is_lost_is_late_and_counted_and_switched_off_there_is_no_evidence(tmp_path: Path) -> None:
    async def body(runtime: Runtime) -> None:
        await OneClient(runtime).create("t")
        line, longest_s = await played(runtime, runtime)
        assert line["error"] is None
        assert line["evidence"]["links"] == ["CLIENT->1"]
        assert line["evidence"]["hits"][0] > 0
        assert unproven(line) is None
        assert longest_s >= LATE_S
        await OneClient(runtime).must_produce("t")
        line, _ = await played(Pretending(runtime), runtime)
        assert line["evidence"] is None
        assert line["error"] == "nothing came over these links that it could have hit"
        assert unproven(line)

    our_contained_broker(tmp_path, body, lossy=True)


async def played(view: Any, real: Runtime) -> tuple[dict[str, Any], float]:
    """Inject a fault. Returns its last line, and the longest time that a record took meanwhile, in seconds."""
    client, clock = OneClient(real), real.env("clock")
    fault = make_fault(0, 0.0, scaled(ON_S), "packet_loss", "node:1", LOSS)
    took = [0.0]

    async def load() -> None:
        while True:
            began = clock.mono()
            try:
                with trio.move_on_after(1.0):
                    await client.refused("t")
            finally:
                took.append(clock.mono() - began)
            await trio.sleep(0.02)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(load)
        (line,) = await play(view, fault)
        nursery.cancel_scope.cancel()
    return line, max(took)
