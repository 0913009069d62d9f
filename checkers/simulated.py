"""Reads the failures that a simulator saw in its run and that no history shows: broken invariants, crashes, a
simulation in which nothing can happen any more.

The simulator writes them to run.json (`simulated`) and violations.json. The history's last line holds the CRC-32 of the
violations that were seen before it (`seal_of`), and run.json holds the size and CRC-32 of the whole file. The verdict
counts these failures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall.checkers.anomalies.registry import CATALOG
from squall.checkers.history import seal

FILE, KEY = "violations.json", "simulated"
STAMP = "violations"
"""Is the key of the size and CRC-32 of violations.json (`seal.stamp`) in the entry `simulated` of run.json. Its value
is None if no invariant broke. Runs of early versions lack the key.
"""
INVARIANT = "invariant"
OF_A_HISTORY = "anomaly"
"""Is the kind of a simulator's failure that is left out here, because the checkers find it again in the history."""
GONE = f"{FILE} is gone, and it told of broken invariants"
CHANGED = f"{FILE} is not as it was when the run was over: it was changed, or is another run's"
NOT_OURS = f"{FILE} is of a simulation, and {seal.RUN} tells of none"


@dataclass(frozen=True, slots=True)
class SimulatorFindings:
    """Holds the failures that the simulator saw in one run; empty for a run without failures, and for a run that was
    not simulated.
    """

    wrong: tuple[str, ...] = ()
    """Lists the failures, a line each. If there is one, the run is invalid, whatever the history shows."""
    troubles: tuple[str, ...] = ()
    """Says in words why violations.json cannot be trusted; empty if it can."""


def seal_of(violations: Sequence[Mapping[str, Any]]) -> int:
    """Return the CRC-32 of these violations, which are as in violations.json; 0 for none."""
    return _seals(violations)[-1]


def _seals(violations: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the CRC-32 of each prefix of the violations: of none, of the first, of the first two, and so on. The
    history's last line holds one of them, because the simulator may see further violations after it has closed the
    history.
    """
    found = [0]
    for each in violations:
        found.append(seal.value_seal([found[-1], dict(each)]))
    return found


def listed(run_dir: Path) -> tuple[list[dict[str, Any]], str]:
    """Return the violations in a run directory, and why they cannot be read; both are empty if there is no file."""
    try:
        found = json.loads((run_dir / FILE).read_text())
    except FileNotFoundError:
        return [], ""
    except (OSError, ValueError, RecursionError) as error:
        return [], f"{FILE} cannot be read: {type(error).__name__}: {error}"
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        return [], f"{FILE} does not list violations"
    return found, ""


def read(run_dir: Path, info: Mapping[str, Any], seals: Mapping[str, int]) -> SimulatorFindings:
    """Return the failures that the simulator saw. Raises nothing. `info` is run.json, as far as it can be read. `seals`
    holds the CRC-32 of each file as the history has it (`History.seals`), empty if they are not known.
    """
    reported = info.get(KEY)
    violations, unread = listed(run_dir)
    if not isinstance(reported, Mapping):
        reported = {}
        if violations and FILE not in seals:
            return SimulatorFindings(troubles=(NOT_OURS,))
    failure = reported.get("failure")
    kind, name = (str(failure.get("kind")), str(failure.get("name"))) if isinstance(failure, Mapping) else ("", "")
    changed = _changed(run_dir, reported, violations, seals)
    there = (run_dir / FILE).exists()
    expected = FILE in seals or reported.get(STAMP) is not None or kind == INVARIANT
    troubles = [GONE] if expected and not there else [unread] if unread else [CHANGED] if changed else []
    # A changed file proves nothing, but run.json still names the failure.
    lines = [] if changed else [_line(each) for each in violations]
    if kind and kind != OF_A_HISTORY and name not in CATALOG:
        words = [str(each) for each in reported.get("told") or ()] or [f"{kind} {name}"]
        said = {str(each.get("name")) for each in violations if any(str(each.get("name")) in line for line in words)}
        lines = [*words, *(_line(each) for each in violations if not changed and str(each.get("name")) not in said)]
    if not lines and FILE in seals:
        lines = ["an invariant of the simulator broke: the history was sealed with it"]
    return SimulatorFindings(tuple(dict.fromkeys(lines)), tuple(troubles))


def _changed(
    run_dir: Path, reported: Mapping[str, Any], violations: Sequence[Mapping[str, Any]], seals: Mapping[str, int]
) -> bool:
    if FILE in seals and seals[FILE] not in _seals(violations):
        return True
    return STAMP in reported and reported[STAMP] != seal.stamp(run_dir / FILE)


def _line(violation: Mapping[str, Any]) -> str:
    place = "" if violation.get("topic") is None else f" {violation['topic']}-{violation.get('partition')}"
    who = "" if violation.get("node") is None else f" node {violation['node']}"
    return f"{violation.get('name')}{place}{who}: {violation.get('message')}"


def overlooked(run_dir: Path, verdict: Mapping[str, Any]) -> str:
    """Return a sentence, without its full stop, if the verdict says valid of a run in which the simulator saw a
    failure; else an empty text. `verdict` is verdict.json. Early versions wrote such verdicts.
    """
    if verdict.get("verdict") != "valid":
        return ""
    seen = read(run_dir, seal.read_info(run_dir), {})
    said = (*seen.wrong, *seen.troubles)
    return f"the verdict passed over what the simulator saw: {said[0]}; `squall verify` judges it again" if said else ""
