"""Merges the metadata of all brokers, for faults that wait for a condition.

A request to one broker takes seconds if this broker is paused. So each broker has a client of its own here, and each is
asked again and again. If brokers disagree, the newest leader epoch decides, then the majority.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from squall.chaos.faults.targets import ClusterSnapshot

AGAIN_S = 0.05
"""Gives the pause between a broker's answer and the next request to it, in s."""
SOON_S = 0.02
"""Gives the pause between a broker's answer and the next request to it, in s, if a fault waits for a state that may be
over in a few milliseconds. Otherwise the pause is AGAIN_S.
"""
FRESH_S = 1.0
"""Limits the age of an answer, in s. An older answer does not count, because its broker has not answered any later
request.
"""
PATIENCE_S = 0.3
"""Limits how long the first answers are held back until a majority of the brokers has answered, in s."""


class BrokerClusterView(NamedTuple):
    """Holds what one broker's Metadata response says. `epochs`: the leader epoch of each partition. `term`: the epoch
    of the controller, if it is known.
    """

    view: ClusterSnapshot
    epochs: dict[str, int]
    term: int = -1


Ask = Callable[[], Awaitable[BrokerClusterView | None]]
"""Asks one broker for its metadata, and returns None if the broker does not answer."""


@asynccontextmanager
async def lookout(
    asks: Sequence[Ask], again_s: float = AGAIN_S
) -> AsyncIterator[Callable[[], Awaitable[ClusterSnapshot]]]:
    """Poll the metadata of all brokers while the block runs. Yield a function that returns their merged answers; it
    waits until some broker has answered. again_s: the pause between a broker's answer and the next request to it.
    """
    answers: dict[int, tuple[float, BrokerClusterView]] = {}
    began = trio.current_time()

    async def keep_asking(number: int) -> None:
        while True:
            asked = trio.current_time()
            if (answer := await asks[number]()) is not None:
                # The age counts from the request: a broker that was paused meanwhile answers with an old state.
                answers[number] = (asked, answer)
            await trio.sleep(again_s)

    async def view() -> ClusterSnapshot:
        while True:
            now = trio.current_time()
            fresh = [answer for _, (at, answer) in sorted(answers.items()) if now - at <= FRESH_S]
            if fresh and (2 * len(fresh) > len(asks) or now - began > PATIENCE_S):
                return merged(fresh)
            await trio.sleep(AGAIN_S)

    async with trio.open_nursery() as nursery:
        for number in range(len(asks)):
            nursery.start_soon(keep_asking, number)
        yield view
        nursery.cancel_scope.cancel()


def merged(answers: Sequence[BrokerClusterView]) -> ClusterSnapshot:
    """Merge several views into one view. For each partition, the answers with the newest leader epoch count, and among
    these the most frequent answer.
    """
    places = sorted({place for answer in answers for place in answer.view.leaders})
    leaders: dict[str, int] = {}
    isr: dict[str, tuple[int, ...]] = {}
    replicas: dict[str, tuple[int, ...]] = {}
    for place in places:
        knowing = [answer for answer in answers if place in answer.view.leaders]
        newest = max(answer.epochs.get(place, -1) for answer in knowing)
        views = [answer.view for answer in knowing if answer.epochs.get(place, -1) == newest]
        # An epoch has at most one leader. A broker that does not know the leader's address yet reports no leader
        # (Kafka's LEADER_NOT_AVAILABLE), which must not outvote the others.
        views = [view for view in views if view.leaders[place] >= 0] or views
        said = Counter((view.leaders[place], view.isr[place], view.replicas[place]) for view in views)
        leaders[place], isr[place], replicas[place] = said.most_common(1)[0][0]
    term = max(answer.term for answer in answers)
    known = [answer.view.controller for answer in answers if answer.term == term and answer.view.controller >= 0]
    controller = Counter(known).most_common(1)[0][0] if known else -1
    coordinators, states = _coordinated([answer.view for answer in answers])
    first = answers[0].view
    return ClusterSnapshot(first.nodes, controller, leaders, isr, replicas, coordinators, states, first.places)


def _coordinated(views: Sequence[ClusterSnapshot]) -> tuple[dict[str, int], dict[str, str]]:
    """Return, for each transactional id and group, the coordinator that most brokers name, and the state that this
    coordinator reports. A former coordinator may still report an old state, which does not count.
    """
    coordinators: dict[str, int] = {}
    states: dict[str, str] = {}
    for each in dict.fromkeys(id_ for view in views for id_ in view.coordinators):
        named = [view.coordinators.get(each, -1) for view in views]
        known = [node for node in named if node >= 0]
        coordinators[each] = Counter(known).most_common(1)[0][0] if known else -1
        for view, node in zip(views, named, strict=True):
            if each in view.states and node == coordinators[each]:
                states[each] = view.states[each]
    return coordinators, states
