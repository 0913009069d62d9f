"""Defines the results of finders: witnesses, and findings that count the witnesses of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

SCHEMA = 2
"""Is the schema version of findings.json."""
WITNESSES = 20
"""Is the number of witnesses that a finding keeps at most. The files in `anomalies/` have all of them."""


class Witness(NamedTuple):
    """Describes one place in a history at which an anomaly shows. Fields that do not apply are -1."""

    anomaly: str
    evidence: str
    """Names the kind of evidence that is needed to see the anomaly, such as "acks" if an acknowledgement is needed;
    empty if the evidence is of no special kind.
    """
    part: int
    off: int
    val: int
    op: int
    proc: int
    """Is the client process of the history whose settings decide whether the anomaly is permitted; -1 if no single
    process does.
    """
    other: int
    """Is a further number whose meaning depends on the anomaly: see `AnomalyDefinition.other`."""
    signs: int = 0
    """Holds the bits of `squall.checkers.mechanisms.MechanismSign`: what was seen that may explain the witness, such as
    POWER_LOST.
    """


@dataclass(frozen=True, slots=True)
class Finding:
    """Counts the witnesses of one anomaly that have the same evidence and signs, and that are judged by the settings of
    the same process.
    """

    anomaly: str
    evidence: str
    proc: int
    count: int
    witnesses: tuple[Witness, ...]
    """Holds at most WITNESSES of the witnesses, as `kept` chooses them; ordered by partition and offset."""
    parts: tuple[tuple[int, int], ...] = ()
    """Holds (partition id in the history, number of witnesses), ascending; the id -1 counts witnesses that belong to no
    partition.
    """
    signs: int = 0
    """Holds the bits of `MechanismSign` that all its witnesses have: what was seen that may explain them, such as
    POWER_LOST.
    """


def findings_of(witnesses: Iterable[Witness]) -> list[Finding]:
    """Group witnesses into findings and count them. The order of the input does not matter."""
    groups: dict[tuple[str, str, int, int], list[Witness]] = {}
    for witness in witnesses:
        groups.setdefault(_key(witness), []).append(witness)
    return [
        Finding(*key[:3], len(group), kept(group), _by_part(group), key[3]) for key, group in sorted(groups.items())
    ]


def kept(witnesses: Iterable[Witness]) -> tuple[Witness, ...]:
    """Choose at most WITNESSES witnesses, shared out evenly among the partitions (`places_kept`). The witnesses of a
    partition are put in the order of their operations; the first, the last and some between are chosen. They are not
    put in the order of offsets, because two failures at different times may affect the same offsets, and witnesses of
    both should be chosen.
    """
    by_part: dict[int, list[Witness]] = {}
    for witness in sorted(witnesses, key=lambda each: (each.op, each)):
        by_part.setdefault(witness.part, []).append(witness)
    places = places_kept({part: len(own) for part, own in by_part.items()})
    return tuple(sorted(by_part[part][place] for part, place in places))


def places_kept(counts: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return (partition, index) of each witness that is kept, ascending. `counts` maps each partition to its number of
    witnesses, whose indexes begin at 0. The partitions take turns, those with most witnesses first, and in each the
    indexes are evenly spread.
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
    """Return the findings of an engine that counts witnesses by itself, such as Spark. A row (anomaly, evidence, proc,
    signs, part, count) of `counts` says how many witnesses have these five values; no two rows have the same five.
    `chosen` has the witnesses at `places_kept`. The result equals `findings_of` of all witnesses.
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
    """Return the findings in the form of findings.json."""
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
    """Decode the findings that `to_json` encoded. Raises KeyError or TypeError for any other input."""
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
