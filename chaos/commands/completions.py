"""Completes half-typed words in a shell: kinds of faults, mutants, workloads, plans, runs and findings.

The shell calls a completer at each press of the completion key. So no completer starts a process, and a completer that
cannot read its source offers nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from squall.chaos.runs.directory import LATEST, RUNS

PLANS = ("plans/*.toml", f"{RUNS}/*/plan.toml")
"""Lists the patterns, relative to the current folder, of the plan files that a completion offers."""
NEWEST = 20
"""Limits the number of runs that are offered, because there may be thousands."""


def fault_kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the kinds of faults that the command's runtime supports, for a list with commas."""
    from squall.chaos.faults.kinds import KINDS

    world = "sim" if ctx.info_name == "sim" else str(ctx.params.get("runtime") or "process")
    titles = {name: kind.title for name, kind in KINDS.items() if world in kind.worlds}
    return _listed(incomplete, {**titles, "none": "no faults"})


def mutants(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the names of all mutants."""
    from squall.chaos.mutants import MUTANTS

    return _offered(incomplete, {each.name: f"mutant {each.id}" for each in MUTANTS.values()})


def listed_mutants(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the names of mutants and of their groups, for a list with commas."""
    from squall.chaos.mutants import MUTANTS

    groups = {"all": "all mutants", **{each.group: "a group of mutants" for each in MUTANTS.values()}}
    return _listed(incomplete, {**groups, **{each.name: f"mutant {each.id}" for each in MUTANTS.values()}})


def workloads(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the names of the workloads that the command can run."""
    from squall.workloads.registry import SCENARIOS

    here = (name for name, scenario in SCENARIOS.items() if scenario.SIMULATED or ctx.info_name != "sim")
    return _offered(incomplete, dict.fromkeys(here, ""))


def plans(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the plans in plans/ and in run directories, the newest first. The shell adds other files."""
    found = [path for pattern in PLANS for path in _newest(Path().glob(pattern))]
    return [*_offered(incomplete, {str(path): "" for path in found}), CompletionItem(incomplete, type="file")]


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the run directories, the newest first. The shell adds other folders."""
    found = [RUNS / LATEST, *_newest(path.parent for path in RUNS.glob("*/plan.toml"))]
    there = dict.fromkeys(str(path) for path in found if path.exists())
    return [*_offered(incomplete, dict.fromkeys(there, "")), CompletionItem(incomplete, type="dir")]


def findings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the names of the anomalies found in the run that the command line already names, else in the latest run."""
    run = ctx.params.get("run") or RUNS / LATEST
    try:
        found = json.loads((Path(run) / "verdict.json").read_text())["anomalies"]
        names = {str(each["name"]): f"{each['count']} found" for each in found}
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return _offered(incomplete, names)


def _newest(paths: Iterable[Path]) -> list[Path]:
    # Names of run directories begin with their time. Links such as runs/latest would offer a run twice.
    found = sorted((path for path in paths if not path.parent.is_symlink() and not path.is_symlink()), reverse=True)
    return found[:NEWEST]


def _offered(incomplete: str, names: Mapping[str, str]) -> list[CompletionItem[str]]:
    return [CompletionItem(name, help=about) for name, about in names.items() if name.startswith(incomplete)]


def _listed(incomplete: str, names: Mapping[str, str]) -> list[CompletionItem[str]]:
    """Offer completions for the last word of a list with commas, without the words that the list already has. names:
    maps each possible word to its help text.
    """
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    offered = _offered(last, {name: about for name, about in names.items() if name not in given})
    return [CompletionItem(before + comma + each.value, help=each.help) for each in offered]
