"""Records a cluster's metadata by polling: each change is a line of polled.jsonl. If the brokers' logs cannot be read
on this machine, reports know leaders, epochs and ISRs only from here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

import trio

from squall.chaos.runs.lookout import FRESH_S, BrokerClusterView, merged

EVERY_S = 0.2
Ask = Callable[[], Awaitable[BrokerClusterView | None]]
Tell = Callable[[dict[str, Any]], None]


class MetadataChangeTracker:
    """Remembers the last polled metadata, and reports how the next answers differ."""

    def __init__(self) -> None:
        self._partitions: dict[str, tuple[int, int, tuple[int, ...]]] = {}
        self._controller = -1, -1

    def changes(self, answers: Sequence[BrokerClusterView], at_s: float) -> list[dict[str, Any]]:
        """Return an entry of polled.jsonl for each partition whose leader, epoch or ISR has changed, and for a new
        active controller. at_s: the time that the entries get.

        If brokers disagree, the newest epoch decides, then the majority. A broker that is cut off keeps reporting an
        old epoch: an epoch older than that of the last entry gives no entry.
        """
        if not answers:
            return []
        seen, lines = merged(answers), []
        for name in sorted(seen.leaders):
            epoch = max(answer.epochs.get(name, -1) for answer in answers)
            now = seen.leaders[name], epoch, tuple(sorted(seen.isr[name]))
            before = self._partitions.get(name)
            if before is not None and (now == before or epoch < before[1]):
                continue
            self._partitions[name] = now
            topic, _, index = name.rpartition("-")
            where = {"topic": topic, "partition": int(index)}
            lines.append({"t": at_s, "e": "polled", **where, "leader": now[0], "epoch": epoch, "isr": list(now[2])})
        controller = seen.controller, max(answer.term for answer in answers)
        if controller[0] >= 0 and controller[0] != self._controller[0] and controller[1] >= self._controller[1]:
            self._controller = controller
            lines.append({"t": at_s, "e": "polled_controller", "node": controller[0], "epoch": controller[1]})
        return lines


async def keep_polled(asks: Sequence[Ask], now_s: Callable[[], float], tell: Tell) -> NoReturn:
    """Poll each broker's metadata every EVERY_S, until cancelled. Call `tell` with an entry of polled.jsonl for each
    change. A broker that does not answer delays nothing. now_s: returns the time that an entry gets, in seconds.
    """
    answers: dict[int, tuple[float, BrokerClusterView]] = {}
    polled = MetadataChangeTracker()

    async def keep_asking(number: int) -> NoReturn:
        while True:
            if (answer := await asks[number]()) is not None:
                answers[number] = (now_s(), answer)
            await trio.sleep(EVERY_S)

    async with trio.open_nursery() as nursery:
        for number in range(len(asks)):
            nursery.start_soon(keep_asking, number)
        while True:
            await trio.sleep(EVERY_S)
            at_s = now_s()
            fresh = [answer for _, (at, answer) in sorted(answers.items()) if at_s - at <= FRESH_S]
            for line in polled.changes(fresh, at_s):
                tell(line)
    raise AssertionError("a nursery of endless tasks ends by cancellation")
