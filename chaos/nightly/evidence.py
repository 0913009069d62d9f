"""Holds what a run directory shows of a run, for JUnit and Allure. Readers of run directories fill it in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

GOOD, BAD, UNSURE, SKIPPED = "passed", "failed", "broken", "skipped"
"""How a step ended, in Allure's words."""


@dataclass(frozen=True, slots=True)
class EvidenceStep:
    """Something that happened in a run. Times in seconds of the run, None where they are not known."""

    title: str
    status: str = GOOD
    began: float | None = None
    ended: float | None = None
    told: Mapping[str, str] = field(default_factory=dict)
    """What else is known of it, by name."""
    steps: tuple[EvidenceStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Holds the evidence of one run."""

    steps: tuple[EvidenceStep, ...] = ()
    """Phases, with the faults that began in them; then the checks."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Versions, digest, counts."""
    sentence: str = ""
    """The verdict and what it means."""
    lost: bool = False
    """Whether a record that was acknowledged is lost, and that is not permitted."""
    stories: Mapping[str, str] = field(default_factory=dict)
    """Finding -> its story, as text."""
    picture: str = ""
    """The timeline as SVG; empty where there is none."""
    page: Path | None = None
    command: str = ""
    """What repeats the run."""
    origin_s: float | None = None
    """When second 0 was, in seconds since 1970; None in virtual time."""
