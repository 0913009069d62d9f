"""Finds stuck-producer and stuck-consumer: after healing nothing succeeds for longer than the plan allows.

Four observations show it. The first is a measure: the longest time after the last fault in which the load's clients
tried and nothing succeeded. The other three are entries of run.json. The harness writes to every partition after
healing: a partition may not acknowledge that write (`writes`), and the workload's own readers may not get it (`live`).
The last entry has the final reads that got nothing for too long (`final`). The load may have ended before the outage
did, so the entries of run.json are checked in every run.

One producer or transactional id may be stuck while its partitions take other clients' writes, so each producer and each
transactional id is also measured by itself. If a fresh client, which the harness started after healing, was served
meanwhile, the evidence is `client`, and `squall.checkers.blame` decides whether the cluster or the workload's client is
blamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squall.checkers import run_facts
from squall.checkers.anomalies.anomaly import FINAL, AnomalyDefinition, AnomalyFamily, HistoryNeed
from squall.checkers.anomalies.check import AnomalyCheck
from squall.checkers.findings import Finding, Witness, findings_of
from squall.checkers.history.tables import ClientProcess, ObservedPartition
from squall.checkers.metrics import (
    CALM_GAP,
    CALM_READER_GAP,
    FRESH_GAP,
    HEALED_GAP,
    OVERALL,
    PRODUCER_GAP,
    READER_GAP,
    TRANSACTION_GAP,
    MeasurementRow,
    StuckLimits,
)

PRODUCER, CONSUMER = "stuck-producer", "stuck-consumer"
LOAD = "load"
"""Is the evidence that the workload's own producers got no acknowledgement after healing."""
WRITES = "writes"
"""Is the evidence that the write to every partition after healing got no acknowledgement."""
CLIENT = "client"
"""Is the evidence that the workload's own client got nothing while a fresh client, which the harness started after
healing, was served in the same partition.
"""
OF_PRODUCER, OF_ID = "producer", "transactional id"
"""Are the kinds of evidence that one producer or one transactional id of the workload was stuck while no partition was.
"""
OF_ONE = {PRODUCER_GAP: OF_PRODUCER, TRANSACTION_GAP: OF_ID}
LIVE = "live"
"""Is the evidence that the workload's own readers, which ran during the faults, did not poll the writes after healing.
"""
ANOMALIES = (
    AnomalyDefinition(
        PRODUCER,
        AnomalyFamily.LIVENESS,
        "no acknowledgement for a partition, a producer or a transactional id for longer than the plan allows, after "
        "healing or while no fault is on",
        source="the plan's limit `stuck_s`",
        other="for how many ns",
        needs=(HistoryNeed.SENDS,),
        meaning="partitions or producers had no acknowledgement for too long, and no fault was on",
        meaning_of_one="partition or producer had no acknowledgement for too long, and no fault was on",
        counts="partitions",
    ),
    AnomalyDefinition(
        CONSUMER,
        AnomalyFamily.LIVENESS,
        "a reader makes no progress for longer than the plan allows, after healing or while no fault is on",
        source="the plan's limit `stuck_s`",
        other="for how many ns",
        needs=(HistoryNeed.READS,),
        meaning="readers got nothing for too long, and no fault was on",
        meaning_of_one="reader got nothing for too long, and no fault was on",
        counts="processes",
    ),
)
CHECK = AnomalyCheck(__name__, ANOMALIES)
NOT_SO_FAR = "the run did not come so far"


def liveness(measures: Iterable[MeasurementRow], limits: StuckLimits) -> list[Finding]:
    """Return the findings stuck-producer and stuck-consumer: the gaps among these measures that are longer than the
    limits.

    A partition that acknowledges nothing also makes its producers wait; then the producers are no findings of their
    own.
    """
    taken = list(measures)
    fresh = {measure.a: measure.numbers for measure in taken if measure.name == FRESH_GAP}
    found: list[Witness] = []
    of_one: list[Witness] = []
    for measure in taken:
        if measure.name in (READER_GAP, CALM_READER_GAP):
            found += _longer(CONSUMER, "", measure.b, measure.a, measure.numbers[0], limits.stuck_consumer_s)
        elif measure.name == FRESH_GAP:
            found += _longer(PRODUCER, CLIENT, measure.a, -1, measure.numbers[0], limits.stuck_producer_s)
        elif measure.name == CALM_GAP and measure.a != OVERALL:
            found += _longer(PRODUCER, LOAD, measure.a, -1, measure.numbers[0], limits.stuck_producer_s)
        elif measure.name == HEALED_GAP and measure.a != OVERALL:
            length, begin = measure.numbers
            after, served = fresh.get(measure.a, (0, 0))
            if begin + length == served + after:
                length = served - begin  # a fresh write at `served` proves that the partition took writes then
            found += _longer(PRODUCER, LOAD, measure.a, -1, length, limits.stuck_producer_s)
        elif evidence := OF_ONE.get(measure.name):
            of_one += _longer(PRODUCER, evidence, -1, measure.a, measure.numbers[0], limits.stuck_producer_s)
    found += of_one if not any(each.anomaly == PRODUCER for each in found) else ()
    return [Finding(each.anomaly, each.evidence, each.proc, 1, (each,)) for each in found]


def _longer(name: str, evidence: str, part: int, proc: int, ns: float, limit_s: float | None) -> Iterable[Witness]:
    if limit_s is not None and ns > limit_s * 1e9:
        yield Witness(name, evidence, part, -1, -1, -1, proc, int(ns))


@dataclass(frozen=True, slots=True)
class ProgressAfterHealing:
    """Holds what run.json shows of writes and reads after healing."""

    findings: Sequence[Finding] = ()
    notes: Sequence[str] = ()
    """Says in words which partitions and readers were stuck, with their leader and ISR."""
    passed_over: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys((PRODUCER, CONSUMER), NOT_SO_FAR))
    """Maps the anomalies that were not looked for to the reason: the run ended before the harness wrote and read after
    healing, the plan has no limit, or the harness had trouble.
    """
    behind: Sequence[str] = ()
    """Names, in words, the workload's own readers that still got records when the time limit passed; it is not known
    whether they would have come to the end.
    """


def read(
    run_dir: Path, partitions: Iterable[ObservedPartition], limits: StuckLimits, processes: Iterable[ClientProcess] = ()
) -> ProgressAfterHealing:
    """Return what `run_dir`/run.json shows of progress after healing; an empty result if the file cannot be read."""
    info = run_facts.read(run_dir).info
    return progress_after_healing(info, partitions, limits, processes) if info else ProgressAfterHealing()


def progress_after_healing(
    info: Mapping[str, Any],
    partitions: Iterable[ObservedPartition],
    limits: StuckLimits,
    processes: Iterable[ClientProcess] = (),
) -> ProgressAfterHealing:
    """Return what run.json shows of progress after healing. `info` is the content of run.json. For a consumer group it
    has one entry for all members, under the id of the group's first process.
    """
    groups = {each.proc: f"group {each.settings['group']}" for each in processes if "group" in each.settings}
    if info.get("trouble"):
        return ProgressAfterHealing()
    parts = {partition.name: partition.part for partition in partitions}
    written, reads, live = (info.get(name) for name in ("writes_after_healing", "final_reads", "reads_after_healing"))
    witnesses: list[Witness] = []
    notes: list[str] = []
    behind: list[str] = []
    if written is not None:
        for name, why in written["lacking"].items():
            took_ns = int(written["took_s"] * 1e9)
            witnesses.append(Witness(PRODUCER, WRITES, parts.get(name, -1), -1, -1, -1, -1, took_ns))
            notes.append(f"{name} took no write within {written['limit_s']:g} s after healing: {why}")
    # If the cluster has not converged, that is the finding: reads that wait for it are no findings of their own.
    converged = written is not None and (info.get("converged") or {"ok": False})["ok"]
    if reading := converged and limits.stuck_consumer_s is not None:
        _of_live_readers(live or {"behind": ()}, parts, witnesses, notes, behind, groups)
        _of_final_readers(reads or (), limits.stuck_consumer_s or 0.0, parts, witnesses, notes)
    had_trouble = bool(info.get("harness"))
    passed_over = {}
    if had_trouble or written is None or limits.stuck_producer_s is None:
        passed_over[PRODUCER] = _why(had_trouble, limits.stuck_producer_s)
    if had_trouble or not reading or None in (written, reads, live):
        passed_over[CONSUMER] = _why(had_trouble, limits.stuck_consumer_s)
    return ProgressAfterHealing(findings_of(witnesses), notes, passed_over, tuple(behind))


def _why(had_trouble: bool, limit_s: float | None) -> str:
    if had_trouble:
        return "the harness had trouble"
    return "the plan has no limit stuck_s" if limit_s is None else NOT_SO_FAR


def _of_live_readers(
    live: Mapping[str, Any],
    parts: Mapping[str, int],
    witnesses: list[Witness],
    notes: list[str],
    behind: list[str],
    groups: Mapping[int, str],
) -> None:
    for each in live["behind"]:
        who = groups.get(each["process"], f"reader {each['process']}") + f" ({each['client']})"
        where = f"at {each['position']}" if each["position"] >= 0 else "never read"
        at = f"{each['place']} {where}, wanted {each['goal']}; {each['why']}"
        if each["idle_s"] < live["limit_s"]:
            behind.append(f"{who} was slow: {live['took_s']:g} s after the writes after healing it read {at}")
            continue
        part, idle_ns = parts.get(each["place"], -1), int(each["idle_s"] * 1e9)
        evidence = CLIENT if each.get("outlasted") else LIVE
        witnesses.append(Witness(CONSUMER, evidence, part, -1, -1, -1, each["process"], idle_ns))
        notes.append(f"{who} got nothing for {each['idle_s']:.1f} s after healing: {at}")


def _of_final_readers(
    reads: Sequence[Mapping[str, Any]],
    limit_s: float,
    parts: Mapping[str, int],
    witnesses: list[Witness],
    notes: list[str],
) -> None:
    for each in reads:
        idle_s = each.get("idle_s", 0.0)
        # A read that still got records was slow: it makes the run `unknown`.
        for name in each.get("waiting", ()) if idle_s >= limit_s else ():
            part, proc = parts.get(name, -1), each["process"]
            witnesses.append(Witness(CONSUMER, FINAL, part, -1, -1, -1, proc, int(idle_s * 1e9)))
            why = each["missing"][name]
            notes.append(f"a final read of {name} by process {proc} got nothing for {idle_s:.1f} s: {why}")
