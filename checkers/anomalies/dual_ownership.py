"""dual-ownership: a coordinator takes two members for the owner of one partition."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from checkers.anomalies.anomaly import Anomaly, Check, Family, Need, Seen
from checkers.anomalies.group_positions import positions_of
from checkers.findings import Witness

ANOMALIES = (
    Anomaly(
        "dual-ownership",
        Family.GROUPS,
        "two members of a group own one partition: both were told so, neither has given it up, and after that the "
        "coordinator accepted a request of each of them as a member's",
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
                yield Witness("dual-ownership", "", place.part, other.pos, -1, -1, other.proc, one.proc)


CHECK = Check(__name__, ANOMALIES, find)
