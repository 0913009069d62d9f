"""Groups the witnesses of a finding by their cause."""

from __future__ import annotations

from dataclasses import dataclass

from squall.checkers.anomalies.anomaly import ACKS
from squall.checkers.anomalies.registry import LOSS
from squall.reports import checks, members
from squall.reports.lanes import leader_epochs
from squall.reports.members import ABOUT
from squall.reports.run_files import Json, RunFiles, integer
from squall.reports.samples import histories_of
from squall.reports.stories import StoryLine, causes_of, in_common, story, witness_text
from squall.reports.story_client import lines_of, witness_problem


@dataclass(frozen=True, slots=True)
class WitnessGroup:
    """Holds the witnesses of one check that have the same cause. `cause` is empty if neither traces nor history show
    it.

    If an offset was given to two records, the first record was lost. Then `cause` is the cause of that loss.
    """

    cause: str
    witnesses: list[tuple[str, list[StoryLine], Json]]
    """Lists (line, story, entry) for each witness, which is one place in the history at which the anomaly shows: the
    witness in a line of text, the events around it, and its entry in verdict.json.
    """


def groups_of(files: RunFiles, found: list[checks.CheckResult]) -> dict[str, list[WitnessGroup]]:
    """Map each check's key to its witnesses grouped by cause, the largest group first. So a truncation that lost many
    records is named once.
    """
    losses = [each for each in checks.checks_of(files) if each.name in LOSS and each.witnesses]
    told = _stories(files, [*found, *(each for each in losses if each not in found)])
    of_loss = {cause: each.name for each in losses for n in range(len(each.witnesses))
               for cause in causes_of(told[each.key, n][1])}  # fmt: skip
    groups: dict[str, list[WitnessGroup]] = {}
    for check in found:
        by_cause: dict[str, WitnessGroup] = {}
        for index, witness in enumerate(check.witnesses):
            line, lines = told[check.key, index]
            follows = _cause_of_loss(lines, of_loss) if check.evidence == ACKS else ""
            cause = follows or " ".join(causes_of(lines))
            by_cause.setdefault(cause, WitnessGroup(cause, [])).witnesses.append((line, lines, witness))
        groups[check.key] = sorted(by_cause.values(), key=lambda group: (not group.cause, -len(group.witnesses)))
    return groups


def _cause_of_loss(lines: list[StoryLine], of_loss: dict[str, str]) -> str:
    """Return those events of a witness's story (`lines`) that also caused a loss, such as "that of lost-write: 12.500
    s: ..."; empty if none did. `of_loss` maps each event that caused a loss to the anomaly, for example "lost-write";
    its keys are an event's time and text (`in_common`).
    """
    shared = [cause for line in lines if (cause := in_common(line)) in of_loss]
    return f"that of {of_loss[shared[0]]}: {' '.join(shared)}" if shared else ""


def _stories(files: RunFiles, found: list[checks.CheckResult]) -> dict[tuple[str, int], tuple[str, list[StoryLine]]]:
    """Map (check's key, witness's number) to the witness in a line of text and its story."""
    by_partition = leader_epochs(files)
    witnesses = [(check.key, n, w) for check in found for n, w in enumerate(check.witnesses)]
    rows = histories_of(files, (integer(w.get("val")) for _, _, w in witnesses))
    told = {}
    for key, n, witness in witnesses:
        name = str(witness.get("partition") or files.part_names.get(integer(witness.get("part")), ""))
        own = rows.get(integer(witness.get("val")), [])
        told[key, n] = witness_text(witness), story(files, witness, by_partition.get(name, []), own)
    acted = [check for check in found if check.name in ABOUT]
    of_members = {(check.key, n): witness_problem(check, w) for check in acted for n, w in enumerate(check.witnesses)}
    for (key, n), did in zip(of_members, members.lines_of(files, list(of_members.values())), strict=True):
        told[key, n] = told[key, n][0], did or told[key, n][1]
    blaming = [check for check in found if check.blames and check not in acted]
    clients = {(check.key, n): witness_problem(check, w) for check in blaming for n, w in enumerate(check.witnesses)}
    for (key, n), more in zip(clients, lines_of(files, list(clients.values())), strict=True):
        line, lines = told[key, n]
        told[key, n] = line, sorted([*lines, *more])
    return told
