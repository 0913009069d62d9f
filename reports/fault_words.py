"""Describes faults in plain words: what was planned, which targets it hit, and what proves that it landed. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

from squall.reports.run_files import Json, RunFiles, integer, mapping, number, objects

LONGEST_LABEL = 36
"""Limits the letters of a fault's label in the figure, without the targets."""


@dataclass(frozen=True, slots=True)
class FaultRow:
    """Describes one fault for people. `state` is landed, not landed or unfinished; times are in seconds on the page's
    time axis.
    """

    id: int
    what: str
    asked: str
    hit: str
    began: float | None
    length: float | None
    planned_s: float | None
    state: str
    evidence: str
    recovery_s: float | None
    slowest: str
    gap_s: float | None
    no_recovery: bool

    @property
    def label(self) -> str:
        """Returns the fault's label for the figure, without long parameters, which are in the table of faults."""
        what = self.what if len(self.what) <= LONGEST_LABEL else self.what.partition(" (")[0]
        return f"{what} → {self.hit}" if self.hit else what


def fault_rows(files: RunFiles) -> list[FaultRow]:
    """Return all faults of nemesis.jsonl, by id."""
    measured = {integer(each.get("id")): each for each in objects(files.metrics.get("faults"))}
    return [_row(files, fault, mapping(measured.get(fault["id"])), fault["id"] in measured) for fault in files.faults]


def _row(files: RunFiles, fault: Json, measured: Json, is_measured: bool) -> FaultRow:
    target = mapping(fault.get("target"))
    began, ended = files.seconds(fault.get("began")), files.seconds(fault.get("ended"))
    if fault.get("evidence") and not fault.get("error"):
        state = "landed"
    else:
        state = "unfinished" if fault.get("ended") is None else "not landed"
    return FaultRow(
        id=fault["id"],
        what=_what(fault),
        asked=str(target.get("asked", "")),
        hit=whom(target.get("resolved")) or _client(mapping(fault.get("evidence") or fault.get("seen"))),
        began=began,
        length=ended - began if began is not None and ended is not None else None,
        planned_s=number(mapping(fault.get("planned")).get("duration_s")),
        state=state,
        evidence=evidence_text(fault),
        recovery_s=number(measured.get("recovery_s")),
        slowest=str(measured.get("slowest_partition") or ""),
        gap_s=number(measured.get("longest_gap_s")),
        no_recovery=is_measured and measured.get("recovery_s") is None and bool(measured.get("slowest_partition")),
    )


def fault_of(files: RunFiles, process: int, t: int) -> str:
    """Name the fault that hit this client process at `t`, in ns of the history; empty if none did."""
    for fault in files.faults:
        seen, began, ended = mapping(fault.get("evidence") or fault.get("seen")), fault.get("began"), fault.get("ended")
        hit = process in (seen.get("process"), seen.get("first"))
        if hit and began is not None and began <= t and (ended is None or t <= ended):
            return f"fault {fault['id']}, {fault.get('action')}"
    return ""


def whom(resolved: object) -> str:
    """Return in words what a target resolved to: broker ids, a client zone (clients that share links to the brokers),
    or one link. Empty for other targets.
    """
    hit = resolved if isinstance(resolved, list) else []
    brokers = [str(each) for each in hit if isinstance(each, int)]
    texts = [each for each in hit if isinstance(each, str)]
    zones = [f"link {each.replace('->', '→')}" if "->" in each else f"zone {each}" for each in texts]
    named = [f"broker{'s' if len(brokers) > 1 else ''} {', '.join(brokers)}"] if brokers else []
    return ", ".join((*named, *zones))


def _client(seen: Json) -> str:
    """Return the name of the client that a fault hit, with its process number; empty if the fault hit brokers. `seen`
    holds what was measured of the fault.
    """
    process = next((seen[name] for name in ("process", "first") if isinstance(seen.get(name), int)), None)
    return f"{seen['client']}{'' if process is None else f' (process {process})'}" if seen.get("client") else ""


def _what(fault: Json) -> str:
    """Describe a fault with its parameters: in the words that the nemesis wrote to nemesis.jsonl, or from the
    parameters if it wrote none.
    """
    if words := mapping(fault.get("words")).get("fault"):
        return str(words)
    rest = ", ".join(f"{key} {_plain(value)}" for key, value in mapping(fault.get("params")).items())
    return f"{fault.get('action')} ({rest})" if rest else str(fault.get("action"))


def _plain(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def evidence_text(fault: Json) -> str:
    """Return what was measured while the fault was on, in a sentence or two. If that does not prove that the fault took
    effect, the text begins with the reason.

    The sentences are those that the nemesis wrote to nemesis.jsonl. Lines of schema 1 have no such sentences: then the
    text is the evidence as JSON.
    """
    words, seen = mapping(fault.get("words")).get("evidence"), mapping(fault.get("evidence") or fault.get("seen"))
    told = str(words or "") if "words" in fault else json.dumps(seen, sort_keys=True) if seen else ""
    if fault.get("evidence") and not fault.get("error"):
        return told
    if fault.get("asked") is None:
        missing = "It was never asked for: the run ended before."
    elif fault.get("ended") is None:
        missing = "It has no end: the run stopped while it was on."
    else:
        missing = f"No proof: {fault.get('error') or 'nothing was measured'}."
    return f"{missing} {told}".strip()
