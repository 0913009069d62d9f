"""Chooses the links that a fault is put on: their two ends and the shape of the cut. It does no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from squall.chaos.faults.kind import TRAFFIC
from squall.chaos.runtimes.contract import Cut, CutMode, Link, StreamDirection

Hit = int | str | Link
"""Is what a fault of links hits: a broker, the clients of a zone, or one link."""
Pair = tuple[int, int]
"""Is a pair (a, b) of broker ids: no byte that broker a sends may reach broker b."""


def links_of(params: Mapping[str, Any], targets: Sequence[Hit], links: Sequence[Link]) -> list[Link]:
    """Return the links of the target brokers that the parameter `side` selects: to and from other brokers, from
    clients, or both.

    Targets are broker ids, the name of a client zone, or one link. A zone means all links of its clients.
    """
    if one := [each for each in targets if isinstance(each, Link)]:
        return one
    side = params["side"]
    touched = [link for link in links if link.source in targets or link.target in targets]
    peers = [link for link in touched if isinstance(link.source, int)]
    clients = [link for link in touched if not isinstance(link.source, int)]
    return [*(peers if side in ("peers", "both", *TRAFFIC) else []), *(clients if side in ("clients", "both") else [])]


def asked_over(params: Mapping[str, Any], targets: Sequence[Hit], links: Sequence[Link]) -> list[Link]:
    """Return the links that carry requests to the target brokers, or requests of the target zone's clients. The
    parameter `side` selects links from other brokers, from clients, or both. If the target is one link, return just
    this link.
    """
    found = links_of(params, targets, links)
    return [link for link in found if link in targets or link.target in targets or not isinstance(link.source, int)]


def partition_cuts(
    params: Mapping[str, Any], targets: Sequence[Hit], nodes: Sequence[int], links: Sequence[Link]
) -> list[tuple[Link, Cut]]:
    """Return the links that a partition cuts, and how each is cut.

    A TCP connection carries bytes both ways, so "no byte from A reaches B" cuts the requests of A's connections to B,
    and the answers on B's connections to A. REFUSE cuts both directions: a one-way refusal ends A's connections to B.
    """
    manner, shape, side = CutMode(params["manner"]), params["shape"], params["side"]
    found: list[tuple[Link, Cut]] = []
    for link in targets:
        if isinstance(link, Link):
            return _of_link(link, manner, one_way=shape == "one-way")
    if side in ("peers", "both", *TRAFFIC):
        found += _between(_deaf(shape, [each for each in targets if isinstance(each, int)], nodes), manner)
    if side in ("clients", "both"):
        stream = StreamDirection.BACK if shape == "one-way" else StreamDirection.BOTH
        clients = links_of({"side": "clients"}, targets, links)
        found += [(link, Cut(manner, stream)) for link in clients]
    return found


def _of_link(link: Link, manner: CutMode, *, one_way: bool) -> list[tuple[Link, Cut]]:
    """Return the cut of one link's connections. manner: refuse them, drop their bytes or hold them. one_way: cut only
    what the link's source sends to its target.
    """
    if not one_way:
        return [(link, Cut(manner))]
    if isinstance(link.source, int):
        return _between({(link.source, link.target)}, manner)
    return [(link, Cut(manner, StreamDirection.THERE))]


def _deaf(shape: str, targets: Sequence[int], nodes: Sequence[int]) -> set[Pair]:
    """Return the pairs (a, b) of brokers between which the shape cuts: nothing that a sends may reach b."""
    if shape == "ring":
        return _ring([*targets, *(n for n in nodes if n not in targets)])
    if shape == "bridge":
        rest = [n for n in nodes if n not in targets[:1]]
        return _both_ways(rest[: len(rest) // 2], rest[len(rest) // 2 :])
    hit = set(targets)
    if shape == "halves":
        hit = set([*targets, *(n for n in nodes if n not in targets)][: max(1, len(nodes) // 2)])
    ours, others = sorted(hit), [n for n in nodes if n not in hit]
    if shape == "one-way":
        # If no broker is left on the other side, cut every broker off from every other.
        return {(a, b) for a in ours for b in others} or {(a, b) for a in ours for b in ours if a < b}
    return _both_ways(ours, others) or {(a, b) for a in ours for b in ours if a != b}


def _both_ways(ours: Sequence[int], others: Sequence[int]) -> set[Pair]:
    return {pair for a in ours for b in others for pair in ((a, b), (b, a))}


def _ring(order: Sequence[int]) -> set[Pair]:
    """Return the pairs (a, b) for which Jepsen's majorities-ring cuts what a sends to b. Each broker hears only the
    majority around itself, so no two brokers hear the same majority.
    """
    count = len(order)
    majority = count // 2 + 1
    found = set()
    for at, node in enumerate(order):
        first = at - majority // 2
        heard = {order[(first + step) % count] for step in range(majority)}
        found |= {(other, node) for other in order if other not in heard}
    return found


def _between(deaf: set[Pair], manner: CutMode) -> list[tuple[Link, Cut]]:
    """Return the cut of each link, so that for each pair (a, b) no byte that broker a sends reaches broker b. manner:
    refuse connections, drop bytes or hold them.
    """
    cuts: dict[Link, Cut] = {}
    for a, b in sorted(deaf):
        # A refusal ends whole connections. If nothing passes either way, each side's connections are cut whole.
        if manner is CutMode.REFUSE or (b, a) in deaf:
            cuts[Link(a, b)] = Cut(manner)
            continue
        cuts[Link(a, b)] = Cut(manner, StreamDirection.THERE)
        cuts[Link(b, a)] = Cut(manner, StreamDirection.BACK)
    return sorted(cuts.items())
