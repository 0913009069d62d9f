"""Decides whether a run saw enough for the verdict `valid`: writes, final reads to the end, and faults that landed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from squall.checkers import coverage_of_clients, fault_classes
from squall.checkers.anomalies import hanging_txn, stuck
from squall.checkers.history.tables import ObservedPartition
from squall.checkers.metrics import ISOLATIONS
from squall.checkers.verdict_inputs import VerdictInputs

HOLDS_BACK = (hanging_txn.NAME, stuck.CONSUMER)
"""Names the anomalies that keep a read at read_committed from reaching the end."""


def missing_evidence(case: VerdictInputs) -> list[str]:
    """Return a sentence for each piece of evidence that is missing for the verdict `valid`."""
    lacking = []
    if case.findings is None:
        lacking.append("the checks did not run to their end")
    if not case.partitions:
        lacking.append("the history names no partition")
    reported = case.metrics.get("partitions", {})
    for partition in case.partitions:
        if partition.deleted:
            continue
        # The load does not write to partitions that a fault added.
        if not partition.added and not reported.get(partition.name, {}).get("acked", 0):
            lacking.append(f"no write to {partition.name} was acknowledged")
        if not partition.described and partition.log_start > 0:
            begins = f"{partition.name} begins at {partition.log_start}"
            lacking.append(f"{begins}, and no broker reported its settings: what retention removed is not known")
        if partition.cover_t0 < 0:
            reached = f"the furthest came to {partition.cover_to}" if partition.cover_to >= 0 else "there was none"
            lacking.append(f"no final read of {partition.name} reached its end: {reached}")
    lacking += _uncommitted_only(case)
    lacking += _nothing_read(case)
    lacking += _mostly_refused(case)
    lacking += coverage_of_clients.missing_evidence(case)
    lacking += _not_shown(case)
    lacking += filter(None, map(fault_classes.not_landed, case.faults))
    if case.plan and len(case.faults) < case.plan.faults:
        planned, there = case.plan.faults, len(case.faults)
        lacking.append(
            f"{planned} fault{'s were' if planned != 1 else ' was'} planned, and nemesis.jsonl has {there or 'none'}"
        )
    return lacking


def removed_early(partitions: Iterable[ObservedPartition]) -> list[str]:
    """Return a sentence for each partition whose log begins at a higher offset than retention and requests can explain.
    """
    return [
        f"{each.name} begins at {each.log_start}, and retention and requests could have removed "
        + (f"what is below {each.judged_from} only" if each.judged_from else "nothing")
        for each in partitions
        if each.log_start > each.judged_from
    ]


def _uncommitted_only(case: VerdictInputs) -> list[str]:
    """Return a sentence for each partition that final reads at read_committed did not read to its end, so that its last
    committed records are not known. A partition is left out if a finding says that an anomaly held its readers back
    (`HOLDS_BACK`). The list is empty if the run had no final read at read_committed.
    """
    if not any(each.role == "final" and each.isolation == 1 for each in case.processes):
        return []  # `VerdictInputs.not_run` has the checks that need such a read
    held = {part for each in case.findings or () if each.anomaly in HOLDS_BACK for part, _ in each.parts}
    return [
        f"no final read of {each.name} at read_committed reached its end"
        for each in case.partitions
        if not each.deleted and each.committed_t0 < 0 and each.part not in held
    ]


def _nothing_read(case: VerdictInputs) -> list[str]:
    """Return a sentence for each partition that took writes but whose complete final reads returned no record, for
    example because retention removed all of them. Topics of the nemesis are left out, because they may keep their
    records only briefly.
    """
    reported, lacking = case.metrics.get("partitions", {}), []
    isolations = {each.isolation for each in case.processes if each.role == "final"}
    for partition in case.partitions:
        figures = reported.get(partition.name, {})
        acked = figures.get("acked", 0) + figures.get("acked_after_healing", 0)
        for isolation in sorted(isolations) if acked and not (partition.deleted or partition.added) else ():
            ended = partition.committed_t0 if isolation else partition.cover_t0
            name = ISOLATIONS[isolation]
            if ended >= 0 and figures.get("final_read_records", {}).get(name) == 0:
                took = f"{acked} writes to {partition.name} were acknowledged"
                lacking.append(f"{took}, and no final read at {name} got a record")
    return lacking


def _mostly_refused(case: VerdictInputs) -> Iterator[str]:
    """Yield a sentence for each kind of operation that the cluster mostly refused while no fault was on: such a run
    shows little of how the cluster treats operations that it accepts.

    Transactions that were asked to abort do not count. Commits of positions count only in runs without faults, because
    it is not recorded whether a fault was on when they ended.
    """
    sends = case.metrics.get("sends_without_faults", {})
    ids = case.metrics.get("transactional_ids", ())
    commits = {} if any(each.began >= 0 for each in case.faults) else case.metrics.get("outcomes", {}).get("commit", {})
    for name, refused, taken in (
        ("sends", sends.get("fail", 0), sends.get("ok", 0) + sends.get("info", 0)),
        ("transactions", sum(each["failed"] for each in ids), sum(each["committed"] for each in ids)),
        ("commits of positions", commits.get("fail", 0), commits.get("ok", 0) + commits.get("info", 0)),
    ):
        if refused > taken:
            yield f"{refused} of {refused + taken} {name} outside of faults were refused: all checks ran on little"


def _not_shown(case: VerdictInputs) -> list[str]:
    """Return a sentence for each reason why anomalies could not be judged. Only anomalies count that every run of the
    workload should be able to show (`WorkloadFacts.meant_for`).
    """
    names: dict[str, list[str]] = {}
    for name in case.workload.meant_for:
        if why := case.not_run.get(name) or case.ran_on_little.get(name):
            names.setdefault(why, []).append(name)
    return [f"{', '.join(each)} could not be judged: {why}" for why, each in names.items()]
