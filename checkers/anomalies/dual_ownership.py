"""dual-ownership: a coordinator takes two members for the owner of one partition.

It takes two things: both members say that they own it, and after both were told so the coordinator accepted something
of each of them that only a member may ask for (`Hold.proved`):

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
from checkers.anomalies.group_positions import positions_of
from checkers.findings import Witness

NAME = "dual-ownership"
ANOMALIES = (
    Anomaly(
        NAME,
        Family.GROUPS,
        "two members of a group own one partition: both were told so, neither has given it up, and after that the "
        "coordinator accepted of each of them a commit, or a heartbeat that was sent while no fault kept brokers apart",
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
    for place in seen.view(positions_of).places:
        for one, other in combinations(sorted(place.holds, key=lambda hold: (hold.t0, hold.proc)), 2):
            if one.proc != other.proc and min(one.proved, other.proved) >= other.t0:
                yield Witness(NAME, "", place.part, other.pos, -1, -1, other.proc, one.proc)


CHECK = Check(__name__, ANOMALIES, find)
