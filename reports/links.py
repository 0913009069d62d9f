"""Links each story on the page with the witness that it is about, by the anchors of both. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from squall.reports.causes import WitnessGroup
from squall.reports.checks import CheckResult
from squall.reports.problems import StorySubject
from squall.reports.run_files import Json, integer
from squall.reports.stories import StoryLine, value_text


@dataclass(frozen=True, slots=True)
class LinkedWitness:
    """Describes a witness on the page. `story` is the anchor of the story that is about it, empty for none."""

    anchor: str
    line: str
    lines: Sequence[StoryLine]
    raw: Json
    story: str

    @property
    def cells(self) -> tuple[str, ...]:
        """Returns the witness's values for the columns `COLUMNS`, as text; empty for a value that the witness does not
        have.
        """
        numbers = {key: found for key in ("off", "val", "op", "proc") if (found := integer(self.raw.get(key))) >= 0}
        record = value_text(numbers["val"]) if "val" in numbers else ""
        return (str(self.raw.get("partition") or ""), str(numbers.get("off", "")), record,
                str(numbers.get("op", "")), str(numbers.get("proc", "")))  # fmt: skip


COLUMNS = ("partition", ">offset", "record", ">operation", ">process")
"""Lists the heads of the table of witnesses; a head that begins with ">" has a column of numbers."""


@dataclass(frozen=True, slots=True)
class LinkedWitnessGroup:
    """Holds the witnesses on the page that have one cause."""

    cause: str
    witnesses: tuple[LinkedWitness, ...]


def story_anchor(number: int) -> str:
    """Return the anchor of a story. The anchors of its moments (-mN) and of its sentences (-lN) begin with it."""
    return f"story-{number}"


def shown_groups(
    checks: Sequence[CheckResult], groups: Mapping[str, Sequence[WitnessGroup]], problems: Sequence[StorySubject]
) -> dict[str, list[LinkedWitnessGroup]]:
    """Map the key of each check to its groups of witnesses, in which each witness has an anchor and a link to its
    story. Item N of `problems` is the subject of the page's story N.
    """
    shown: dict[str, list[LinkedWitnessGroup]] = {}
    counts: Counter[str] = Counter()
    for check in checks:
        for group in groups.get(check.key, ()):
            own = []
            for line, lines, witness in group.witnesses:
                about = next((n for n, each in enumerate(problems) if is_about(each, check, witness)), None)
                anchor = f"witness-{re.sub(r'[^a-z0-9]+', '-', check.title.lower()).strip('-')}-{counts[check.title]}"
                own.append(LinkedWitness(anchor, line, lines, witness, "" if about is None else story_anchor(about)))
                counts[check.title] += 1
            shown.setdefault(check.key, []).append(LinkedWitnessGroup(group.cause, tuple(own)))
    return shown


def witness_of(shown: Mapping[str, Sequence[LinkedWitnessGroup]], number: int) -> LinkedWitness | None:
    """Return the witness that story `number` of the page is about, counted from 0; None if the story is about a broken
    invariant, which has no witness. `shown` is what `shown_groups` returns.
    """
    every = (each for groups in shown.values() for group in groups for each in group.witnesses)
    return next((each for each in every if each.story == story_anchor(number)), None)


def is_about(problem: StorySubject, check: CheckResult, witness: Json) -> bool:
    """Return whether the story of `problem` is about this witness of `check`. The witness must be the check's first one
    in its partition, and have the anomaly, partition and operation of `problem`.
    """
    place = str(witness.get("partition") or "")
    first = next(each for each in check.witnesses if str(each.get("partition") or "") == place)
    same = witness is first and check.name in (problem.name, problem.also)
    return same and (not place or place == problem.where) and integer(witness.get("op")) == problem.op
