"""Holds what finders return: witnesses, and how many of each kind there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

SCHEMA = 2
"""Of findings.json."""
WITNESSES = 20
"""How many witnesses of one finding are kept. All of them are in the files of `anomalies/`."""


class Witness(NamedTuple):
    """One place where an anomaly shows. Fields that do not apply are -1."""

    anomaly: str
    evidence: str
    """What it takes to see it: see `squall.checkers.anomalies`."""
    part: int
    off: int
    val: int
    op: int
    proc: int
    """The process whose settings say whether it is permitted; -1 where it is nobody's in particular."""
    other: int
    """See `Anomaly.other` in `squall.checkers.anomalies`."""
    signs: int = 0
    """`squall.checkers.mechanisms.Sign`: what was seen that may explain it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """All witnesses of one anomaly, with one kind of evidence and the same signs, that are judged by the settings of
    one process.
    """

    anomaly: str
    evidence: str
    proc: int
    count: int
    witnesses: tuple[Witness, ...]
    """At most WITNESSES, by partition and offset: those that `kept` keeps."""
    parts: tuple[tuple[int, int], ...] = ()
    """(dense partition id, count), ascending; partition -1 stands for what belongs to none."""
    signs: int = 0
    """As those of its witnesses."""


def findings_of(witnesses: Iterable[Witness]) -> list[Finding]:
    """Group and count. The order of the input does not matter."""
    groups: dict[tuple[str, str, int, int], list[Witness]] = {}
    for witness in witnesses:
        groups.setdefault(_key(witness), []).append(witness)
    return [
        Finding(*key[:3], len(group), kept(group), _by_part(group), key[3]) for key, group in sorted(groups.items())
    ]


def kept(witnesses: Iterable[Witness]) -> tuple[Witness, ...]:
    """Choose at most WITNESSES that show each partition, and in it the first, the last and what lies between: in order
    of operations, because incidents that overlap in offsets follow each other in time.
    """
    by_part: dict[int, list[Witness]] = {}
    for witness in sorted(witnesses, key=lambda each: (each.op, each)):
        by_part.setdefault(witness.part, []).append(witness)
    places = places_kept({part: len(own) for part, own in by_part.items()})
    return tuple(sorted(by_part[part][place] for part, place in places))


def places_kept(counts: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return (partition, place) of each witness that is kept, ascending. `counts`: partition -> how many it has, whose
    places count from 0. The partitions take turns, those with most first, and in each the places are evenly spread.
    """
    most_first = sorted(counts, key=lambda part: (-counts[part], part))
    turns = (part for turn in range(WITNESSES) for part in most_first if turn < counts[part])
    shares = Counter(islice(turns, WITNESSES))
    return [
        (part, place * (counts[part] - 1) // max(share - 1, 1))
        for part, share in sorted(shares.items())
        for place in range(share)
    ]


def _by_part(witnesses: Iterable[Witness]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(Counter(each.part for each in witnesses).items()))


def _key(of: Witness) -> tuple[str, str, int, int]:
    return of.anomaly, of.evidence, of.proc, of.signs


def counted(counts: Iterable[tuple[str, str, int, int, int, int]], chosen: Iterable[Witness]) -> list[Finding]:
    """Return the findings of an engine that counted by itself: (anomaly, evidence, proc, signs, part, how many) once
    for each, and of each group the witnesses at `places_kept`. Equals `findings_of` of all witnesses.
    """
    parts: dict[tuple[str, str, int, int], list[tuple[int, int]]] = {}
    for anomaly, evidence, proc, signs, part, count in counts:
        parts.setdefault((anomaly, evidence, proc, signs), []).append((part, count))
    witnesses: dict[tuple[str, str, int, int], list[Witness]] = {}
    for witness in sorted(chosen):
        witnesses.setdefault(_key(witness), []).append(witness)
    return [
        Finding(*key[:3], sum(count for _, count in by_part), tuple(witnesses[key]), tuple(sorted(by_part)), key[3])
        for key, by_part in sorted(parts.items())
    ]


def to_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the findings as findings.json has them."""
    return [
        {
            "anomaly": finding.anomaly,
            "evidence": finding.evidence,
            "proc": finding.proc,
            "count": finding.count,
            "witnesses": [witness._asdict() for witness in finding.witnesses],
            "parts": [list(each) for each in finding.parts],
            "signs": finding.signs,
        }
        for finding in findings
    ]


def from_json(stored: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Decode what `to_json` made. Raises KeyError or TypeError for anything else."""
    return [
        Finding(
            **{
                **finding,
                "witnesses": tuple(Witness(**witness) for witness in finding["witnesses"]),
                "parts": tuple((part, count) for part, count in finding.get("parts", ())),
            }
        )
        for finding in stored
    ]
