"""Checks what each link fault is in Toxiproxy, and how overlapping ones share a link."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import (
    Bandwidth,
    Cut,
    CutMode,
    Latency,
    LimitData,
    Link,
    ResetPeer,
    Slicer,
    SlowClose,
    StreamDirection,
)
from squall.chaos.runtimes.real.proxied_links import ProxiedLinks, toxic
from squall.chaos.runtimes.real.toxiproxy_transport import ToxiproxyError

LINK = Link(1, 2)


class FakeApi:
    """Remembers what is on, as Toxiproxy would. forgetful: it says that it did it, and did not."""

    def __init__(self) -> None:
        self.forgetful = False
        self.enabled = True
        self.toxics_on: dict[str, tuple[str, str, dict[str, int]]] = {}
        self.fail = False

    def enable(self, proxy: str, enabled: bool) -> None:
        self.enabled = enabled or self.forgetful

    def proxies(self) -> dict[str, Any]:
        return {"1-to-2": SimpleNamespace(enabled=self.enabled)}

    def toxics(self, proxy: str) -> dict[str, Any]:
        return {
            name: SimpleNamespace(type=kind, stream=stream, attributes=attributes)
            for name, (kind, stream, attributes) in self.toxics_on.items()
        }

    def add_toxic(self, proxy: str, name: str, kind: str, stream: str, attributes: dict[str, int]) -> None:
        if self.fail and stream == "downstream":
            raise ToxiproxyError("no")
        if not self.forgetful:
            self.toxics_on[name] = (kind, stream, attributes)

    def remove_toxic(self, proxy: str, name: str) -> None:
        self.toxics_on.pop(name, None)

    def reset(self) -> None:
        self.enabled = True
        self.toxics_on.clear()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def links(api: FakeApi) -> ProxiedLinks:
    return ProxiedLinks(api, {LINK: "1-to-2"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "kind", "attributes"),
    [
        (Cut(CutMode.DROP), "timeout", {"timeout": 0}),
        (Cut(CutMode.HOLD), "bandwidth", {"rate": 0}),
        (Latency(50, 10), "latency", {"latency": 50, "jitter": 10}),
        (Bandwidth(7), "bandwidth", {"rate": 7}),
        (Slicer(3, 2, 1), "slicer", {"average_size": 3, "size_variation": 2, "delay": 1}),
        (LimitData(9), "limit_data", {"bytes": 9}),
        (ResetPeer(5), "reset_peer", {"timeout": 5}),
        (SlowClose(4), "slow_close", {"delay": 4}),
    ],
)
def test_each_fault_is_one_kind_of_toxic(fault: Any, kind: str, attributes: dict[str, int]) -> None:
    assert toxic(fault) == (kind, attributes)


@pytest.mark.parametrize(
    ("stream", "toxics"),
    [
        (StreamDirection.THERE, {"upstream"}),
        (StreamDirection.BACK, {"downstream"}),
        (StreamDirection.BOTH, {"upstream", "downstream"}),
    ],
)
def test_a_fault_is_put_on_the_streams_it_names(
    links: ProxiedLinks, api: FakeApi, stream: StreamDirection, toxics: set[str]
) -> None:
    links.add("f", LINK, Latency(5, stream=stream))
    assert {each for _, each, _ in api.toxics_on.values()} == toxics
    links.remove("f", LINK)
    assert api.toxics_on == {}


def test_a_link_stays_off_while_one_of_its_faults_refuses(links: ProxiedLinks, api: FakeApi) -> None:
    links.add("a", LINK, Cut(CutMode.REFUSE))
    links.add("b", LINK, Cut(CutMode.REFUSE))
    links.add("c", LINK, Latency(5))
    links.remove("a", LINK)
    assert not api.enabled
    links.remove("c", LINK)
    assert not api.enabled
    links.remove("b", LINK)
    assert api.enabled


def test_a_fault_that_was_put_on_by_half_can_be_taken_off(links: ProxiedLinks, api: FakeApi) -> None:
    api.fail = True
    with pytest.raises(ToxiproxyError):
        links.add("f", LINK, Latency(5))
    assert len(api.toxics_on) == 1
    links.remove("f", LINK)
    assert api.toxics_on == {}


def test_reset_forgets_every_name(links: ProxiedLinks, api: FakeApi) -> None:
    links.add("f", LINK, Cut(CutMode.REFUSE))
    links.reset()
    assert api.enabled
    links.add("f", LINK, Cut(CutMode.REFUSE))
    with pytest.raises(HarnessError, match="already has"):
        links.add("f", LINK, Latency(1))


@pytest.mark.parametrize("fault", [Latency(5), Cut(CutMode.HOLD), Cut(CutMode.REFUSE)], ids=str)
def test_what_toxiproxy_says_that_it_took_is_read_back(links: ProxiedLinks, api: FakeApi, fault: Any) -> None:
    api.forgetful = True
    with pytest.raises(HarnessError, match="Toxiproxy (does not have|did not switch)"):
        links.add("f", LINK, fault)
