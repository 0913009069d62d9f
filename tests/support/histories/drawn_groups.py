"""Random histories of a consumer group: rebalances, members that send nothing, lost partitions, and commits that are
answered late or in part.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from squall.checkers.history.tables import FAIL, INFO, OK
from tests.support.histories.builder import MS, Other
from tests.support.histories.group_history import GROUP, GroupHistory
from tests.support.histories.nemesis_lines import fault_line, spoken

PARTS = 2
SESSION_MS = 10
"""The session timeout of the members: so short that steps of a few ms may exceed it."""

_parts = st.sets(st.integers(0, PARTS - 1)).map(sorted)
_gens = st.integers(-1, 3)
_offsets = st.dictionaries(st.integers(0, PARTS - 1), st.integers(0, 9))


class _Drawing:
    """Draws the next step of a member, and adds it to the history."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.h = GroupHistory(PARTS)
        self.procs = [self.h.member(session_timeout_ms=SESSION_MS), self.h.member(), self.h.pipe()]
        self.under_way: list[Other] = []
        self.txn: Other | None = None

    def step(self) -> None:
        self.h.now += self.draw(st.sampled_from([0, 0, 0, SESSION_MS * MS]))
        acts = (
            self.joins, self.joins, self.is_assigned, self.is_assigned, self.is_assigned, self.revokes, self.loses,
            self.goes, self.commits, self.commits, self.commits, self.is_answered, self.is_answered, self.asks,
            self.is_reset, self.transacts,
        )  # fmt: skip
        self.draw(st.sampled_from(acts))()

    def joins(self) -> None:
        self.h.joined(self.proc(), self.draw(_parts), self.draw(_gens), self.draw(st.none() | self.times()))

    def is_assigned(self) -> None:
        begun = self.draw(st.sampled_from(["committed", "reset"]))
        self.h.assigned(self.proc(), self.draw(_offsets), self.draw(_gens), begun)

    def revokes(self) -> None:
        self.h.revoked(self.proc(), self.draw(_parts), self.draw(self.times()), self.draw(_gens))

    def loses(self) -> None:
        why = self.draw(st.sampled_from(["FENCED_INSTANCE_ID", "crash"]))
        self.h.lost(self.proc(), self.draw(_parts), why, self.draw(self.times()))

    def goes(self) -> None:
        if self.draw(st.booleans()):
            self.h.operation(self.proc(), "crash_client")
        else:
            self.h.event("left", p=self.proc(), g=GROUP, m="", gen=1, inst="", why="close")

    def commits(self) -> None:
        inside = self.txn if self.txn is not None and self.draw(st.booleans()) else None
        proc, gen = self.proc(), self.draw(_gens)
        self.under_way.append(self.h.commit(proc, self.draw(_offsets), gen=gen, st=-1, txn=inside))

    def is_answered(self) -> None:
        """Complete one of the commits under way. By then its sender may have lost its partitions."""
        if not self.under_way:
            return
        commit = self.under_way.pop(self.draw(st.integers(0, len(self.under_way) - 1)))
        commit.t1, ending = self.h.tick(), self.draw(st.sampled_from([OK, OK, FAIL, INFO]))
        refused = self.draw(_parts) if ending == FAIL else []
        commit.completion = {
            "st": ending,
            **self.draw(st.sampled_from([{}, {"unanswered": 0}, {"unanswered": 1}])),
            **({"errs": {str(part): "OFFSET_METADATA_TOO_LARGE" for part in refused}} if refused else {}),
        }

    def asks(self) -> None:
        self.h.fetched(self.proc(), self.draw(_offsets), stable=self.draw(st.booleans()))

    def is_reset(self) -> None:
        what = self.draw(st.sampled_from(["reset_offsets", "delete_offsets", "delete_group", "retention"]))
        self.h.reset(self.proc(), what, **self.draw(st.sampled_from([{}, {"part": 1}])))

    def transacts(self) -> None:
        if self.txn is None:
            self.txn = self.h.begin(self.procs[-1])
        else:
            self.h.end(self.txn, self.draw(st.sampled_from(["commit", "abort"])))
            self.txn = None

    def proc(self) -> int:
        """Draw a member, most often the first one: a sequence of steps of one member reaches more states."""
        found: int = self.draw(st.sampled_from([self.procs[0], *self.procs]))
        return found

    def times(self) -> st.SearchStrategy[int]:
        """Draw the time of a heartbeat."""
        return st.sampled_from([-1, self.h.now, self.h.now - 3 * MS])


@st.composite
def group_histories(draw: Callable[[st.SearchStrategy[Any]], Any]) -> tuple[list[bytes], list[bytes]]:
    """Return the lines of a history and of its nemesis.jsonl. Sometimes a fault in it separates brokers."""
    drawing = _Drawing(draw)
    for _ in range(draw(st.integers(1, 30))):
        drawing.step()
    action, began_ms, ended_ms = (
        draw(st.sampled_from(each)) for each in (("partition", "pause", "kill"), (0, 20), (None, 25))
    )
    fault = json.loads(fault_line(0, action, began_ms, ended_ms, evidence=None))
    return drawing.h.lines(), draw(st.sampled_from([[], [json.dumps(spoken(fault)).encode() + b"\n"]]))
