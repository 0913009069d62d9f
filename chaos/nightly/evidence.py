"""Defines the evidence of a run that JUnit and Allure show. Readers of run directories fill it in. It does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

GOOD, BAD, UNSURE, SKIPPED = "passed", "failed", "broken", "skipped"
"""Are the statuses of a step, in Allure's words."""


@dataclass(frozen=True, slots=True)
class EvidenceStep:
    """Describes a step of a run: a phase, a fault or a check. Times are in seconds of the run, None if they are not
    known.
    """

    title: str
    status: str = GOOD
    began: float | None = None
    ended: float | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    """Holds further facts about the step, by name."""
    steps: tuple[EvidenceStep, ...] = ()


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """Holds what JUnit and Allure show of one run: phases, faults, checks and findings, and how to repeat the run."""

    steps: tuple[EvidenceStep, ...] = ()
    """Lists the phases, each with the faults that began in it, and then the checks."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Holds further facts by name: versions, counts, and a digest by which two simulations, or two histories, can be
    compared.
    """
    sentence: str = ""
    """Says the verdict and what it means."""
    lost: bool = False
    """Is True if an acknowledged record was lost, and that is not permitted."""
    stories: Mapping[str, str] = field(default_factory=dict)
    """Maps each finding to its story: what clients, brokers and the controller did around it, as text."""
    picture: str = ""
    """Holds the timeline as SVG; empty if there is none."""
    page: Path | None = None
    command: str = ""
    """Is the command that repeats the run."""
    origin_s: float | None = None
    """Is the time of the run's second 0, in seconds since 1970; None in virtual time."""
