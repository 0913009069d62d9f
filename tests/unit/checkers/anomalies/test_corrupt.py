"""Records that are not what was sent, and the nearest that are."""

from __future__ import annotations

from tests.support.histories.builder import GeneratedHistory, HistoryBuilder
from tests.support.histories.case import Cases
from tests.support.histories.spoilers import acked, occurrences

CASES = Cases()
test_the_reference = CASES.test()


@CASES.case("a record that does not verify is corrupt, wherever it was read", ("corrupt", ""))
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(), [(0, h.info(h.send(h.producer())).val), (1, -1)])
    return h


@CASES.case("an empty poll has no record that could be corrupt")
def _() -> HistoryBuilder:
    h = HistoryBuilder()
    h.poll(h.reader(), [(0, h.info(h.send(h.producer())).val)])
    h.poll(h.reader(), [], at=1)
    return h


@CASES.plant("corrupt")
def _(history: GeneratedHistory) -> None:
    poll, entry, i = history.rng.choice(occurrences(history, acked(history).val, "final_read"))
    poll.bad.append((entry.part, entry.pairs[i][0], "checksum"))
    entry.pairs[i] = (entry.pairs[i][0], -1)
