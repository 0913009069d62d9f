"""Seals a history and the files beside it with checksums, so that damage, or a file of another run, shows.

The history's last line counts the lines before it, and holds the CRC-32 of their bytes. Its header holds the CRC-32 of
the plan, and its last line those of nemesis.jsonl and of the entries of run.json. Histories of killed harnesses lack
the last line, and those of early versions lack all checksums: they are judged as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from squall.checkers.history.tables import History, HistoryProblem, int64

FILE, RUN, PLAN, NEMESIS = "history.jsonl", "run.json", "plan.toml", "nemesis.jsonl"
LATER = ("writes_after_healing", "reads_after_healing")
"""Lists keys that only later versions write into run.json. These versions also write a last line with a checksum."""
NOTE = "history.jsonl does not promise a last line, as in early versions: lines of its end may be gone"
SEALED_KEYS = ("heal", "faults", "converged", "writes_after_healing", "reads_after_healing", "final_reads", "history")
"""Lists the keys of run.json on which the verdict depends. Their values do not change once the history is closed."""
UNSEALED = ("operations",)
"""Lists keys of a plan that `plan_seal` leaves out: the list of operations that was drawn from the plan. The verdict
does not depend on it.
"""


def seals_of(seals: Any) -> dict[str, int]:
    """Return the CRC-32 of each file that a line of the history seals, by file name. Raises ValueError if one is no
    integer.
    """
    return {str(name): int64(crc) for name, crc in seals.items()}


def plan_seal(plan: Mapping[str, Any]) -> int:
    """Return the CRC-32 of a parsed plan. Comments and the order of keys do not change it."""
    return _of({name: value for name, value in plan.items() if name not in UNSEALED})


def info_seal(info: Mapping[str, Any]) -> int:
    """Return the CRC-32 of the values that run.json has under SEALED_KEYS."""
    return _of({name: info.get(name) for name in SEALED_KEYS})


def value_seal(value: Any) -> int:
    """Return the CRC-32 of a value in its canonical form: the format of the file from which it was read does not change
    it.
    """
    return _of(value)


def declared_seal(before: int, line: Mapping[str, Any]) -> int:
    """Return the CRC-32 of all lines so far that declare partitions or topic settings. `line` is the last of them, and
    `before` is the CRC-32 of the lines before it.
    """
    return _of([before, line])


def _of(value: Any) -> int:
    # JSON turns keys into texts and tuples into lists, as they are when the file is read.
    as_read = json.loads(json.dumps(value, default=str))
    return crc32(json.dumps(_plain(as_read), sort_keys=True, separators=(",", ":")).encode())


def _plain(value: Any) -> Any:
    """Return a value in the form of which the CRC-32 is taken: keys with an empty value are removed, as TOML cannot
    write them, and 30.0 becomes 30.
    """
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each not in (None, [], {})}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return [_plain(each) for each in value] if isinstance(value, list) else value


def changed_files(
    seals: Mapping[str, int], run: str, plan: int | None, nemesis: bytes, info: Mapping[str, Any]
) -> dict[str, str]:
    """Return the files that were changed since the history was recorded, or belong to another run, each with the
    reason. Nothing may be derived from their content.

    `seals` maps each file to the CRC-32 that the history has of it, and `run` is the run's name in the history. `plan`
    is the `plan_seal`, None if the plan cannot be read. `nemesis` is the content of nemesis.jsonl. `info` is run.json,
    empty if there is none or it cannot be read.
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
    """Return a problem if a history lacks the closing line, with counts and checksums, that it must have: then the
    history was changed after it was recorded, and its other lines cannot be trusted. Return None if the line is there,
    or need not be.

    The line must be there in two cases. The header announces it, and run.json says that the run ended in order. Or the
    header does not announce it although run.json has a key of LATER: versions that write such a key always announce it.
    `info` is run.json, as far as it could be read.
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
    """Return what a verdict says about the end of a history. `ends` is True if the history's header announces a last
    line that counts the others. `torn_bytes` is the length of an unfinished last line; 0 if there is none.
    """
    found = [] if ends else [NOTE]
    if torn_bytes:
        found.append(f"{FILE} ends in an unfinished line of {torn_bytes} bytes, which was left out")
    return found


def read_info(run_dir: Path) -> Mapping[str, Any]:
    """Return the content of run.json; empty if it cannot be read, which `squall.checkers.run_facts` reports."""
    try:
        info = json.loads((run_dir / RUN).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return info if isinstance(info, dict) else {}


JUDGED = "history"
"""Is the key of verdict.json with the size and CRC-32 (`stamp`) of the history that was judged."""
NOT_JUDGED = f"{FILE} is not the one that was judged"
_CHUNK = 1 << 20


def stamp(path: Path) -> dict[str, int] | None:
    """Return the size of a file and the CRC-32 of its bytes, by which a change shows; None if there is no file."""
    size = crc = 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                size, crc = size + len(chunk), crc32(chunk, crc)
    except OSError:
        return None
    return {"bytes": size, "crc32": crc}


def not_judged(run_dir: Path, verdict: Mapping[str, Any]) -> str:
    """Return a sentence, without its full stop, if history.jsonl was changed or removed after `verdict` (verdict.json)
    was made; else an empty text. It is also empty for a verdict of an early version, which has no checksum of the
    history.
    """
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
