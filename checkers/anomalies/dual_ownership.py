"""dual-ownership: a coordinator takes two members for the owner of one partition.

Both members say that they own it at the same time. Then one of two things shows it.

One generation, or member epoch, assigned it to both: no generation may do that, so nothing else needs to be known. Two
processes with one instance id are one member to their coordinator. Where an administrator may have deleted the group in
between, generations are counted anew, and those of one number may be two.

Or, in whatever generations they were told, after both were told so the coordinator accepted something of each of them
that only a member may ask for (`Hold.proved`):

- a commit that it acknowledged, at any time. Its record was appended by other replicas, and those follow the
  coordinator's successor if there is one. So a coordinator that has lost its groups acknowledges none;
- a heartbeat, unless it was sent while a fault kept brokers apart, or too soon after that for all to have heard of each
  other. A coordinator that is cut off from its peers, but not from its member, answers the member's heartbeats until it
  hears of its successor. Apache Kafka's does so as well, and the successor cannot know it: that is promised nowhere.

Which faults those are, and for how long they count, is said at `checkers.nemesis_log.apart`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from checkers.anomalies.anomaly import Anomaly, Check, Family, Need, Seen
from checkers.anomalies.group_positions import Place, positions_of
from checkers.findings import Witness
from checkers.history.group_tables import DELETED, Hold
from checkers.history.tables import FAIL

NAME = "dual-ownership"
ANOMALIES = (
    Anomaly(
        NAME,
        Family.GROUPS,
        "two members of a group own one partition: both were told so, neither has given it up, and one generation "
        "assigned it to both, or after that the coordinator accepted of each of them a commit, or a heartbeat that was "
        "sent while no fault kept brokers apart",
        source="KIP-848: a partition is assigned anew once its owner has revoked it; KIP-429",
        other="the process that had it first",
        needs=(Need.MEMBERS, Need.RIVALS, Need.PROOFS),
        meaning="times two members of a group owned one partition",
        meaning_of_one="time two members of a group owned one partition",
    ),
)


def find(seen: Seen) -> Iterator[Witness]:
    """Each two holds of a partition.

    A member that was fenced, or whose session ran out, learns that later than its successor is told of its own
    partitions: that both believe to be owners is no fault of the coordinator's. Of two that were assigned a partition,
    a sound coordinator has one removed or given it up before the other one got it. Whichever that is, after both were
    told it accepts nothing of its former membership.
    """
    instances = {each.proc: each.settings.get("instance") for each in seen.history.processes}
    for place in seen.view(positions_of).places:
        for one, other in combinations(sorted(place.holds, key=lambda hold: (hold.t0, hold.proc)), 2):
            if one.proc == other.proc:
                continue
            namesakes = instances.get(one.proc) and instances.get(one.proc) == instances.get(other.proc)
            proved = min(one.proved, other.proved) >= other.t0
            if proved or (not namesakes and _one_generation(one, other) and not _deleted(place, one, other)):
                yield Witness(NAME, "", place.part, other.pos, -1, -1, other.proc, one.proc)


def _one_generation(one: Hold, other: Hold) -> bool:
    """Whether one generation assigned it to both, of which `one` had not given it up when `other` was told."""
    first = max(one.gen, other.gen)
    known = min(one.gen, other.gen) >= 0
    return known and first <= min(one.last_gen, other.last_gen) and (one.t1 < 0 or one.t1 > other.t0)


def _deleted(place: Place, one: Hold, other: Hold) -> bool:
    """Whether the group may have been deleted after the first one was told, and before the second one was."""
    return any(
        each.off == DELETED and each.st != FAIL and each.t0 <= other.t0 and (each.t1 < 0 or each.t1 >= one.t0)
        for each in place.commits
    )


CHECK = Check(__name__, ANOMALIES, find)
