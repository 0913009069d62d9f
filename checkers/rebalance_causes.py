"""Derives why a group's partitions were assigned again: the cause of each generation.

The first of these that applies gives the cause:

1. A member came or went because of the load: it began or ended, or paused for too long and joined again.
2. A fault that targets clients made a member begin or end.
3. Members gave partitions up in the generation before, and joined again so that others get them (KIP-429).
    The generation before has the same cause.
4. Otherwise, the fault that began last is the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from squall.checkers.history.group_tables import (
    LEFT,
    LOST,
    REVOKED,
    GenerationAssignment,
    MemberPause,
    PartitionOwnership,
)
from squall.checkers.history.tables import ClientProcess, RecordedFault

SOON_NS = 3_000_000_000
"""Is how long, in ns, a coordinator and its members may take for a rebalance that has begun."""
FOREVER = 1 << 62
CLIENTS = ("producer", "reader", "member")
"""Lists the words with which a fault's target begins if it is a process of the load, for example `reader` of
`reader:2`.
"""
COMES, GOES = ("followed_by", "second"), ("process", "second")
"""Name keys of the evidence of a fault that targets clients; their values are numbers of processes. COMES are the keys
of processes that the fault started, GOES of those that it ended. A `second` process is a duplicate member: the fault
starts and ends it.
"""
CLASSIC, COOPERATIVE = "classic", "cooperative"
MEMBERS: Literal["members"] = "members"
RebalanceCause = Literal["members"] | int | None
"""Is the cause of a generation: MEMBERS for members of the load, the id of a fault, or None if no fault had begun."""


class MembershipChange(NamedTuple):
    """Records that a process came or went, and that a generation followed."""

    proc: int
    fault: int | None
    """Is the id of the fault that caused the change. None if the load caused it, for example by a planned pause of a
    member.
    """


@dataclass(slots=True)
class GenerationCauses:
    """Holds the generations of one group in order of time, and derives why they came."""

    grants: Sequence[GenerationAssignment]
    holds: Sequence[PartitionOwnership]
    stills: Sequence[MemberPause]
    processes: Mapping[int, ClientProcess]
    faults: Sequence[RecordedFault]
    began: dict[int, int] = field(default_factory=dict)
    """Maps each generation to when its first member heard of it, in ns, ascending."""
    of_proc: dict[int, list[GenerationAssignment]] = field(default_factory=dict)
    """Maps each process to its assignments, the first of each generation, ascending."""
    reasons: dict[int, list[MembershipChange]] = field(default_factory=dict)
    """Maps each generation to the membership changes that it followed."""

    def __post_init__(self) -> None:
        seen: set[tuple[int, int]] = set()
        for grant in sorted(self.grants):
            self.began.setdefault(grant.gen, grant.t)
            if (grant.proc, grant.gen) not in seen:
                self.of_proc.setdefault(grant.proc, []).append(grant)
            seen.add((grant.proc, grant.gen))
        for gen, reason in (*self._arrivals(), *self._returns(), *self._departures()):
            self.reasons.setdefault(gen, []).append(reason)

    def causes(self) -> dict[int, RebalanceCause]:
        """Return the cause of each generation except the first, because before that nothing was assigned."""
        found: dict[int, RebalanceCause] = {}
        for before, gen in pairwise(self.began):
            reasons = self.reasons.get(gen, ())
            by_faults = [each.fault for each in reasons if each.fault is not None]
            if any(each.fault is None for each in reasons):
                found[gen] = MEMBERS
            elif by_faults:
                found[gen] = by_faults[0]
            elif self.follows_up(before, gen):
                # The first generation has no cause: in it members form the group.
                found[gen] = found.get(before, MEMBERS)
            else:
                found[gen] = self._last_fault(self.began[gen])
        return found

    def follows_up(self, before: int, gen: int) -> bool:
        """Return whether generation `gen` is the second round of a cooperative rebalance (KIP-429) that generation
        `before` began: a member gave up partitions that `before` did not assign to it, and joined again. False if a
        member uses the consumer protocol (KIP-848), which has no second round.
        """
        took_part = [proc for proc, own in self.of_proc.items() if {each.gen for each in own} & {before, gen}]
        if any(self._setting(proc, "group_protocol", CLASSIC) != CLASSIC for proc in took_part):
            return False  # the coordinator assigns, so members need no second round
        return any(
            (one.gen, other.gen) == (before, gen) and self._gave_up(proc, one.t, other.t)
            for proc in took_part
            if COOPERATIVE in str(self._setting(proc, "assignor", ""))
            for one, other in pairwise(self.of_proc[proc])
        )

    def came_at(self, proc: int) -> int:
        """Return when the process came, in ns: when the history first mentions it, at the latest with its first
        assignment.
        """
        process, first = self.processes.get(proc), self.of_proc[proc][0].t
        return process.first_t if process and 0 <= process.first_t <= first else first

    def session_ns(self, proc: int) -> int:
        """Return the process's session time-out in ns; 0 if it is not known."""
        return self._ns(proc, "session_timeout_ms")

    def instance(self, proc: int) -> str:
        """Return the process's instance id; empty if it has none."""
        return str(self._setting(proc, "instance", "") or "")

    # ------------------------------------------------------------------------------------- who came, and who went

    def _arrivals(self) -> Iterator[tuple[int, MembershipChange]]:
        for proc, (first, *_) in self.of_proc.items():
            at = self.came_at(proc)
            # A process that came later joined an existing generation: it is a static member that returned.
            if at <= self.began[first.gen] or (at == first.t and not self._inherits(proc, first)):
                yield first.gen, MembershipChange(proc, self._blamed(proc, at, COMES))

    def _inherits(self, proc: int, first: GenerationAssignment) -> bool:
        """Return whether process `proc` took over the membership of another process with the same instance id. It did
        if the other process had been in the generation of `first`, which is the first assignment of `proc`.
        """
        return bool(self.instance(proc)) and any(
            each.gen == first.gen and each.t < first.t
            for other, own in self.of_proc.items()
            if other != proc and self.instance(other) == self.instance(proc)
            for each in own
        )

    def _returns(self) -> Iterator[tuple[int, MembershipChange]]:
        """Yield (generation, change) for each generation that began because a member paused for too long. One pause may
        cause two generations: in the first one the member is missing; the second one begins when the member joins
        again.
        """
        for still in self.stills:
            own = self.of_proc.get(still.proc, [])
            limit = self._limit_ns(still)
            if not own or not limit or still.t1 - still.t0 < limit * 2 // 3:
                continue
            # Its last heartbeat was sent up to a third of the limit before the pause.
            given_up = still.t0 + limit * 2 // 3
            without = [gen for gen in self.began if all(each.gen != gen for each in own)]
            expired = self._first_after(without, given_up, still.t0 + limit + SOON_NS)
            back = next((each for each in own if each.t > given_up), None)
            if expired is not None and (back is None or self.began[expired] < back.t):
                yield expired, MembershipChange(still.proc, None)
            if back is not None and self.began[back.gen] > given_up and self._was_out(still, back, without):
                yield back.gen, MembershipChange(still.proc, None)

    def _limit_ns(self, still: MemberPause) -> int:
        """Return how long the paused member in `still` may pause before it is removed from its group, in ns; 0 if that
        is not known. The limit is its session time-out if its heartbeats stopped, too, else max.poll.interval.ms; for a
        static member the session time-out is added to the latter.
        """
        session_ns = self.session_ns(still.proc)
        if still.silent:
            return session_ns
        polls_ns = self._ns(still.proc, "max_poll_interval_ms")
        return polls_ns + session_ns if self.instance(still.proc) else polls_ns

    def _was_out(self, still: MemberPause, back: GenerationAssignment, without: Iterable[int]) -> bool:
        ended = any(
            hold.proc == still.proc and hold.how in (LOST, LEFT) and still.t0 <= hold.t1 <= back.t
            for hold in self.holds
        )
        return ended or any(still.t0 < self.began[gen] < self.began[back.gen] for gen in without)

    def _departures(self) -> Iterator[tuple[int, MembershipChange]]:
        """Yield (generation, change) for each generation that began because a process ended: it left its group at once,
        or its session expired later.
        """
        for proc in sorted(self.of_proc.keys() & self.processes.keys()):
            gone = self.processes[proc].last_t
            if gone < 0:
                continue
            over = gone + self.session_ns(proc)
            instants = [gone, over]
            if self.instance(proc):  # a static member leaves without a request; its successor takes its session over
                instants = [] if self._succeeded(proc, gone, over) else [over]
            found = [self._first_after(self.began, at, at + SOON_NS) for at in instants]
            # If a generation began at once, the process had left its group, and its session ended then.
            if (gen := next((each for each in found if each is not None), None)) is not None:
                yield gen, MembershipChange(proc, self._blamed(proc, gone, GOES))

    def _succeeded(self, proc: int, gone: int, over: int) -> bool:
        return any(
            gone <= own[0].t <= over
            for other, own in self.of_proc.items()
            if other != proc and self.instance(other) == self.instance(proc)
        )

    def _first_after(self, gens: Iterable[int], begin: int, end: int) -> int | None:
        """Return the first of these ascending generations that began after `begin` and not after `end`; None if there
        is none.
        """
        return next((gen for gen in gens if begin < self.began[gen] <= end), None)

    def _gave_up(self, proc: int, begin: int, end: int) -> bool:
        return any(hold.proc == proc and hold.how == REVOKED and begin <= hold.t1 < end for hold in self.holds)

    # --------------------------------------------------------------------------------------------------- whose doing

    def _blamed(self, proc: int, at: int, names: Sequence[str]) -> int | None:
        """Return the id of the fault that made process `proc` begin or end at `at`, in ns; None if no fault did. Only
        faults that target clients count.

        `names` is COMES or GOES. A fault whose evidence names no process is blamed for every process that begins or
        ends while it is on, or within SOON_NS after it.
        """
        # The newest first, because an older one may have no end.
        for fault in sorted(self.faults, key=lambda fault: -fault.began):
            if fault.began < 0 or fault.target.partition(":")[0] not in CLIENTS:
                continue
            evidence = fault.evidence or {}
            until = fault.ended + SOON_NS if fault.ended >= 0 else FOREVER
            if any(evidence.get(name) == proc for name in names):
                return fault.id
            if not any(name in evidence for name in (*COMES, *GOES)) and fault.began <= at <= until:
                return fault.id
        return None

    def _last_fault(self, at: int) -> int | None:
        begun = [fault for fault in self.faults if 0 <= fault.began <= at]
        return max(begun, key=lambda fault: (fault.began, fault.id)).id if begun else None

    # --------------------------------------------------------------------------------------------------------- parts

    def _setting(self, proc: int, name: str, missing: object) -> object:
        process = self.processes.get(proc)
        return process.settings.get(name, missing) if process else missing

    def _ns(self, proc: int, name: str) -> int:
        timeout_ms = self._setting(proc, name, 0)
        return timeout_ms * 1_000_000 if isinstance(timeout_ms, int) else 0


def static_returns(generations: GenerationCauses) -> dict[str, int]:
    """Count returns of static members, for example {"returns": 5, "rebalanced": 1, "unclear": 1}.

    - `returns`: a process joined with the instance id of a process that had ended at most one session time-out before.
    - `rebalanced`: the return made the group rebalance, and nothing else can have caused that.
    - `unclear`: the group rebalanced, but a fault or another member may have caused that.

    A second process with the instance id of a live process is no return.
    """
    of_instance: dict[str, list[int]] = {}
    for proc in sorted(generations.of_proc, key=generations.came_at):
        if instance := generations.instance(proc):
            of_instance.setdefault(instance, []).append(proc)
    twins = [each for each in generations.processes.values() if each.settings.get("twin")]
    doubles = {each.proc for each in twins}
    counts = {"returns": 0, "rebalanced": 0, "unclear": 0}
    for instance, procs in of_instance.items():
        own = [each for each in twins if each.settings.get("instance") == instance]
        for before, after in pairwise([proc for proc in procs if proc not in doubles]):
            gone, came = generations.processes[before].last_t, generations.came_at(after)
            contended = any(each.first_t <= came and each.last_t >= gone for each in own)
            if contended or not 0 <= came - gone <= generations.session_ns(before):
                continue
            counts["returns"] += 1
            if why := _moved(generations, before, after, gone, came):
                counts[why] += 1
    return counts


def _moved(generations: GenerationCauses, before: int, after: int, gone: int, came: int) -> str:
    """Return "rebalanced" if the return of a static member made its group rebalance, "unclear" if something else may
    have caused the rebalance, and an empty text if there was none. Process `before` ended at `gone`, and process
    `after` came at `came` with the same instance id; both times are in ns.
    """
    first, began = generations.of_proc[after][0], generations.began
    # It took the place of the process before it, or joined a generation that had begun without it.
    if first.gen == generations.of_proc[before][-1].gen or came > began[first.gen]:
        return ""
    order = list(began)
    others = any(each.proc not in (before, after) for each in generations.reasons.get(first.gen, ()))
    place = order.index(first.gen)
    followed = place > 0 and generations.follows_up(order[place - 1], first.gen)
    faulted = any(
        0 <= fault.began <= began[first.gen] and (fault.ended < 0 or fault.ended + SOON_NS >= gone)
        for fault in generations.faults
    )
    return "unclear" if others or followed or faulted else "rebalanced"
