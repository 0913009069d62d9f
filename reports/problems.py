"""Selects what a run's stories are about: broken invariants, anomalies that are not permitted, and permitted losses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from squall.checkers.anomalies.anomaly import AnomalyFamily
from squall.checkers.anomalies.registry import CATALOG, LOSS
from squall.reports.run_files import Json, RunFiles, integer, mapping, objects
from squall.reports.summary import partitions_of

METADATA = "__cluster_metadata"


class ReplicaOffsets(NamedTuple):
    """Holds the epoch, log end offset, high watermark and ISR of a replica at one moment."""

    node: int
    leads: bool
    epoch: int
    leo: int
    hw: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StorySubject:
    """Describes what one story explains: a broken invariant, or an anomaly in one partition. `values` and `offsets`
    identify the records that the finding names. `t` is when an invariant broke, in seconds since the load with faults
    began; None for an anomaly.
    """

    name: str
    text: str
    topic: str
    partition: int
    values: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    t: float | None = None
    node: int | None = None
    also: str = ""
    """Names an anomaly that the same records show; empty for none."""
    ops: tuple[int, ...] = ()
    """Lists the operations of the transactions that the finding names."""
    op: int = -1
    process: int = -1
    other: int = -1
    """Is a further number of the finding's first witness, whose meaning depends on the anomaly: for `duplicate`, it is
    the lowest offset at which the record was read. -1 if the anomaly has none (`AnomalyDefinition.other`).
    """
    evidence: str = ""
    """Is the kind of evidence that is needed to see the anomaly: "final" (the final reads alone), "reads" (also an
    earlier read) or "acks" (also an acknowledgement). Empty if the anomaly has no kinds.
    """
    permitted: bool = False
    blames: str = ""
    """Names the client that caused the finding, such as a program under test; empty if the cluster caused it."""
    records: tuple[tuple[int, str], ...] = ()
    """Lists (offset, content) of records of a coordinator's log that a broken invariant is about."""
    replicas: tuple[ReplicaOffsets, ...] = ()
    """Lists the partition's replicas at the moment when an invariant broke, as the simulator saw them."""

    @property
    def where(self) -> str:
        """Returns the name of the partition, such as "orders-3"."""
        return f"{self.topic}-{self.partition}"

    def records_in(self, start: int, end: int) -> str:
        """Return the offsets of `records` in [start, end) in words, such as "records 3 and 5"; empty for none."""
        found = [str(offset) for offset in sorted({offset for offset, _ in self.records}) if start <= offset < end]
        return f"record{'s'[: len(found) > 1]} {' and '.join(found)}" if found else ""


def problems_of(files: RunFiles) -> list[StorySubject]:
    """Return the subjects of a run's stories, the gravest first: broken invariants, anomalies that are not permitted,
    permitted losses.

    Each partition has one subject, its gravest anomaly; each transaction has one of its own. A broken invariant without
    a partition is about the metadata log. If an anomaly is in several partitions, only the partition with most of its
    witnesses comes early. The anomaly's other partitions come after one partition of every other anomaly.
    """
    shown = (each for each in _anomalies(files) if not each.permitted or each.name in LOSS)
    broken, anomalies = list(_broken(files)), sorted(shown, key=_gravity)
    kept: dict[tuple[object, ...], StorySubject] = {}
    for problem in broken:
        wrong = (each for each in anomalies if not each.permitted and each.where == problem.where)
        same = (each for each in wrong if not is_of_transactions(each.name))
        beside = next(same, None)
        if beside is not None:
            problem = replace(problem, values=beside.values, offsets=beside.offsets, also=beside.name)
        kept.setdefault((problem.where,), problem)
    for problem in anomalies:
        key = (problem.ops or problem.where,) if is_of_transactions(problem.name) else (problem.where,)
        first = kept.setdefault(key, problem)
        if first is not problem and problem.ops and not first.also:
            kept[key] = replace(first, also=problem.name)
    turns: Counter[str] = Counter()
    placed = []
    for place, problem in enumerate(kept.values()):
        placed.append((problem.permitted, turns[problem.name], place, problem))
        turns[problem.name] += 1
    return [problem for *_, problem in sorted(placed, key=lambda each: each[:3])]


def is_of_transactions(name: str) -> bool:
    """Return whether the anomaly's story follows a transaction through all its partitions, instead of one partition."""
    known = CATALOG.get(name)
    return known is not None and (known.family is AnomalyFamily.TRANSACTIONS or name == "lso-violation")


def _gravity(problem: StorySubject) -> tuple[bool, int]:
    """Return a sort key that puts causes before their consequences: first data, then transactions, groups, and readers.
    Permitted problems come last.
    """
    order = (AnomalyFamily.DATA, AnomalyFamily.TRANSACTIONS, AnomalyFamily.GROUPS, AnomalyFamily.READERS)
    known = CATALOG.get(problem.name)
    return problem.permitted, order.index(known.family) if known is not None and known.family in order else len(order)


_OTHER_VALUE = ("inconsistent-offset",)
_OTHER_OFFSET = ("duplicate", "wrong-offset", "poll-skip", "int-poll-skip", "lso-violation")
_WITHOUT_TXN = ("hanging-txn", "lso-violation")
"""Lists the anomalies of transactions whose witnesses name a last stable offset instead of a transaction."""
_OTHER_TXN = ("G1c",)


def problems_named(files: RunFiles, names: Collection[str], evidence: Collection[str] = ("",)) -> list[StorySubject]:
    """Return one subject for each of `names` that was found in the run, permitted or not. For an anomaly, it is the
    first witness in the partition that has most witnesses; for a broken invariant, it is the first violation. Anomalies
    count only if their kind of evidence is in `evidence` ("" for anomalies without kinds).
    """
    broken = [each for each in _broken(files) if each.name in names]
    found = [each for each in _anomalies(files) if each.name in names and each.evidence in evidence]
    # The first of each name, in the same order: of equal keys, a dict keeps the last value.
    return list({each.name: each for each in reversed([*broken, *found])}.values())[::-1]


def _anomalies(files: RunFiles) -> Iterable[StorySubject]:
    """Yield the first witness of each finding in each partition, the partitions with most witnesses of the finding
    first.
    """
    for entry in objects(files.verdict.get("anomalies")):
        counts, first = dict(partitions_of(entry)), dict[str, Json]()
        for witness in objects(entry.get("witnesses")):
            name = str(witness.get("partition") or files.part_names.get(integer(witness.get("part")), ""))
            first.setdefault(name, witness)
        for name, witness in sorted(first.items(), key=lambda each: -counts.get(each[0], 0)):
            topic, _, index = name.rpartition("-")
            if topic and index.isdigit():
                yield _problem(entry, witness, topic, int(index))


def _problem(entry: Json, witness: Json, topic: str, index: int) -> StorySubject:
    name, other = str(entry.get("name")), integer(witness.get("other"))
    values, offsets, ops = [integer(witness.get("val"))], [integer(witness.get("off"))], []
    if name in _OTHER_VALUE:
        values.append(other)
    elif name in _OTHER_OFFSET:
        offsets.append(other)
    if is_of_transactions(name) and name not in _WITHOUT_TXN:
        ops = [integer(witness.get("op")), *([other] if name in _OTHER_TXN else [])]
    return StorySubject(
        name,
        str(entry.get("definition") or ""),
        topic,
        index,
        tuple(v for v in values if v >= 0),
        tuple(dict.fromkeys(o for o in offsets if o >= 0)),
        ops=tuple(o for o in ops if o >= 0),
        op=integer(witness.get("op")),
        process=integer(witness.get("proc")),
        other=other,
        evidence=str(entry.get("evidence") or ""),
        permitted=entry.get("permitted") is True,
        blames=str(entry.get("blames") or ""),
    )


_SPAN = re.compile(r"\[(\d+), (\d+)\) of epoch")
"""Matches a batch in an invariant's message, by its offsets [begin, end) and its leader epoch."""
OFFSETS_AT_MOST = 4
"""Limits the offsets that are taken from a batch in an invariant's message: its first offsets represent the rest."""


def _broken(files: RunFiles) -> Iterable[StorySubject]:
    begin = load_begin(files)
    for line in files.violations:
        details = mapping(line.get("details"))
        topic, partition = line.get("topic"), integer(line.get("partition"), 0)
        offsets = [integer(details.get("offset"))]
        for span in _SPAN.finditer(f"{details.get('batch')} {line.get('message')}"):
            offsets += range(int(span[1]), min(int(span[2]), int(span[1]) + OFFSETS_AT_MOST))
        records = [(integer(each.get("offset")), str(each.get("says"))) for each in objects(details.get("records"))]
        seconds = files.simulated_seconds(line.get("t"))
        yield StorySubject(
            str(line.get("name")),
            str(line.get("message") or ""),
            str(topic) if topic else METADATA,
            partition,
            offsets=tuple(dict.fromkeys(o for o in offsets if o >= 0)),
            t=None if seconds is None else seconds - begin,
            node=line.get("node") if isinstance(line.get("node"), int) else None,
            records=tuple(each for each in records if each[0] >= 0),
            replicas=tuple(_replica_offsets(mapping(details.get("replicas")))),
        )


def _replica_offsets(replicas: Json) -> Iterable[ReplicaOffsets]:
    """Yield the state of each replica from the details of a broken invariant, in order of the broker ids."""
    for node in sorted((each for each in replicas if each.isdigit()), key=int):
        told = mapping(replicas[node])
        isr = tuple(sorted(each for each in told.get("isr") or () if isinstance(each, int)))
        epoch, leo, hw = (integer(told.get(name)) for name in ("leader_epoch", "leo", "hw"))
        yield ReplicaOffsets(int(node), told.get("leads") is True, epoch, leo, hw, isr)


def load_begin(files: RunFiles) -> float:
    """Return the time, in seconds on the page's axis, at which the load with faults began."""
    begin = files.phase("load with faults")[0]
    return begin if begin is not None else files.phase("load")[0] or 0.0
