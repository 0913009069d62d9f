"""Puts link faults on Toxiproxy: chooses the toxic for each fault, and combines overlapping faults of a link."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.contract import (
    Bandwidth,
    Cut,
    CutMode,
    Frames,
    Latency,
    LimitData,
    Link,
    LinkFault,
    Loss,
    ResetPeer,
    Slicer,
    SlowClose,
    StreamDirection,
)
from squall.chaos.runtimes.real.toxiproxy_api import ToxiproxyApi

STREAMS = {
    StreamDirection.THERE: ("upstream",),
    StreamDirection.BACK: ("downstream",),
    StreamDirection.BOTH: ("upstream", "downstream"),
}


def toxic(fault: LinkFault) -> tuple[str, dict[str, int]]:
    """Return Toxiproxy's kind of toxic and its attributes. A REFUSE cut has no toxic: the proxy is switched off."""
    match fault:
        # With a timeout of 0 Toxiproxy swallows bytes, and ends the connections when the toxic is removed.
        case Cut(manner=CutMode.DROP):
            return "timeout", {"timeout": 0}
        # A bandwidth of 0 keeps bytes until the toxic is removed.
        case Cut(manner=CutMode.HOLD):
            return "bandwidth", {"rate": 0}
        case Latency():
            return "latency", {"latency": fault.latency_ms, "jitter": fault.jitter_ms}
        case Bandwidth():
            return "bandwidth", {"rate": fault.kb_per_s}
        case Slicer():
            sizes = {"average_size": fault.average_bytes, "size_variation": fault.variation_bytes}
            return "slicer", {**sizes, "delay": fault.delay_us}
        case LimitData():
            return "limit_data", {"bytes": fault.limit_bytes}
        case ResetPeer():
            return "reset_peer", {"timeout": fault.after_ms}
        case SlowClose():
            return "slow_close", {"delay": fault.delay_ms}
        case Loss() | Frames():
            raise PreconditionError(f"Toxiproxy has no {fault}: use the simulator")
        case _:
            raise AssertionError(f"no toxic for {fault}")


class ProxiedLinks:
    """Holds every link's proxy, and the faults on it by name. Calls block, as Toxiproxy's interface does, and only one
    runs at a time.
    """

    def __init__(self, api: ToxiproxyApi, proxies: Mapping[Link, str]) -> None:
        self._api = api
        self._proxies = dict(proxies)
        self._faults: dict[Link, dict[str, LinkFault]] = {link: {} for link in proxies}
        self._turn = threading.Lock()

    def has(self, link: Link) -> bool:
        """Return whether this object has a proxy for the link."""
        return link in self._proxies

    def has_fault(self, link: Link) -> bool:
        """Return whether the link has a fault now."""
        return bool(self._faults.get(link))

    def add(self, name: str, link: Link, fault: LinkFault) -> None:
        """Put a fault on a link, and read back that Toxiproxy has it. Raises HarnessError if it does not, if the link
        is unknown, or if the link already has a fault of this name.
        """
        with self._turn:
            faults = self._of(link)
            if name in faults:
                raise HarnessError(f"link {link} already has a fault named {name}")
            # Noted first: a call that fails half-way leaves something for `remove` to take off.
            faults[name] = fault
            proxy = self._proxies[link]
            if _refuses(fault):
                self._api.enable(proxy, False)
                if self._api.proxies()[proxy].enabled:
                    raise HarnessError(f"Toxiproxy did not switch {proxy} off")
                return
            kind, attributes = toxic(fault)
            for stream in STREAMS[fault.stream]:
                self._api.add_toxic(proxy, f"{name}.{stream}", kind, stream, attributes)
            there = self._api.toxics(proxy)
            for stream in STREAMS[fault.stream]:
                found = there.get(f"{name}.{stream}")
                if found is None or (found.type, found.stream, found.attributes) != (kind, stream, attributes):
                    raise HarnessError(f"Toxiproxy does not have the {kind} that was put on {proxy}")

    def remove(self, name: str, link: Link) -> None:
        """Remove the fault of this name from a link, if the link has it. If the proxy was switched off by several
        faults (`Cut` with REFUSE), it stays off until the last of them is removed.
        """
        with self._turn:
            faults = self._of(link)
            fault = faults.get(name)
            if fault is None:
                return
            proxy = self._proxies[link]
            if not _refuses(fault):
                for stream in STREAMS[fault.stream]:
                    self._api.remove_toxic(proxy, f"{name}.{stream}")
            elif not any(_refuses(other) for key, other in faults.items() if key != name):
                self._api.enable(proxy, True)
            # Last: if a call above fails, the fault can be removed again.
            del faults[name]

    def reset(self) -> None:
        """Remove every fault from every link."""
        with self._turn:
            self._api.reset()
            for faults in self._faults.values():
                faults.clear()

    def _of(self, link: Link) -> dict[str, LinkFault]:
        if link not in self._faults:
            raise HarnessError(f"there is no link {link}")
        return self._faults[link]


def _refuses(fault: LinkFault) -> bool:
    return isinstance(fault, Cut) and fault.manner is CutMode.REFUSE
