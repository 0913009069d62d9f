"""All brokers asked at once: a silent one delays nothing, and one that lags behind decides nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import trio
import trio.testing

from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.runs.lookout import FRESH_S, PATIENCE_S, BrokerClusterView, lookout, merged

SILENT_S = 1.5


def answer(leader: int, isr: tuple[int, ...], epoch: int, controller: int = 1, term: int = -1) -> BrokerClusterView:
    view = ClusterSnapshot((1, 2, 3), controller, {"t-0": leader}, {"t-0": isr}, {"t-0": (1, 2, 3)})
    return BrokerClusterView(view, {"t-0": epoch}, term)


def says(*answers: BrokerClusterView) -> Callable[[], Awaitable[BrokerClusterView | None]]:
    """A broker that says one thing after the other, and then the last one for ever."""
    left = list(answers)

    async def ask() -> BrokerClusterView | None:
        return left.pop(0) if len(left) > 1 else left[0]

    return ask


async def silent() -> BrokerClusterView | None:
    await trio.sleep(SILENT_S)
    return None


async def test_a_paused_broker_delays_no_view(autojump_clock: trio.testing.MockClock) -> None:
    one, two = answer(1, (1, 2, 3), 1), answer(1, (1, 2), 1)
    async with lookout([silent, says(one, two), says(one, two)]) as view:
        began = trio.current_time()
        while len((await view()).isr["t-0"]) == 3:
            await trio.sleep(0.05)
        assert trio.current_time() - began <= 0.2


async def test_one_broker_that_answers_is_enough(autojump_clock: trio.testing.MockClock) -> None:
    async with lookout([silent, silent, says(answer(2, (2,), 4))]) as view:
        began = trio.current_time()
        assert (await view()).leaders == {"t-0": 2}
        assert trio.current_time() - began <= 2 * PATIENCE_S


async def test_an_old_answer_does_not_count(autojump_clock: trio.testing.MockClock) -> None:
    async def once() -> BrokerClusterView | None:
        if asked:
            await trio.sleep_forever()
        asked.append(1)
        return answer(1, (1, 2, 3), 9)

    asked: list[int] = []
    async with lookout([once, says(answer(2, (2, 3), 3))]) as view:
        assert (await view()).leaders == {"t-0": 1}
        await trio.sleep(FRESH_S + 0.1)
        assert (await view()).leaders == {"t-0": 2}


def test_the_newest_epoch_counts_and_then_the_majority() -> None:
    behind, ahead = answer(1, (1, 2, 3), 4), answer(2, (2, 3), 5)
    assert merged([behind, behind, ahead]).leaders == {"t-0": 2}
    assert merged([answer(1, (1, 2, 3), 4), answer(1, (1, 2), 4), answer(1, (1, 2), 4)]).isr == {"t-0": (1, 2)}


def test_the_controller_of_the_newest_term_counts_and_then_the_majoritys() -> None:
    assert merged([answer(1, (1,), 1, controller=each) for each in (3, -1, 2, 2)]).controller == 2
    told = [answer(1, (1,), 1, controller=node, term=term) for node, term in ((1, 6), (1, 6), (3, 7))]
    assert merged(told).controller == 3
    assert merged([answer(1, (1,), 1, controller=-1)]).controller == -1


def test_a_coordinator_is_whom_most_brokers_name_and_only_it_knows_the_state() -> None:
    def coordinated(node: int, **states: str) -> BrokerClusterView:
        seen = answer(1, (1, 2, 3), 1)
        return seen._replace(view=replace(seen.view, coordinators={"x": node, "y": -1}, states=states))

    deposed = coordinated(2, x="Ongoing")
    view = merged([deposed, coordinated(3), coordinated(3, x="CompleteAbort")])
    assert (view.coordinators, view.states) == ({"x": 3, "y": -1}, {"x": "CompleteAbort"})
    assert merged([deposed, coordinated(3), coordinated(3)]).states == {}


def test_of_an_epoch_whoever_names_its_leader_is_believed() -> None:
    """The others have not heard where that leader can be reached: Kafka's LEADER_NOT_AVAILABLE."""
    unheard, heard = answer(-1, (1, 2, 3), 4), answer(2, (1, 2, 3), 4)
    assert merged([unheard, heard, unheard]).leaders == {"t-0": 2}
    assert merged([unheard, answer(2, (1, 2, 3), 3)]).leaders == {"t-0": -1}, "in the newest epoch nobody leads"
