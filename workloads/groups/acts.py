"""Defines the actions of producers and group members in the workload `groups`, and draws them from a seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

SEND, PAUSE, HALT, LEAVE, CRASH, TWIN = "send", "pause", "halt", "leave", "crash", "twin"
RECESS, CONVERT, DELETE = "recess", "convert", "delete"
OF_MEMBERS = (PAUSE, HALT, LEAVE, CRASH, TWIN)
OF_ALL = (RECESS, CONVERT, DELETE)
"""Lists the actions that make all members leave the group and come back. The first member does them."""
MAX_MS, MAX_RECESS_MS = 60_000, 3_600_000
FIRST_S = 1.5
"""Gives the seconds without actions at the start of a load, in which the group forms."""
RECESS_AT_S = 4.0
"""Gives the time, in seconds from the start of a load, at which all members leave the group for `away_ms`. They do so
once, and only if `away_ms` is not 0.
"""


class GroupAction(NamedTuple):
    """Describes one planned action of a producer or a group member."""

    at_s: float
    """Gives the time, in seconds, at which the action is due. In a plan, the time counts from the end of the warm-up,
    and is negative in the warm-up. During a run, it counts from the start of the run.
    """
    who: int
    """Gives the number of the producer (if the action is a send) or of the member."""
    do: str
    """Names the action.

    send: a producer sends a record. pause: the application does not poll, while heartbeats continue. halt: the whole
    process is paused. leave: the member leaves in good order (a static member without a request), and comes back.
    crash: the process ends without a request, and gets a successor. twin: a second process begins with the same
    instance id. recess: all members leave and come back. convert: as recess, and the members come back with the group's
    other protocol. delete: as recess, and an administrator deletes the group as soon as it has no members.
    """
    number: int
    """Gives the partition of a send, and the length in ms of any other action."""
    bytes: int
    """Gives the size of a sent record's value; 0 for the actions of members."""


@dataclass(frozen=True, slots=True)
class GroupActionMix:
    """Holds the settings of a `groups` load, and draws the actions of its producers and members from them."""

    rate: int
    """Gives the records per second of all producers together."""
    producers: int
    partitions: int
    record_bytes: int
    members: int
    churn: int
    """Gives the actions per minute of all members together."""
    session_ms: int
    poll_ms: int
    static: bool
    """Is True if all members but the first have an instance id."""
    conversions: int = 0
    """Gives the conversions to the other group protocol per minute."""
    deletions: int = 0
    """Gives the deletions of the group per minute."""
    away_ms: int = 0
    """Gives the length of the only recess (an interval in which all members have left) in ms; 0 if there is none."""

    def records(self, rng: Random, producer: int, begin_s: float, end_s: float) -> Iterator[GroupAction]:
        """Yield one producer's records: one in every interval of fixed length, at a random time within the interval."""
        interval_s = self.producers / self.rate
        for number in range(math.ceil((end_s - begin_s) / interval_s) if end_s < math.inf else 1 << 40):
            at_s = round(begin_s + (number + rng.random()) * interval_s, 4)
            if at_s >= end_s:
                return
            yield GroupAction(at_s, producer, SEND, int(rng.random() * self.partitions), self.record_bytes)

    def acts(self, rng: Random, member: int, begin_s: float, end_s: float) -> Iterator[GroupAction]:
        """Yield the actions that concern one member alone, such as a pause or a crash, at random times between
        `begin_s` and `end_s` of the load.
        """
        if not self.churn:
            return
        mean_s, at_s = 60 * self.members / self.churn, begin_s + FIRST_S
        while (at_s := at_s + rng.uniform(0.2, 1.8) * mean_s) < end_s:
            do, ms = self._drawn(rng, member)
            yield GroupAction(round(at_s, 4), member, do, ms, 0)
            at_s += ms / 1000

    def of_all(self, rng: Random, begin_s: float, end_s: float) -> Iterator[GroupAction]:
        """Yield the actions with which the first member makes all members leave (`OF_ALL`), between these times of the
        load.
        """
        if self.away_ms and (at_s := begin_s + RECESS_AT_S) < end_s:
            yield GroupAction(round(at_s, 4), 0, RECESS, self.away_ms, 0)
        rate = self.conversions + self.deletions
        mean_s, at_s = 60 / rate if rate else math.inf, begin_s + FIRST_S
        while (at_s := at_s + rng.uniform(0.4, 1.6) * mean_s) < end_s:
            converts = rng.random() < self.conversions / rate
            # A static member stays one until its session is over, and a group that has members cannot be deleted.
            ms = rng.randint(100, 1000) if converts else self.session_ms + rng.randint(500, 1500)
            yield GroupAction(round(at_s, 4), 0, CONVERT if converts else DELETE, min(ms, MAX_MS), 0)
            at_s += ms / 1000

    def _drawn(self, rng: Random, member: int) -> tuple[str, int]:
        """Draw an action and its length in ms. Half of the lengths are longer than the time-out that the action may
        exceed: the poll time-out for `pause`, the session time-out for all other actions.
        """
        static = is_static(self.static, member)
        do = rng.choice((PAUSE, HALT, LEAVE, LEAVE, CRASH, TWIN) if static else (PAUSE, HALT, LEAVE, LEAVE, CRASH))
        limit_ms = self.poll_ms if do == PAUSE else self.session_ms
        longer = rng.random() < 0.5
        low, high = (limit_ms + 300, limit_ms + 1500) if longer else (100, max(limit_ms * 2 // 3, 101))
        return do, min(rng.randint(low, high), MAX_MS)


def is_static(wanted: bool, member: int) -> bool:
    """Return whether this member has an instance id. If static members are `wanted`, all members except member 0 have
    one, otherwise none.
    """
    return wanted and member > 0


def wrong(act: GroupAction, draw: GroupActionMix, sizes: tuple[int, int]) -> str:
    """Return why this action does not fit a load with the settings `draw`; empty if it fits. `sizes` gives the smallest
    and the largest record, in bytes.
    """
    if act.do not in (SEND, *OF_MEMBERS, *OF_ALL):
        return f"do {act.do!r}: one of {', '.join((SEND, *OF_MEMBERS, *OF_ALL))}"
    of_record = act.do == SEND
    limits: Sequence[tuple[str, int, int, int]] = (
        ("who", act.who, 0, (draw.producers if of_record else draw.members) - 1),
        (
            "number",
            act.number,
            *((0, draw.partitions - 1) if of_record else (1, MAX_RECESS_MS if act.do == RECESS else MAX_MS)),
        ),
        ("bytes", act.bytes, *(sizes if of_record else (0, sizes[1]))),
    )
    for what, number, low, high in limits:
        if not low <= number <= high:
            return f"{what} {number} of {act.do}: between {low} and {high} are allowed"
    if act.do == TWIN and not is_static(draw.static, act.who):
        return f"twin: member {act.who} has no instance id"
    return ""
