"""stuck-producer and stuck-consumer: nothing succeeds for longer after healing than the plan allows.

Three things show it. The gaps of the load that follows the last fault (no evidence: the measures show it). The write
to every partition after healing (`writes`) and final reads that get nothing (`final`), both from run.json: the load may
have ended before the outage did, so these look in every run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkers.anomalies.anomaly import FINAL, Anomaly, Check, Family, Need
from checkers.findings import Finding, Witness, findings_of
from checkers.history.tables import Partition
from checkers.metrics import HEALED_GAP, OVERALL, READER_GAP, Limits, Measure

FILE = "run.json"
PRODUCER, CONSUMER = "stuck-producer", "stuck-consumer"
WRITES = "writes"
"""Evidence: the write to every partition after healing."""
ANOMALIES = (
    Anomaly(
        PRODUCER,
        Family.LIVENESS,
        "no acknowledgement for longer than the plan allows, after healing",
        source="the plan's limit `stuck_s`",
        other="for how many ns",
        needs=(Need.SENDS,),
        meaning="partitions acknowledged nothing for too long after all faults had ended",
    ),
    Anomaly(
        CONSUMER,
        Family.LIVENESS,
        "a reader makes no progress for longer than the plan allows, after healing",
        source="the plan's limit `stuck_s`",
        other="for how many ns",
        needs=(Need.READS,),
        meaning="readers got nothing for too long after all faults had ended",
    ),
)
CHECK = Check(__name__, ANOMALIES)


def liveness(measures: Iterable[Measure], limits: Limits) -> list[Finding]:
    """stuck-producer and stuck-consumer: what took longer after healing than the plan allows."""
    findings = []
    for name, limit_s, anomaly in (
        (HEALED_GAP, limits.stuck_producer_s, PRODUCER),
        (READER_GAP, limits.stuck_consumer_s, CONSUMER),
    ):
        if limit_s is None:
            continue
        for measure in measures:
            if measure.name == name and measure.a != OVERALL and measure.numbers[0] > limit_s * 1e9:
                part, proc = (measure.a, -1) if name == HEALED_GAP else (measure.b, measure.a)
                witness = Witness(anomaly, "", part, -1, -1, -1, proc, int(measure.numbers[0]))
                findings.append(Finding(anomaly, "", proc, 1, (witness,)))
    return findings


@dataclass(frozen=True, slots=True)
class Afterwards:
    """What run.json shows of writes and reads after healing."""

    findings: Sequence[Finding] = ()
    notes: Sequence[str] = ()
    """Who was stuck, in words: who led, and what the ISR was."""
    passed_over: Sequence[str] = (PRODUCER, CONSUMER)
    """Anomalies that could not have shown: the run did not come so far, or the harness had trouble."""


def read(run_dir: Path, partitions: Iterable[Partition], limits: Limits) -> Afterwards:
    """What `run_dir`/run.json shows; nothing where it cannot be read."""
    try:
        return afterwards(json.loads((run_dir / FILE).read_text()), partitions, limits)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Afterwards()


def afterwards(info: Mapping[str, Any], partitions: Iterable[Partition], limits: Limits) -> Afterwards:
    """What run.json shows. KeyError, TypeError, ValueError, AttributeError for what it is not."""
    if info.get("trouble"):
        return Afterwards()
    parts = {partition.name: partition.part for partition in partitions}
    written, reads = info.get("writes_after_healing"), info.get("final_reads")
    converged = info.get("converged") or {"ok": False}
    limit_s = limits.stuck_consumer_s
    witnesses: list[Witness] = []
    notes: list[str] = []
    passed_over = []
    if written is None:
        passed_over.append(PRODUCER)
    else:
        for name, why in written["lacking"].items():
            took_ns = int(written["took_s"] * 1e9)
            witnesses.append(Witness(PRODUCER, WRITES, parts.get(name, -1), -1, -1, -1, -1, took_ns))
            notes.append(f"{name} took no write within {written['limit_s']:g} s after healing: {why}")
    # Where the cluster has not converged, that is the finding, and a read that waits for it is none of its own.
    if written is None or reads is None or not converged["ok"] or limit_s is None:
        passed_over.append(CONSUMER)
    else:
        for each in reads:
            idle_s = each.get("idle_s", 0.0)
            for name in each.get("waiting", ()) if idle_s >= limit_s else ():
                part, proc = parts.get(name, -1), each["process"]
                witnesses.append(Witness(CONSUMER, FINAL, part, -1, -1, -1, proc, int(idle_s * 1e9)))
                why = each["missing"][name]
                notes.append(f"a final read of {name} by process {proc} got nothing for {idle_s:.1f} s: {why}")
    return Afterwards(findings_of(witnesses), notes, passed_over)


def of_the_history(findings: Iterable[Finding]) -> list[Finding]:
    """Findings without those that `read` makes of run.json."""
    return [each for each in findings if each.anomaly not in (PRODUCER, CONSUMER) or not each.evidence]
