"""Saves a simulated run as a run directory that can be judged, reported, replayed and shrunk like any other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.figures import figures_of_history
from squall.chaos.runs.result import SimResult
from squall.chaos.runs.run_store import INFO, export
from squall.chaos.typed import absolute_command
from squall.checkers import simulated
from squall.checkers.anomalies.replica_divergence import compare_run
from squall.checkers.history import seal
from squall.checkers.history.conversion import convert_once
from squall.checkers.in_memory import RunJudgement
from squall.checkers.verdict import FILE as VERDICT
from squall.checkers.verdict import INVALID, judge_run, written


def repeat_of(directory: RunDirectory, mutant: str | None, *, stop_at_first: bool = True) -> str:
    """Return the command that repeats a simulated run. The saved plan lacks only the mutant and `stop_at_first`, which
    ends the run at the first broken invariant.
    """
    planted = ("--mutant", mutant) if mutant else ()
    return absolute_command("sim", "--plan", directory.plan, *planted, "" if stop_at_first else "--all-violations")


def save(
    result: SimResult,
    root: Path,
    command: str | Callable[[RunDirectory], str],
    *,
    latest: bool = True,
    label: str = "",
    tables: bool = True,
) -> RunDirectory:
    """Write a simulated run, with its verdict, into a new directory below `root`.

    command: repeats the run; or a function that returns this command for the directory. latest: point the link `latest`
    at the directory. label: replaces the seed in the directory's name. tables: write the history as Parquet as well, if
    pyarrow is installed; the verdict does not need it.

    The written verdict can be worse than `result.verdict`, because the replicas' log files are compared only here.
    """
    directory = RunDirectory.create(root, result.plan.seed, latest=latest, label=label)
    files = result.files
    info = json.loads(files[INFO])
    if result.violations and info.get("trouble"):
        # The run was ended on purpose: that is no trouble of the harness.
        info.update(trouble=None, stopped="the simulation was stopped at the first broken invariant")
    # run.json comes last: it holds a stamp of the violations' file.
    export({name: content for name, content in files.items() if name != INFO}, directory)
    seen = {simulated.STAMP: seal.stamp(directory.path / simulated.FILE)}
    info.update(command=command if isinstance(command, str) else command(directory))
    # The simulated clock begins at the same moment in every run, so it does not say how old a run is.
    info.update(began_wall_ms=round((time.time() - result.cpu_s) * 1000))
    info[simulated.KEY] = {**_simulated(result), **seen}
    export({INFO: _text(info)}, directory)
    if tables and find_spec("pyarrow") is not None:
        convert_once(directory.path)
    if result.judgement is not None:
        _write_judgement(directory.path, result, result.judgement)
    else:
        _write_unknown(directory.path, result)
    return directory


def _simulated(result: SimResult) -> dict[str, Any]:
    return {
        "seed": result.plan.seed,
        "digest": result.digest,
        "mutant": result.mutant,
        "planted": _planted(result.mutant),
        "virtual_s": round(result.sim_s, 3),
        "cpu_s": round(result.cpu_s, 3),
        "judging_cpu_s": round(result.judging_cpu_s, 3),
        "failure": None if result.failure is None else {"kind": result.failure.kind, "name": result.failure.name},
        "told": list(result.reasons),
    }


def _planted(mutant: str | None) -> str | None:
    """Return the id and the name of a mutant, for people. None if there is no mutant."""
    if mutant is None:
        return None
    from squall.chaos.mutants import find

    return find(mutant).id_and_name()


def _write_judgement(path: Path, result: SimResult, judgement: RunJudgement) -> None:
    """Write the anomalies that were found, compare the replicas' logs, and write the verdict."""
    # Where a run was cut short, its brokers are cut off in the middle of their work.
    whole = result.failure is None or (result.failure.kind in ("invariant", "anomaly") and not _trouble(result))
    if whole:
        compare_run(path, judgement.history.partitions, judgement.history.run)
    judgement.analysis.write(path)
    troubles = [*judgement.troubles]
    workload = figures_of_history(result.plan.workload, lambda: judgement.history, judgement.faults, troubles)
    verdict = judge_run(path, troubles=troubles, workload=workload, history=judgement.history)
    if result.failure is not None:
        reasons = tuple(dict.fromkeys([*result.reasons, *verdict.reasons]))
        verdict = replace(verdict, verdict=INVALID, reasons=reasons)
        (path / VERDICT).write_bytes(_text(written(path, verdict)))


def _trouble(result: SimResult) -> bool:
    """Return whether anything ended the run early, broken invariants included."""
    return bool(json.loads(result.files[INFO]).get("trouble"))


def _write_unknown(path: Path, result: SimResult) -> None:
    """Write the verdict `unknown`: the harness failed, and nothing was judged."""
    said = {"schema": 1, "run": path.name, "verdict": result.verdict, "expect": result.plan.expect}
    rest: dict[str, Any] = {
        "reasons": list(result.reasons),
        "notes": [],
        "guarantee": None,
        "anomalies": [],
        "metrics": {},
    }
    (path / VERDICT).write_bytes(_text({**said, **rest}))


def _text(value: Any) -> bytes:
    return (json.dumps(value, indent=1, default=str) + "\n").encode()
