"""dual-ownership: a coordinator takes two members for the owner of one partition.

Both members say that they own it at the same time. Then one of two things shows it.

One generation, or member epoch, assigned it to both: no generation may do that, so nothing else needs to be known. Both
were told so within one session time-out: where all members have gone, generations may be counted anew, but nobody is
given up sooner. Two processes with one instance id are one member to their coordinator.

Or, in whatever generations they were told, after both were told so the coordinator accepted something of each of them
that only a member may ask for (`PartitionOwnership.proved`):

- a commit that it acknowledged, at any time, in a generation that assigned the partition to the member. Its record was
  appended by other replicas, and those follow the coordinator's successor if there is one. So a coordinator that has
  lost its groups acknowledges none. Without the generation it would prove too little: a member of the classic protocol
  that was removed may join a consumer group again under its old id. It is told then that the partition is not its own
  any more, and commits what it has read before it gives the partition up. Its new generation may have the number of an
  old one, because an empty group counts anew: where it had not been heard of for its session, what it was told before
  counts no more;
- a heartbeat, unless it was sent while a fault kept brokers apart, or too soon after that for all to have heard of each
  other. A coordinator that is cut off from its peers, but not from its member, answers the member's heartbeats until it
  hears of its successor. Apache Kafka's does so as well, and the successor cannot know it: that is promised nowhere.

Joining proves nothing: it makes a member of who was none. So where a partition was owned by another member for a while,
and the first one is told only after that, in a generation, that it has it, what this one proves then says nothing of
that while.

Which faults those are, and for how long they count, is said at `squall.checkers.nemesis_log.apart`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from squall.checkers.anomalies.anomaly import AnomalyCheck, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.group_positions import positions_of
from squall.checkers.findings import Witness
from squall.checkers.history.group_tables import PartitionOwnership
from squall.checkers.history.groups import session_ns
from squall.checkers.history.tables import ClientProcess

NAME = "dual-ownership"
ANOMALIES = (
    AnomalyDefinition(
        NAME,
        AnomalyFamily.GROUPS,
        "two members of a group own one partition: both were told that they own it, and neither released it; in "
        "addition, the same generation assigned it to both, or the coordinator then accepted from each of them a "
        "commit, or a heartbeat that was sent while no fault kept brokers apart",
        source="KIP-848: a partition is assigned anew once its owner has revoked it; KIP-429",
        other="the process that had it first",
        needs=(HistoryNeed.MEMBERS, HistoryNeed.RIVALS, HistoryNeed.PROOFS),
        meaning="times two members of a group owned one partition",
        meaning_of_one="time two members of a group owned one partition",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Each two holds of a partition.

    A member that was fenced, or whose session ran out, learns that later than its successor is told of its own
    partitions: that both believe to be owners is no fault of the coordinator's. Of two that were assigned a partition,
    a sound coordinator has one removed or given it up before the other one got it. Whichever that is, after both were
    told it accepts nothing of its former membership.
    """
    processes = {each.proc: each for each in seen.history.processes}
    for place in seen.view(positions_of).places:
        for one, other in combinations(sorted(place.holds, key=lambda hold: (hold.t0, hold.proc)), 2):
            if one.proc == other.proc:
                continue
            proved = min(one.proved, other.proved) >= other.t0 and not _is_back(one, other)
            if proved or _one_generation(one, other, processes[one.proc], processes[other.proc]):
                yield Witness(NAME, "", place.part, other.pos, -1, -1, other.proc, one.proc)


def _is_back(one: PartitionOwnership, other: PartitionOwnership) -> bool:
    """Return whether `one` is proven a member only after all of the other one's ownership, in a later generation."""
    return one.t0 < other.t0 <= other.t1 < one.told <= one.proved


def _one_generation(
    one: PartitionOwnership, other: PartitionOwnership, first: ClientProcess, second: ClientProcess
) -> bool:
    """Return whether one generation assigned the partition to both, and `one` had not given it up when `other` began to
    own it.
    """
    if first.settings.get("instance") and first.settings.get("instance") == second.settings.get("instance"):
        return False
    shared = one.last_gen == other.last_gen >= 0 and (one.t1 < 0 or one.t1 > other.t0)
    sooner = first if one.told <= other.told else second
    return shared and abs(one.told - other.told) < session_ns(sooner)


CHECK = AnomalyCheck(__name__, ANOMALIES, find)
