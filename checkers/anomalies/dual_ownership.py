"""Finds dual-ownership: a group's coordinator treats two members as the owner of one partition.

Both members report that they own the partition at the same time. In addition, one of two things must hold.

First: one generation, or member epoch, assigned the partition to both members. No generation may do that, so no other
proof is needed. But an empty group may number its generations from the start again, so two generations may have one
number. A coordinator removes no member before its session time-out, so both members must have learned of the generation
within one session time-out. Two processes with one instance id are one member to their coordinator.

Second: after both members had learned of their ownership, the coordinator accepted a request of each of them that only
a member may send (`PartitionOwnership.proved`). Their generations do not matter. Such a request is:

- a commit that the coordinator acknowledged, at any time, in a generation that assigned the partition to the member.
  A commit is acknowledged once other replicas have appended its record. After a failover they follow the group's new
  coordinator, so the old one can acknowledge no commit. Without the generation a commit proves too little: a classic
  member that was removed may join its group again under its old id. It then learns that the partition is no longer its
  own, and commits what it has read before it gives the partition up. The generation in which it joins may have the
  number of an old one, because an empty group counts anew; so if the member was silent for its session time-out, its
  earlier assignments no longer count;
- a heartbeat, unless it was sent while a fault kept brokers apart, or too soon after that fault for all brokers to have
  heard of each other. A coordinator that is cut off from the other brokers, but not from a member, answers the member's
  heartbeats until it hears that another broker has become the coordinator. Apache Kafka's coordinator does so as well,
  and no document promises otherwise.

Joining proves nothing, because a process need not be a member to join. So if another member owned the partition in
between, and the first member learns only later, in a generation, that it owns the partition again, the first member's
later requests prove nothing about the time in between.

`squall.checkers.nemesis_log.apart` says which faults keep brokers apart, and for how long they count.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery
from squall.checkers.anomalies.group_positions import positions_of
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
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
    """Yield a witness for each pair of members that are proven to have owned a partition at the same time.

    A member that was fenced, or whose session expired, learns of that only after another member was assigned its
    partitions. So both may believe for a while that they are the owner, and the coordinator is not to blame. But a
    sound coordinator assigns the partition to the second member only after it has removed the first member, or after
    the first member has given the partition up. From then on it accepts no request from the first member as an owner.
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
    """Return whether `one` may have lost the partition to `other` and got it back later. That is so if `one` learned of
    its last assignment only after the ownership of `other` was over. Then its requests prove nothing about the time
    before.
    """
    return one.t0 < other.t0 <= other.t1 < one.told <= one.proved


def _one_generation(
    one: PartitionOwnership, other: PartitionOwnership, first: ClientProcess, second: ClientProcess
) -> bool:
    """Return whether one generation assigned the partition to both members, and `one` had not given it up when `other`
    began to own it. `first` and `second` are the client processes of `one` and `other`.

    False if both processes have one group.instance.id. False also if they learned of the generation a session time-out
    apart or more: then it may be two generations with one number.
    """
    if first.settings.get("instance") and first.settings.get("instance") == second.settings.get("instance"):
        return False
    shared = one.last_gen == other.last_gen >= 0 and (one.t1 < 0 or one.t1 > other.t0)
    sooner = first if one.told <= other.told else second
    return shared and abs(one.told - other.told) < session_ns(sooner)


SQL = """
with named as (
  select proc, coalesce(get_json_object(settings, '$.instance'), '') instance,
         1000000L * coalesce(try_cast(get_json_object(settings, '$.session_timeout_ms') as bigint), 0L) session
  from processes),
own as (
  select h.*, n.instance, n.session from holds h join partitions p on p.part = h.part join named n on n.proc = h.proc
  where not p.deleted)
select 'dual-ownership' anomaly, '' evidence, b.part, b.pos off, -1L val, -1L op, bigint(b.proc) proc,
       bigint(a.proc) other
from own a join own b on a.`group` = b.`group` and a.part = b.part and a.proc <> b.proc
where (a.t0 < b.t0 or (a.t0 = b.t0 and a.proc < b.proc)) and (
  (a.proved >= b.t0 and b.proved >= b.t0
    and not (a.t0 < b.t0 and b.t0 <= b.t1 and b.t1 < a.told and a.told <= a.proved))
  or (a.last_gen = b.last_gen and a.last_gen >= 0 and (a.t1 < 0 or a.t1 > b.t0)
      and (a.instance <> b.instance or a.instance = '')
      and abs(a.told - b.told) < if(a.told <= b.told, a.session, b.session)))
"""


def _queries(history: ConversionResult) -> Queries:
    return [WitnessQuery(SQL, ("holds", "partitions", "processes"))] if history.holds else []


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
