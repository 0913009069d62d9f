"""Seals a history and the files beside it, so that damage, or a file of another run, is seen.

Its last line counts the lines before it and holds the CRC-32 of their bytes. Its header holds the plan's CRC-32. Its
last line holds those of nemesis.jsonl and of what run.json says. Histories of killed harnesses lack the last line, and
those of early versions lack all of it: they are judged as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from squall.checkers.history.tables import History, HistoryProblem, whole

FILE, RUN, PLAN, NEMESIS = "history.jsonl", "run.json", "plan.toml", "nemesis.jsonl"
LATER = ("writes_after_healing", "reads_after_healing")
"""Keys that run.json has had since after recorders began to write a last line."""
NOTE = "history.jsonl does not promise a last line, as in early versions: lines of its end may be gone"
SEALED_KEYS = ("heal", "faults", "converged", "writes_after_healing", "reads_after_healing", "final_reads", "history")
"""Keys of run.json that the verdict rests on. They do not change once the history is closed."""
UNSEALED = ("operations",)
"""Of a plan: the load as it was drawn. Nothing is judged by it."""


def seals_of(seals: Any) -> dict[str, int]:
    """Return the CRC-32 that a line holds for each other file."""
    return {str(name): whole(crc) for name, crc in seals.items()}


def plan_seal(plan: Mapping[str, Any]) -> int:
    """Of a parsed plan, however it was written down: comments and the order of keys do not count."""
    return _of({name: value for name, value in plan.items() if name not in UNSEALED})


def info_seal(info: Mapping[str, Any]) -> int:
    """Of what run.json says under the keys of `SEALED_KEYS`."""
    return _of({name: info.get(name) for name in SEALED_KEYS})


def value_seal(value: Any) -> int:
    """Of any plain value, however it was written down."""
    return _of(value)


def declared_seal(before: int, line: Mapping[str, Any]) -> int:
    """Return the CRC-32 of all declarations of partitions and of topics' settings: `before`, and one more."""
    return _of([before, line])


def _of(value: Any) -> int:
    # JSON makes texts of the keys and lists of the tuples.
    as_read = json.loads(json.dumps(value, default=str))
    return crc32(json.dumps(_plain(as_read), sort_keys=True, separators=(",", ":")).encode())


def _plain(value: Any) -> Any:
    """However it was written down: a key with nothing in it is one that is not there, as in TOML, and 30.0 is 30."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each not in (None, [], {})}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return [_plain(each) for each in value] if isinstance(value, list) else value


def unlike(
    seals: Mapping[str, int], run: str, plan: int | None, nemesis: bytes, info: Mapping[str, Any]
) -> dict[str, str]:
    """The files that are not those that the history was recorded with, and why. Nothing follows from what they say.

    `seals`, `run`: of `History`. `plan`: its `plan_seal`, None where it cannot be read. `info`: run.json, empty where
    there is none or it cannot be read.
    """
    found = {}
    if PLAN in seals and plan is not None and plan != seals[PLAN]:
        found[PLAN] = f"{PLAN} is not the plan that the history was recorded under: it was changed, or is another run's"
    if NEMESIS in seals and crc32(nemesis) != seals[NEMESIS]:
        found[NEMESIS] = f"{NEMESIS} is not as it was when the history was closed: it was changed, or is another run's"
    named = info.get("run")
    if run and named not in (None, run):
        found[RUN] = f"{RUN} is about the run {named!r}, and the history about {run!r}"
    elif RUN in seals and info_seal(info) != seals[RUN]:
        found[RUN] = (
            f"{RUN} was changed after the run: its {', '.join(SEALED_KEYS)} do not match the seal in the history"
        )
    return found


def broken_seal(history: History, info: Mapping[str, Any]) -> HistoryProblem | None:
    """A history without the last line with which its recorder closed it: it was changed afterwards, and what its other
    lines were is not known.

    Its header does not promise the line, and its run is of a version whose header does; or the line is not reached,
    and the run ended in order. `info`: run.json, as far as it could be read.
    """
    later = [key for key in LATER if key in info]
    in_order = "ended_ns" in info and not info.get("trouble") and not info.get("stopped")
    if history.ends and history.problem is not None and in_order:
        why = f"{RUN} says that the run ended, and the last line, which checks those before it, is not reached: the "
        return HistoryProblem(FILE, history.lines + 1, f"{why}history was changed or cut afterwards", untrusted=True)
    if history.ends or not history.lines or not later:
        return None
    why = f"the header does not promise a last line, and {RUN} with its {later[0]!r} is of a version whose header does"
    return HistoryProblem(FILE, 1, why, untrusted=True)


def notes(ends: bool, torn_bytes: int) -> list[str]:
    """Return what a verdict says of a history's end."""
    found = [] if ends else [NOTE]
    if torn_bytes:
        found.append(f"{FILE} ends in an unfinished line of {torn_bytes} bytes, which was left out")
    return found


def read_info(run_dir: Path) -> Mapping[str, Any]:
    """run.json; empty if it cannot be read: who needs what is in it says so."""
    try:
        info = json.loads((run_dir / RUN).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return info if isinstance(info, dict) else {}


JUDGED = "history"
"""Key of verdict.json: the `stamp` of the history that it is about."""
NOT_JUDGED = f"{FILE} is not the one that was judged"
_CHUNK = 1 << 20


def stamp(path: Path) -> dict[str, int] | None:
    """Return the size of a file and the CRC-32 of its bytes, by which a change is seen. None if there is no file."""
    size = crc = 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                size, crc = size + len(chunk), crc32(chunk, crc)
    except OSError:
        return None
    return {"bytes": size, "crc32": crc}


def not_judged(run_dir: Path, verdict: Mapping[str, Any]) -> str:
    """That the history is another one than `verdict` (verdict.json) is about, in a sentence without its point; empty
    where it is the same, and where an early version judged it, which kept no stamp."""
    judged = verdict.get(JUDGED)
    if not isinstance(judged, dict):
        return ""
    now = stamp(run_dir / FILE)
    if now is None:
        return f"{FILE} is gone, which was judged"
    if now == judged:
        return ""
    sizes = f"it had {judged.get('bytes')} bytes then, and has {now['bytes']}"
    return f"{NOT_JUDGED}: {sizes}; `squall verify` judges it again"
