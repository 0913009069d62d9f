"""Decides whether a reason of the guarantee matrix explains a finding: whether the reason applies to its partitions,
and whether its mechanism happened. Pure.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import NamedTuple

from squall.checkers import fault_classes, reasons
from squall.checkers.anomalies import commit_ahead
from squall.checkers.anomalies.registry import IN_HISTORY
from squall.checkers.findings import Finding
from squall.checkers.guarantees import PermissionCellName, PermittedAnomalies
from squall.checkers.mechanisms import AnomalyMechanism, MechanismSign
from squall.checkers.signs import RunCircumstances
from squall.checkers.verdict_inputs import VerdictInputs

FOUND_BY_HISTORY = frozenset(each.name for check in IN_HISTORY for each in check.anomalies)
"""Names the anomalies that finders see in the history; only their witnesses have signs (`MechanismSign`)."""


class PermissionContext(NamedTuple):
    """Holds facts about a run, such as which partitions had no transactions. They decide whether a reason in the
    guarantee matrix applies to a finding, and whether its mechanism happened. Partitions are given by their ids in the
    history.
    """

    plain: frozenset[int]
    """Holds the partitions to which no transaction wrote."""
    holed: frozenset[int] | None
    """Holds the partitions whose logs may lack a segment that later segments follow; None: any partition may."""
    circumstances: RunCircumstances
    nemesis_read: bool

    def signs_of(self, finding: Finding) -> MechanismSign:
        """Return the signs of what may explain a finding, such as a power loss (`MechanismSign`). If its anomaly is
        found outside of the history, for example in run.json, they are the signs that all partitions of the finding
        have in common.
        """
        if finding.anomaly in FOUND_BY_HISTORY:
            return MechanismSign(finding.signs)
        parts = [part for part, _ in finding.parts]
        found = [self.circumstances.signs(part, -1, -1, -1, failed=False) for part in parts]
        return reduce(and_, found, ~MechanismSign(0)) if found else self.circumstances.everywhere

    def why_unknown(self, mechanism: AnomalyMechanism, signs: MechanismSign) -> str:
        """Return in words why it is not known whether the mechanism happened; empty if it certainly did not. `signs` do
        not show the mechanism: at least one of its conditions is not met. The mechanism may still have happened in two
        cases: none of the conditions that are not met could be checked completely; or nemesis.jsonl could not be read.
        """
        whys = [self.circumstances.why_unknown(need, signs) for need in mechanism.needs if not need & signs]
        if all(whys):
            return "; ".join(dict.fromkeys(whys))
        return "" if self.nemesis_read else "what faults there were"


def permission_context_of(case: VerdictInputs) -> PermissionContext:
    """Return the facts about a run by which `explained` decides whether findings are permitted. The classes of all
    faults must be known.
    """
    plain = frozenset(each.part for each in case.partitions if not each.transactional)
    holes = fault_classes.logs_with_holes(case.faults) if case.nemesis_read else None
    holed = None if holes is None else frozenset(each.part for each in case.partitions if each.name in holes)
    return PermissionContext(plain, holed, case.circumstances, case.nemesis_read)


def explained(
    guarantee: PermittedAnomalies, finding: Finding, context: PermissionContext
) -> tuple[bool | None, str, PermissionCellName | None]:
    """Return (permitted, why, cell): whether the guarantee permits the finding, the reason in words, and the cell of
    the guarantee matrix or the promise that decides it. The first value is None if it is not known whether a mechanism
    happened.

    If several mechanisms explain the finding, the closest one to its witnesses gives the reason
    (`AnomalyMechanism.distance`).
    """
    ways = [
        (reasons.mechanism_of(reason), reason, cell)
        for reason, cell in guarantee.ways_of(finding.anomaly, finding.evidence)
        if not _does_not_apply(reason, finding, context)
    ]
    signs = context.signs_of(finding)
    if seen := [way for way in ways if way[0].explains(signs)]:
        _, reason, cell = min(seen, key=lambda way: way[0].distance(signs))
        return True, reason, cell
    lacking: dict[str, PermissionCellName] = {}
    unknown = None
    for mechanism, _, cell in ways:
        if why := context.why_unknown(mechanism, signs):
            unknown = unknown or (None, f"{cell.row} permits it where {mechanism.what}; not known: {why}", cell)
        lacking.setdefault(mechanism.what, cell)
    if unknown is not None:
        return unknown
    if not lacking:
        broken = guarantee.cell_of(finding.anomaly, finding.evidence)
        return False, f"not permitted: {broken.row if broken else guarantee.row}", broken
    only = ", or where ".join(lacking)
    cell = next(iter(lacking.values()))
    return False, f"not permitted: {cell.row} permits it only where {only}, and that did not happen", cell


def _does_not_apply(reason: str, finding: Finding, context: PermissionContext) -> bool:
    """Return whether a reason cannot apply to a finding. There are three such cases: a producer waits for a marker, but
    no transaction wrote to the partition; readers skip a lost segment, but the log lost no file; or records were lost,
    but the program itself committed a position beyond what it had processed.
    """
    if finding.evidence == commit_ahead.OWN_COMMIT:
        return reason in reasons.LOST_IN_GROUPS.values()
    parts = {each.part for each in finding.witnesses} | {part for part, _ in finding.parts}
    if reason == reasons.WAITS_FOR_A_MARKER:
        return parts <= context.plain
    return reason == reasons.SEGMENT_LOST and context.holed is not None and not parts <= context.holed
