"""Finds clients that got nothing although others did: producers, transactional ids and members of groups.

Partitions that all took writes and were read do not show such clients: one producer may always be refused, one
transactional id may never get a producer id, and one member may own nothing. Time during faults does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from squall.checkers.anomalies import stuck
from squall.checkers.anomalies.anomaly import PROGRAM
from squall.checkers.history.group_activity import GroupActivity
from squall.checkers.history.tables import ClientProcess
from squall.checkers.nemesis_log import windows
from squall.checkers.verdict_inputs import VerdictInputs

FEW_TRIES = 5
"""Is the least number of attempts after which a client that got nothing is reported. After fewer, it may have started
late or had bad luck.
"""


def missing_evidence(case: VerdictInputs) -> list[str]:
    """Return a sentence for each client that got nothing. Clients that a finding already names as stuck are left out.
    """
    stood = {each.proc for each in case.findings or () if each.evidence in stuck.OF_ONE.values()}
    return [*_producers(case, stood), *_transactional_ids(case, stood), *_members(case)]


def stuck_ones(case: VerdictInputs) -> Iterator[str]:
    """Yield a sentence for each finding that one producer or transactional id was stuck: its name, and for how long."""
    processes = {each.proc: each for each in case.processes}
    for each in case.findings or ():
        if each.evidence in stuck.OF_ONE.values() and each.proc in processes:
            ns = max(witness.other for witness in each.witnesses)
            named = _producer(processes[each.proc]) if each.evidence == stuck.OF_PRODUCER else _id(processes[each.proc])
            yield f"{named} got no acknowledgement for {ns / 1e9:.1f} s; its first process is {each.proc}"


def _producer(process: ClientProcess) -> str:
    settings = process.settings
    return f"producer {settings['producer']}" if "producer" in settings else f"process {process.proc}"


def _id(process: ClientProcess) -> str:
    return f"the transactional id {process.settings.get('transactional_id') or f'of process {process.proc}'}"


def _producers(case: VerdictInputs, stood: set[int]) -> Iterator[str]:
    # All sends of a transaction fail together: a transactional producer is judged by its transactions alone.
    processes = {each.proc: each for each in case.processes if not each.settings.get("transactional_id")}
    reported = [each for each in case.metrics.get("producers", ()) if each["proc"] in processes]
    acked = sum(each["ok"] for each in reported)
    for each in reported:
        tries = each["fail"] + each["info"]
        if acked and not each["ok"] and tries >= FEW_TRIES and each["proc"] not in stood:
            named = _producer(processes[each["proc"]])
            yield f"none of {tries} sends of {named} outside of faults was acknowledged, and {acked} of others were"


def _transactional_ids(case: VerdictInputs, stood: set[int]) -> Iterator[str]:
    processes = {each.proc: each for each in case.processes}
    reported = [each for each in case.metrics.get("transactional_ids", ()) if each["proc"] in processes]
    for each in reported:
        if not each["committed"] and each["failed"] >= FEW_TRIES and each["proc"] not in stood:
            named = _id(processes[each["proc"]])
            yield f"{named} committed nothing: {each['failed']} tries outside of faults failed"


def _members(case: VerdictInputs) -> Iterator[str]:
    for group, did in sorted(case.groups.items()):
        of_number: dict[int, list[ClientProcess]] = {}
        for each in case.processes:
            settings = each.settings
            # A twin is a second process of a member that fences the first one, and is soon gone.
            if settings.get("group") == group and type(settings.get("member")) is int and not settings.get("twin"):
                of_number.setdefault(settings["member"], []).append(each)
        yield from _starved(group, did, of_number)
        yield from _never_assigned(case, group, did, of_number)


def _starved(group: str, did: GroupActivity, of_number: Mapping[int, list[ClientProcess]]) -> Iterator[str]:
    """Yield a sentence for each member whose polls were answered, but without any of the records that were acknowledged
    while it owned their partitions. `of_number` maps the number of each member to the processes that ran it.
    """
    of_proc = {each.proc: each for each in did.members}
    for number, processes in sorted(of_number.items()):
        own = [of_proc[each.proc] for each in processes if each.proc in of_proc]
        polls, got, due = (sum(each[place] for each in own) for place in (1, 2, 3))
        if not got and min(polls, due) >= FEW_TRIES:
            yield (
                f"member {number} of the group {group} got no record, and {due} were acknowledged in its partitions "
                "while it owned them"
            )


def _never_assigned(
    case: VerdictInputs, group: str, did: GroupActivity, of_number: Mapping[int, list[ClientProcess]]
) -> Iterator[str]:
    """Yield a sentence for each member of a group that never owned a partition, although it had more time without
    faults than the plan's limit for a stuck consumer. `did` has the group's activity. `of_number` maps the number of
    each member to the processes that ran it.

    Each assignor gives every member a partition as long as a topic has at least as many partitions as there are
    members. Members that are programs under test are left out: a program decides by itself which of its OS processes
    report partitions.
    """
    topics = [each.topic for each in case.partitions if each.part in did.owned]
    most = max(map(topics.count, topics), default=0)
    owners = {each.proc for each in did.members}
    there = [each for processes in of_number.values() for each in processes if each.first_t >= 0]
    end = max((each.last_t for each in there), default=-1)
    enough_s = case.plan.limits.stuck_consumer_s if case.plan else None
    if not owners or enough_s is None or len(of_number) > most:
        return
    for number, processes in sorted(of_number.items()):
        mentioned = [each.first_t for each in processes if each.first_t >= 0 and each.client != PROGRAM]
        if not mentioned or owners & {each.proc for each in processes}:
            continue
        calm_s = _calm_ns(case, min(mentioned), end) / 1e9
        if calm_s > enough_s:
            yield f"member {number} of the group {group} never owned a partition in {calm_s:.0f} s outside of faults"


def _calm_ns(case: VerdictInputs, begin: int, end: int) -> int:
    """Return for how long no fault was on between two times, in ns."""
    on = sum(max(0, min(until, end) - max(since, begin)) for since, until in windows(case.faults))
    return max(0, end - begin) - on
