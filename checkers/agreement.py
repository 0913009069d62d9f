"""Compares the counts, partitions, phases and faults that several files of a run directory report. Pure.

run.json says what was recorded (`history`), what the phases after healing did, and how many faults landed. The plan has
the topics' settings, nemesis.jsonl has the faults that may have added partitions, and the history has all of this once
more. So an edit of one file shows, unless the others are edited alike. Each disagreement makes the verdict `unknown`.
Runs of early versions lack some of these files' fields, and histories that were cut lack their end: what is missing is
not compared.

`nemesis_agreement` compares the lines of nemesis.jsonl with the plan, and `history.seal` compares the files with their
digests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from squall.checkers import fault_classes, nemesis_log
from squall.checkers.history import seal
from squall.checkers.history.tables import PRODUCER, ClientProcess, HistoryProblem, ObservedPartition, RecordedFault
from squall.checkers.history.values import AFTER_HEALING
from squall.checkers.metrics import ISOLATIONS
from squall.checkers.plan_facts import PlanFacts

ADDING = ("churn", "partitions")
"""Lists the values of the fault parameter `how` with which a fault adds partitions while the load runs."""
DECLARED = ("topic", "index", "added")
"""Lists the fields of a partition that both run.json and the history have."""
ALTERING = "topics"
"""Names the fault that alters settings of topics while the load runs."""
CHANGED = f"{seal.FILE} is not what was recorded"


class RecordedHistory(Protocol):
    """Describes the part of a history that is compared with run.json."""

    @property
    def outcomes(self) -> Mapping[str, Mapping[str, int]]:
        """Return, for each operation, how often it had each outcome, such as {"send": {"ok": 7, "fail": 1}}."""

    @property
    def declared(self) -> int:
        """Return the CRC-32 of the history's lines that declare partitions and topic settings."""

    @property
    def partitions(self) -> Sequence[ObservedPartition]:
        """Return the partitions that the history declares."""

    @property
    def processes(self) -> Sequence[ClientProcess]:
        """Return the client processes of the history."""

    @property
    def problem(self) -> HistoryProblem | None:
        """Return why reading the history stopped early; None if it did not."""


def edited(history: RecordedHistory, info: Mapping[str, Any]) -> list[str]:
    """Return how a history differs from the counts in run.json, a sentence for each difference: an edited history
    proves nothing. `info` is the content of run.json. The list is empty if the history was not read to its end.
    """
    reported = info.get("history")
    if reported is None or history.problem is not None:
        return []
    return [*_other_counts(history, reported), *_other_partitions(history, reported)]


def disagreements(
    history: RecordedHistory,
    info: Mapping[str, Any],
    plan: PlanFacts | None,
    faults: Sequence[RecordedFault],
    metrics: Mapping[str, Any],
) -> list[str]:
    """Return a sentence for each contradiction between the history, run.json (`info`), metrics.json (`metrics`), the
    plan and the faults. Contradictions that `edited` finds are left out. If `plan` is None, nothing is compared with
    the plan.
    """
    found = [*_landings(info, faults)]
    if history.problem is None:
        found += [*_not_as_planned(history.partitions, plan, faults), *_phases(history, info, metrics)]
    return found


def _other_counts(history: RecordedHistory, reported: Mapping[str, Any]) -> Iterator[str]:
    for f in sorted({*reported["outcomes"], *history.outcomes}):
        for st in ("ok", "fail", "info"):
            here, there = (each.get(f, {}).get(st, 0) for each in (history.outcomes, reported["outcomes"]))
            if here != there:
                yield f"{CHANGED}: it has {here} operations {f!r} that ended {st}, and {seal.RUN} counts {there}"
    if len(history.processes) != reported["processes"]:
        yield f"{CHANGED}: it has {len(history.processes)} processes, and {seal.RUN} counts {reported['processes']}"


def _other_partitions(history: RecordedHistory, reported: Mapping[str, Any]) -> Iterator[str]:
    partitions, lines = history.partitions, reported["partitions"]
    if len(partitions) != len(lines):
        yield f"{CHANGED}: it has {len(partitions)} partitions, and {seal.RUN} {len(lines)}"
        return
    for partition, line in zip(partitions, lines, strict=True):
        for name in DECLARED:
            here, there = getattr(partition, name), line.get(name, False if name == "added" else None)
            if here != there:
                yield f"{CHANGED}: {name} of {partition.name} is {here!r} in it, and {there!r} in {seal.RUN}"
    if history.declared != reported["declared"]:
        yield f"{CHANGED}: the settings of topics and partitions in it are not those of {seal.RUN}"


def _not_as_planned(
    partitions: Sequence[ObservedPartition], plan: PlanFacts | None, faults: Sequence[RecordedFault]
) -> Iterator[str]:
    """Yield how partitions differ from the plan: in their topic's settings, or because a partition was added though no
    fault adds any.
    """
    # Requested is enough: without a response partitions may have been added, too.
    adds = any(each.asked >= 0 and each.params.get("how") in ADDING for each in faults)
    for each in partitions:
        if plan is not None and plan.cleanup and each.cleanup != plan.cleanup:
            yield f"{seal.FILE}: cleanup of {each.name} is {each.cleanup!r}, and {plan.cleanup!r} by {seal.PLAN}"
        for name, here, there in () if plan is None else _other_settings(each, plan, faults):
            yield f"{seal.FILE}: brokers said that {name} of {each.name} is {here}, and {seal.PLAN} has {there}"
        if each.added and not adds:
            yield f"{seal.FILE}: {each.name} came while the load ran, and {nemesis_log.FILE} has 0 faults that add one"


def _other_settings(
    each: ObservedPartition, plan: PlanFacts, faults: Sequence[RecordedFault]
) -> Iterator[tuple[str, str, str]]:
    """Yield (name, value that brokers reported, planned value) of each topic setting that differs from the plan.
    Nothing is yielded if a fault alters topics.
    """
    if each.min_isr < 0 or each.added or any(fault.action == ALTERING for fault in faults):
        return
    reported = {
        "retention.ms": str(each.retention_ms),
        "retention.bytes": str(each.retention_bytes),
        "min.insync.replicas": str(each.min_isr),
        "unclean.leader.election.enable": ("false", "true")[each.unclean == 1],
    }
    yield from ((name, here, plan.topic[name]) for name, here in reported.items() if plan.topic.get(name, here) != here)


def _phases(history: RecordedHistory, info: Mapping[str, Any], metrics: Mapping[str, Any]) -> Iterator[str]:
    processes = {each.proc: each for each in history.processes}
    written = info.get("writes_after_healing")
    if written is not None and written["ok"]:
        yield from _unwritten(history, metrics, named="history" in info)
    waited = (info.get("reads_after_healing") or {}).get("readers", 0)
    # The harness waits for a group as one reader; a pipeline's members have the role of producers.
    reading = sum(each.role == "reader" or "group" in each.settings for each in history.processes)
    if type(waited) is int and reading < waited:
        yield f"{seal.RUN}: reads_after_healing waited for {waited} readers, and {seal.FILE} has {reading}"
    reported = [each for each in info.get("final_reads") or () if "process" in each]
    there = [each for each in reported if _is_final(processes.get(each["process"]), each)]
    if len(there) < len(reported):
        yield f"{seal.RUN} names {len(reported)} final reads, and {seal.FILE} has {len(there)} of them"
    yield from _final_records(reported, metrics)


def _unwritten(history: RecordedHistory, metrics: Mapping[str, Any], *, named: bool) -> Iterator[str]:
    """Yield a sentence for each partition that took no write after healing, although run.json says that all partitions
    took one. `metrics` is the content of metrics.json.

    `named` is False for runs of early versions. Their histories may not mark the producers that wrote after healing;
    then nothing is compared. These producers did not write to partitions that faults had added, so such partitions are
    left out.
    """
    said = f"{seal.RUN}: writes_after_healing says that every partition took a write, and {seal.FILE} has "
    if not any(AFTER_HEALING in each.settings for each in history.processes if each.role == PRODUCER):
        if named:
            yield f"{said}0 processes that wrote after healing"
        return
    figures = metrics.get("partitions", {})
    for each in history.partitions:
        took = figures.get(each.name, {}).get("acked_after_healing")
        if took == 0 and not each.deleted and (named or not each.added):
            yield f"{said}0 of them to {each.name}"


def _is_final(process: ClientProcess | None, reported: Mapping[str, Any]) -> bool:
    if process is None or process.role != "final":
        return False
    return (process.round, process.isolation) == (
        reported.get("round", process.round),
        reported.get("isolation", process.isolation),
    )


def _final_records(reported: Sequence[Mapping[str, Any]], metrics: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each isolation level at which run.json and the history disagree on the number of records
    that final reads returned. A level without a final read counts as 0 records.
    """
    figures = metrics.get("partitions")
    if not figures or not all(type(each.get("records")) is int for each in reported):
        return
    for isolation, name in enumerate(ISOLATIONS):
        there = sum(each["records"] for each in reported if each.get("isolation") == isolation)
        here = sum(each.get("final_read_records", {}).get(name, 0) for each in figures.values())
        if reported and here != there:
            yield f"{seal.RUN}: final reads at {name} returned {there} records, and {seal.FILE} has {here}"


def _landings(info: Mapping[str, Any], faults: Sequence[RecordedFault]) -> Iterator[str]:
    """Yield a sentence if run.json says that faults did not land, although nemesis.jsonl says that all did."""
    reported = info.get("faults")
    if reported is None or reported["landed"] >= reported["planned"] or any(map(fault_classes.not_landed, faults)):
        return
    said = f"of {reported['planned']} planned faults {reported['landed']} landed"
    yield f"{seal.RUN}: {said}, and {nemesis_log.FILE} says that all did"
