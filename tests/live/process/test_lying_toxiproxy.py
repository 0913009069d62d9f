"""A Toxiproxy that accepts and lists every toxic, and applies none: no fault of a link may have evidence then."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toxiproxy import Proxy
from toxiproxy.toxic import Toxic

from squall.chaos.faults.kind import FaultTrait
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.runtimes.real.processes import proxies
from squall.chaos.runtimes.real.toxiproxy_api import ToxiproxyApi
from tests.live.contract.player import Seen, play, unproven
from tests.live.process.conftest import MakeRuntime

pytestmark = pytest.mark.night("every fault of links on a real Toxiproxy; the gate has one of each kind")

SEEN = Seen(ClusterSnapshot((1, 2, 3), 1, {"t-0": 2}, {"t-0": (1, 2, 3)}, {"t-0": (1, 2, 3)}))
ELSEWHERE = {FaultTrait.NEEDS_FRAMES, FaultTrait.NEEDS_PACKET_FILTER}
"""Traits of faults that do not use Toxiproxy."""
OF_TOXIPROXY = sorted(
    name for name, kind in KINDS.items() if FaultTrait.OF_LINKS in kind.traits and not ELSEWHERE & kind.traits
)
PARAMS: dict[str, list[dict[str, Any]]] = {
    "latency": [{}, {"latency_ms": 5, "jitter_ms": 4}, {"latency_ms": 20, "jitter_ms": 10}],
    "partition": [{"manner": manner} for manner in ("refuse", "drop", "hold")],
}
OF_ZONES = {"zone_isolation": "zone:1"}
"""Faults whose target is a client zone, with that target."""


class LyingApi(ToxiproxyApi):
    """The API of a real Toxiproxy; requests that would cause a fault are not sent."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._told: dict[str, dict[str, Toxic]] = {}
        self._off: set[str] = set()

    def add_toxic(self, proxy: str, name: str, kind: str, stream: str, attributes: dict[str, int]) -> None:
        self._told.setdefault(proxy, {})[name] = Toxic(name=name, type=kind, stream=stream, attributes=attributes)

    def remove_toxic(self, proxy: str, name: str) -> None:
        self._told[proxy].pop(name, None)

    def toxics(self, proxy: str) -> dict[str, Toxic]:
        return dict(self._told.get(proxy, {}))

    def enable(self, proxy: str, enabled: bool) -> None:
        (self._off.discard if enabled else self._off.add)(proxy)

    def proxies(self) -> dict[str, Proxy]:
        found = super().proxies()
        for name in self._off:
            found[name].enabled = False
        return found


def test_there_are_faults_of_links() -> None:
    assert len(OF_TOXIPROXY) >= 9


@pytest.mark.parametrize("action", OF_TOXIPROXY)
async def test_no_fault_of_a_link_lands_on_it(
    make_runtime: MakeRuntime, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """Each of them does take effect with a working one: `live/contract/test_link_faults_land.py`."""
    monkeypatch.setattr(proxies, "ToxiproxyApi", LyingApi)
    runtime = make_runtime()
    await runtime.start()
    target = OF_ZONES.get(action, "node:2")
    for number, params in enumerate(PARAMS.get(action, [{}])):
        (line,) = await play(runtime, make_fault(number, 0, 2.0, action, target, params), cluster=SEEN)
        told = json.dumps(line)
        assert not line["evidence"], told
        assert unproven(line), told
