"""Adds a night of tests to the store of nights, and reads the earlier nights there."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from squall.chaos.errors import PreconditionError, error_message
from squall.checkers.nightly import store
from tests.night.parts import EVERYTHING
from tests.night.record import NOT_HERE, PASSED, UNKNOWN, Folder, ended
from tests.night.report import verdict
from tests.support.gate import results

FIRST_SEED = 1000
"""The first seed of the first night. The gate plays seeds below it."""
Tables = Mapping[str, list[dict[str, Any]]]


def place_of(folder: Folder) -> Path:
    """Return the path of the store, which is beside a night's folder."""
    return folder.path.absolute().parent / store.FOLDER


def first_seed(tables: Tables) -> int:
    """Return the first seed that none of the nights in the store has played."""
    found = [row["next_seed"] for row in tables["parts"] if row["next_seed"] is not None]
    return max(found, default=FIRST_SEED)


def read_tables(place: Path) -> tuple[Tables, list[str]]:
    """Return the rows of all nights of tests in a store, earliest first, and a sentence for each night that cannot be
    read.
    """
    collected, problems = store.collections(place, store.TESTS)
    return {name: store.rows(collected, name) for name in store.TESTS.tables}, problems


def collect(folder: Folder, rows: Tables, now: datetime) -> None:
    """Add an ended night to the store, unless it is there already. Raises PreconditionError if it cannot be written."""
    place = place_of(folder)
    digest = _digest(folder)
    if digest in [each.digest for each in store.collections(place, store.TESTS)[0]]:
        return
    try:
        _add(place, f"{folder.path.name}-{os.getpid()}", rows, digest, now)
    except (OSError, ValueError, OverflowError) as error:  # also of an edited record: 10**30, half a surrogate pair
        raise PreconditionError(f"{place}: the night cannot be collected: {error_message(error)}") from None


def _add(place: Path, tag: str, rows: Tables, digest: str, now: datetime) -> None:
    fresh = store.fresh(place, tag, now)
    try:
        for name, found in rows.items():
            store.write(fresh, name, found)
        (night,) = rows["test_nights"]
        store.commit(fresh, night["night"], night["began"], digest, now, store.TESTS)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def rows_of(folder: Folder, now: datetime) -> Tables:
    """Return the rows of an ended night."""
    head, lines = folder.read()
    parts = ended(lines)
    commits = list(dict.fromkeys([head.commit, *(line.commit for line in parts.values())]))
    problems = []
    if commits[1:]:
        problems.append(f"The night went on at another commit: {', then '.join(each[:12] for each in commits)}.")
    tests, why = _tests(folder, head.night, {line.commit for line in lines if line.part == EVERYTHING})
    everything = parts.get(EVERYTHING)
    if everything and everything.result != NOT_HERE and why:
        problems.append(f"The part {EVERYTHING} was played, but {why}.")
        if everything.result == PASSED:
            parts[EVERYTHING] = replace(everything, result=UNKNOWN, why=why)
    night = {name: getattr(head, name) for name in ("night", "began", "commit", "machine", "python")}
    code = verdict({name: line.result for name, line in parts.items()})
    more = {"ended": now.isoformat(timespec="seconds"), "exit": code, "problems": problems}
    return {
        "test_nights": [{**night, **more}],
        "parts": [{"night": head.night, **_parts(asdict(parts[name]))} for name in head.parts if name in parts],
        "tests": tests,
    }


def _tests(folder: Folder, night: str, commits: set[str]) -> tuple[list[dict[str, Any]], str]:
    """Return the last result of each test, and a sentence if results are missing.

    If the part was continued at another commit, the commit of a result is unknown.
    """
    commit = commits.pop() if len(commits) == 1 else ""
    try:
        last = {each.test: each for each in results.read(folder.tests)}
    except PreconditionError as refused:
        return [], f"its results cannot be read: {refused}"
    rows = [{"night": night, "commit": commit, **each._asdict()} for each in last.values()]
    return rows, results.lost(folder.tests) if rows else f"{folder.tests.name} has no result of a test"


def _parts(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name in store.TEST_TABLES["parts"].names}


def _digest(folder: Folder) -> str:
    seen = hashlib.sha256(f"schema {store.SCHEMA}".encode())
    for file in (folder.record, folder.tests):
        seen.update(file.read_bytes() if file.exists() else b"-")
    return seen.hexdigest()[:16]
