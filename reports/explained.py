"""Explains one finding of a run in plain text: what it means, why it is judged so, what caused it, and its story."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from squall.reports import checks
from squall.reports.causes import WitnessGroup, groups_of
from squall.reports.links import is_about
from squall.reports.problems import problems_named
from squall.reports.run_files import RunFiles, read_run
from squall.reports.story_index import RenderedStory, rendered_stories_about

NAMES_OF_ONE = 3
"""Limits how many witnesses of one cause are printed in a line each. Only the first one has its story printed."""


class FindingNotFound(Exception):
    """Says that the run has no such finding, and lists the findings that it has."""


def explained(run_dir: Path, name: str, width: int = 100, here: Callable[[str], str] | None = None) -> str:
    """Return the explanation of the finding `name`, an anomaly or an invariant of the simulator. Raise FindingNotFound
    if the run has no such finding.

    If `here` is given, the last line is the command that repeats the run. `here` rewrites this command for the user's
    current folder, for example with relative paths.
    """
    files = read_run(run_dir)
    every = checks.checks_of(files)
    found = found_as(every, name)
    if not found:
        raise FindingNotFound(_instead(files, every, name))
    groups = groups_of(files, found)
    lines = [line for check in found for line in _of(check, groups[check.key])]
    told = stories_of(files, found)
    for telling in told:
        answers = (f"{answer.question}: {answer.text}".replace("\n", "\n    ") for answer in telling.answers)
        lines += ["", _about(telling, found, groups), "", *(f"  {answer}" for answer in answers)]
        lines += ["", telling.text]
    if not told:
        lines += ["", *_why_no_story(files)]
    lines += ["", f"Pictures, and every witness: {run_dir / 'report.html'}"]
    wrapped = [part for line in lines for part in _wrapped(line, width)]
    wrapped += [f"repeat: {here(files.command)}"] if here and files.command else []
    return "\n".join(wrapped) + "\n"


def found_as(every: Iterable[checks.CheckResult], name: str) -> list[checks.CheckResult]:
    """Return the checks of this name that found something, or all checks that found something if the name is empty."""
    names = ((each, (each.name, each.title, each.name.partition(" ")[2])) for each in every if each.count)
    return [each for each, own in names if not name or name in own]


def stories_of(files: RunFiles, found: Sequence[checks.CheckResult]) -> list[RenderedStory]:
    """Return the detailed stories of what these checks found: as text, which process wrote what, which broker led, and
    what was truncated.
    """
    names = {name for each in found for name in (each.name, each.name.partition(" ")[2])}
    return rendered_stories_about(files, problems_named(files, names, {each.evidence for each in found}))


def findings_of(run_dir: Path) -> list[str]:
    """Return the names of the findings, as `explained` takes them, the gravest first."""
    return [each.title for each in checks.checks_of(read_run(run_dir)) if each.count]


def listing(run_dir: Path, width: int = 100) -> str:
    """List the findings that can be explained."""
    files = read_run(run_dir)
    found = [each for each in checks.checks_of(files) if each.count]
    reasons = checks.reasons_of(files)
    lines = [f"{checks.banner_of(files)}  {files.name}: {checks.sentence(files)}"]
    if checks.word_of(files) == checks.UNKNOWN and len(reasons) > 1:  # of which the sentence tells the number only
        lines += [f"  - {each}" for each in reasons]
    lines += [f"  {each.title}: {each.count}, {each.state}" for each in found] or ["There is no finding to explain."]
    return "\n".join(part for line in lines for part in _wrapped(line, width)) + "\n"


def _of(check: checks.CheckResult, groups: Sequence[WitnessGroup]) -> Iterator[str]:
    yield f"{check.title}: {check.count} found, {check.state}"
    yield f"  What it is: {_sentence(check.definition)}"
    if check.why:
        yield f"  Why it has this verdict: {_sentence(check.why)}"
    if check.cell:
        yield f"  By which rule: {check.cell[0].lower()}{check.cell[1:]}."
    yield from (f"  {moment}" for moment in check.moments)
    if check.witnesses and (check.count or 0) > len(check.witnesses):
        yield f"  Looked at {len(check.witnesses)} of {check.count:,}. {check.unseen}".rstrip()
    for number, group in enumerate(groups, 1):
        yield ""
        many = len(group.witnesses)
        cause = group.cause or "the brokers' traces show none"
        yield f"  Cause {number}, of {many} witness{'es' if many > 1 else ''}: {cause}"
        yield from (f"    {line}" for line, _, _ in group.witnesses[:NAMES_OF_ONE])
        if many > NAMES_OF_ONE:
            yield f"    and {many - NAMES_OF_ONE} more"
        yield "  The story of the first witness:"
        yield from (f"    {line.t:9.3f} s  {line.text}" for line in group.witnesses[0][1])
        if not group.witnesses[0][1]:
            yield "    Neither the history nor the brokers' traces say what happened when."


def _about(
    telling: RenderedStory, found: Sequence[checks.CheckResult], groups: Mapping[str, Sequence[WitnessGroup]]
) -> str:
    """Return the heading of the detailed story `telling`: the check, the number of the cause in the check's list of
    causes, and the witness in a line of text. `groups` maps each check's key to its groups of witnesses, one group
    for each cause. If the story is about none of these witnesses, the heading has the story's own title.
    """
    for check in found:
        for number, group in enumerate(groups[check.key], 1):
            for line, _, witness in group.witnesses:
                if is_about(telling.problem, check, witness):
                    return f"  In detail, {check.title}, cause {number}: {line}"
    return f"  In detail, {telling.title}"


def _why_no_story(files: RunFiles) -> Iterator[str]:
    """Say why the findings have no detailed story: brokers' traces are missing, or verdict.json names no witness."""
    if files.foreign and not files.traces:
        yield (
            f"There is no story of the brokers: {files.foreign} writes no traces, and the run directory has no logs of "
            "brokers (nodes/N/broker.log)."
        )
    elif not any(files.traces.values()):
        yield "There is no story of the brokers: the run directory has no brokers' traces (nodes/N/trace.jsonl)."
    else:
        yield "There is no detailed story: verdict.json names no witness of a partition, or the history lacks it."


def _sentence(text: str) -> str:
    """Return the text with a full stop at its end."""
    return text if text.endswith((".", ".)")) else f"{text}."


def _instead(files: RunFiles, every: Iterable[checks.CheckResult], name: str) -> str:
    there = [each.title for each in every if each.count]
    ran = next((each for each in every if each.name == name and each.count is not None), None)
    why = "was looked for and not found" if ran is not None else "is no finding of this run"
    return f"{name} {why}; found: {', '.join(there) or 'nothing'} ({checks.word_of(files)})"


def _wrapped(line: str, width: int) -> list[str]:
    """Wrap a line to `width` with the indentation of its beginning; a text of several lines stays as it is."""
    if "\n" in line or len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
