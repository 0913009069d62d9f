"""The actions on links: who is cut off from whom, and what makes a link worse without cutting it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaos.faults.action import MANNERS, SHAPES, SIDES, Action, Choice, FaultError, Number

MEASURED_BYTES = 30_000
"""A probe's largest request: what a link does to bytes is measured with as many. A client id holds 32,767."""
SHORTEST_MS = 20.0
"""What is slowed down by less than this cannot be told from a busy machine."""
_ON_S = Number(0.2, 600, 4)
_PEERS = Choice(SIDES, "peers")

LINK_ACTIONS: tuple[Action, ...] = (
    Action(
        "partition",
        "cuts directed links: between brokers, or between clients and brokers",
        "N",
        _ON_S,
        {"shape": Choice(SHAPES, "isolate"), "manner": Choice(MANNERS, "refuse"), "side": _PEERS},
        "a probe over each cut link fails while on and works afterwards",
    ),
    Action(
        "flapping",
        "cuts all of the target's links and heals them, again and again",
        "N",
        Number(1, 600, 4),
        {
            "manner": Choice(MANNERS, "refuse"),
            "down_ms": Number(300, 60_000, 500),
            "up_ms": Number(300, 60_000, 500),
            "side": _PEERS,
        },
        "in each turn a probe over each link fails while it is cut; probes between two cuts work",
    ),
    Action(
        "latency",
        "delays what is sent, there and back",
        "N",
        _ON_S,
        {"latency_ms": Number(1, 30_000, 50), "jitter_ms": Number(0, 30_000, 10), "side": _PEERS},
        "each round trip measured over a link takes at least `latency_ms` - `jitter_ms` while on",
    ),
    Action(
        "bandwidth",
        "lets so many kilobytes a second through, for each connection and direction",
        "N",
        _ON_S,
        {"kb_per_s": Number(1, 1000, 64), "side": _PEERS},
        "a large request over each link takes as long as that allows while on",
    ),
    Action(
        "slicer",
        "delivers bytes in small pieces with a pause between them: torn frames",
        "N",
        _ON_S,
        {
            "average_bytes": Number(1, 30_000, 64),
            "variation_bytes": Number(0, 15_000, 0),
            "delay_us": Number(100, 100_000, 1000),
            "side": _PEERS,
        },
        "a large request over each link takes as long as its pieces' pauses while on",
    ),
    Action(
        "limit_data",
        "ends each connection after so many bytes, in the middle of a frame most often",
        "N",
        _ON_S,
        {"limit_bytes": Number(1, 10_000_000, 65_536), "side": _PEERS},
        "a connection over each link ends while more bytes than that are sent over it; bytes passed until then",
    ),
    Action(
        "reset_peer",
        "resets each connection, new ones too, some time after it was first used",
        "N",
        _ON_S,
        {"after_ms": Number(0, 60_000, 0), "side": _PEERS},
        "a connection opened over each link ends by itself while on, and how soon",
    ),
    Action(
        "slow_close",
        "passes on the end of a connection late",
        "N",
        _ON_S,
        {"delay_ms": Number(50, 60_000, 500), "side": _PEERS},
        "a connection that a broker ends is open for `delay_ms` longer at its other end while on",
    ),
)


def check_relations(here: str, action: str, params: Mapping[str, Any]) -> None:
    """What one parameter of an action on links forbids another. FaultError."""
    if action == "partition" and params["side"] != "peers":
        if params["shape"] not in ("isolate", "one-way"):
            raise FaultError(f"{here}: shape = {params['shape']!r} is between brokers: side = 'peers'")
        if params["shape"] == "one-way" and params["manner"] == "refuse":
            raise FaultError(f"{here}: a refusal knows no direction, and clients listen to nobody: drop or hold them")
    if action == "slicer":
        _check_slices(here, int(params["average_bytes"]), int(params["variation_bytes"]), params["delay_us"] / 1000)


def _check_slices(here: str, average: int, variation: int, delay_ms: float) -> None:
    if variation >= average and variation:
        raise FaultError(f"{here}: variation_bytes = {variation}: less than average_bytes = {average} is allowed")
    shortest_ms = (MEASURED_BYTES // (average + variation) - 1) * delay_ms
    if shortest_ms < SHORTEST_MS:
        raise FaultError(
            f"{here}: {MEASURED_BYTES} bytes in such pieces take {max(0, shortest_ms):g} ms longer, too little to be "
            f"measured: smaller pieces or a longer delay_us"
        )
    longest_s = 1000 / (average - variation) * delay_ms / 1000
    if longest_s > 5:
        raise FaultError(f"{here}: 1000 bytes in such pieces take {longest_s:g} s: larger pieces or a shorter delay_us")


def required_nodes(action: str, params: Mapping[str, Any]) -> int:
    """How many brokers there have to be for such links to exist."""
    if action == "partition" and params["shape"] in ("ring", "bridge"):
        return 3
    return 2 if any(each.name == action for each in LINK_ACTIONS) and params["side"] == "peers" else 1
