"""Converts history.jsonl and nemesis.jsonl of a run to Parquet files, once, after the run, and reads these files.

`convert` writes a Parquet file to `RUN/history/` for each table in `parquet.SCHEMAS`. It writes `conversion.json` last,
which says what was read, and why reading stopped early if it did.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from squall.checkers import nemesis_log
from squall.checkers.history import parser, seal
from squall.checkers.history.tables import LARGE, SCHEMA, History, HistoryProblem, RecordedFault

FOLDER = "history"
CONVERSION = "conversion.json"
LAYOUT = 5
"""Is the version of the tables' layout. It grows with each new column of a table, and with each new field of
`group_activity.GroupActivity`.
"""


@dataclass(frozen=True, slots=True)
class ConversionResult:
    """Holds the facts that `convert` read. `problems` is empty if every line parsed; a torn last line is no problem."""

    run: str
    wall_ms: int
    mono_ns: int
    lines: int
    torn_bytes: int
    records: int
    corrupt: int
    holes: int
    compacted: bool
    outcomes: dict[str, dict[str, int]]
    names: list[str]
    problems: list[HistoryProblem] = field(default_factory=list)
    read_inside: int = 0
    """Counts records returned by read_committed polls that were part of a transaction."""
    ends: bool = True
    """Is True if the history's header promises a last line that counts the other lines. Such a history was cut if it
    lacks that line.
    """
    seals: dict[str, int] = field(default_factory=dict)
    """Maps other files of the run to their CRC-32, as the history's header and last line have them."""
    source: dict[str, int] | None = None
    """Holds the size and CRC-32 of history.jsonl (`seal.stamp`); None if there was no such file, or if an early version
    converted it.
    """
    tables: dict[str, dict[str, int] | None] = field(default_factory=dict)
    """Maps the name of each table's file to its size and CRC-32 (`seal.stamp`)."""
    holds: int = 0
    """Counts the rows of the table `holds`: one for each assignment of a partition to a member that did not own it yet.
    """
    outputs: int = 0
    """Counts the output records that group members made of input records."""
    owned: list[int] = field(default_factory=list)
    """Lists the partitions that a member of a group ever owned; empty also if an early version converted the history.
    """
    owners: int = -1
    """Counts the processes that ever owned a partition; -1 if an early version converted the history."""
    resumed: int = -1
    """Counts how often a member began at a committed position; -1 if an early version converted the history."""
    grants: int = -1
    """Counts how many times a member learned which partitions a generation assigns to it; -1 if an early version
    converted the history.
    """
    lookups: int = 0
    """Counts how often a reader looked up the time of a record that it had got."""
    apart: list[list[int]] | None = None
    """Lists [begin, end] in ns of each time in which faults kept brokers apart (`nemesis_log.apart`): a heartbeat sent
    then does not prove an ownership. None if an early version converted the history; it took every heartbeat as a
    proof.
    """
    declared: int = 0
    """Is the CRC-32 of the history's lines that declare partitions and topic settings."""
    skew_ms: int = 0
    """Is the largest error, in ms, that brokers' clocks may have had (`nemesis_log.skew_ms`). The records that
    retention could have removed depend on it.
    """
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Maps the name of each group to its `group_activity.GroupActivity` as a dict; empty also if an early version
    converted the history.
    """
    layout: int = 0
    """Is the version of the tables' layout: the value that LAYOUT had at the conversion; 0 if an early version made
    them.
    """


def convert(run_dir: Path) -> ConversionResult:
    """Convert a run's JSONL files to `run_dir`/history/ again, and return the result. Works on files that are cut at
    any byte.

    A missing history.jsonl counts as an empty history with a problem; a missing nemesis.jsonl counts as a run without
    faults.
    """
    from squall.checkers.history.parquet import (
        write_small,  # needs pyarrow, which most simulated runs never load
    )

    folder = run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    # conversion.json is written last: while it is missing, the tables may be incomplete.
    (folder / CONVERSION).unlink(missing_ok=True)
    # Before the history: while it is parsed, faults decide which heartbeats prove an ownership.
    faults, trouble = read_faults(run_dir)
    apart, skew_ms = nemesis_log.apart(faults), nemesis_log.skew_ms(faults, seal.read_info(run_dir))
    history, written = _convert_history(run_dir / parser.FILE, folder, apart, skew_ms)
    write_small(folder, history, faults)
    unsealed = seal.broken_seal(history, seal.read_info(run_dir))
    conversion = ConversionResult(
        run=history.run,
        wall_ms=history.wall_ms,
        mono_ns=history.mono_ns,
        lines=history.lines,
        torn_bytes=history.torn_bytes,
        records=written["records"],
        corrupt=history.corrupt,
        holes=history.holes,
        compacted=any(partition.compacted for partition in history.partitions),
        outcomes=history.outcomes,
        declared=history.declared,
        names=history.names,
        problems=[each for each in (history.problem, unsealed, trouble) if each is not None],
        read_inside=history.read_inside,
        ends=history.ends,
        seals=history.seals,
        source=seal.stamp(run_dir / parser.FILE),
        tables={path.name: seal.stamp(path) for path in sorted(folder.glob("*.parquet"))},
        holds=written["holds"],
        outputs=written["outputs"],
        owned=sorted(history.owned),
        owners=len(history.owners),
        resumed=history.resumed,
        grants=written["grants"],
        lookups=written["lookups"],
        apart=[[*each] for each in apart],
        skew_ms=skew_ms,
        layout=LAYOUT,
        groups={name: each._asdict() for name, each in history.group_activities.by_group(history.names).items()},
    )
    text = json.dumps({"schema": SCHEMA, **asdict(conversion)}, indent=1)
    (folder / CONVERSION).write_text(text + "\n")
    return conversion


def convert_once(run_dir: Path) -> None:
    """Convert a run's history, unless it was converted before, or there is no history."""
    if (run_dir / parser.FILE).exists() and not (run_dir / FOLDER / CONVERSION).exists():
        convert(run_dir)


def read_lines(run_dir: Path) -> tuple[History, list[RecordedFault]]:
    """Return the history and the faults of a run directory, read from their lines, without tables or pyarrow.

    Raises FileNotFoundError if there is no history.
    """
    faults, _ = read_faults(run_dir)
    skew_ms = nemesis_log.skew_ms(faults, seal.read_info(run_dir))
    with (run_dir / parser.FILE).open("rb") as lines:
        return parser.parse(lines, nemesis_log.apart(faults), skew_ms), faults


def read_conversion(run_dir: Path) -> ConversionResult:
    """Return the result that `convert` wrote. Raises FileNotFoundError if it did not finish, and ValueError if its
    schema is another one.
    """
    stored: dict[str, Any] = json.loads((run_dir / FOLDER / CONVERSION).read_text())
    if stored.pop("schema", None) != SCHEMA:
        raise ValueError(f"{CONVERSION} is of another schema: convert the history again")
    return ConversionResult(**{**stored, "problems": [HistoryProblem(**each) for each in stored["problems"]]})


def is_current(run_dir: Path, conversion: ConversionResult) -> bool:
    """Return whether a run's tables can be used: the tables, history.jsonl and the faults on which the tables depend
    are unchanged since `conversion`, and the layout is this program's.
    """
    tables, (faults, _) = conversion.tables, read_faults(run_dir)
    reported = [[*each] for each in nemesis_log.apart(faults)], nemesis_log.skew_ms(faults, seal.read_info(run_dir))
    if conversion.layout != LAYOUT or (conversion.apart, conversion.skew_ms) != reported:
        return False
    return (
        conversion.source is not None
        and seal.stamp(run_dir / parser.FILE) == conversion.source
        and all(seal.stamp(run_dir / FOLDER / name) == reported for name, reported in tables.items())
    )


def read_faults(run_dir: Path) -> tuple[list[RecordedFault], HistoryProblem | None]:
    """Return the faults in nemesis.jsonl, none if there is no such file, and why reading it stopped early; None if it
    did not.
    """
    path = run_dir / nemesis_log.FILE
    if not path.exists():
        return [], None
    with path.open("rb") as lines:
        return nemesis_log.parse_faults(lines)


def load(run_dir: Path, *, large: bool = True) -> tuple[History, list[RecordedFault]]:
    """Return the converted history and its faults in memory. If `large` is False, all large tables but `holds` (the
    ownerships of group members) are left empty: the Spark engine needs `holds` in memory.
    """
    from squall.checkers.history.parquet import read_large, read_small

    conversion = read_conversion(run_dir)
    history = History(
        run=conversion.run,
        wall_ms=conversion.wall_ms,
        mono_ns=conversion.mono_ns,
        lines=conversion.lines,
        ends=conversion.ends,
        seals=conversion.seals,
        torn_bytes=conversion.torn_bytes,
        problem=next((each for each in conversion.problems if each.file == parser.FILE), None),
        names=conversion.names,
        corrupt=conversion.corrupt,
        holes=conversion.holes,
        outcomes=conversion.outcomes,
        declared=conversion.declared,
        read_inside=conversion.read_inside,
        owned={*conversion.owned},
    )
    if large:
        read_large(run_dir / FOLDER, history)
    return history, read_small(run_dir / FOLDER, history)


def _convert_history(
    path: Path, folder: Path, apart: Sequence[tuple[int, int]], skew_ms: int
) -> tuple[History, dict[str, int]]:
    """Write the large tables of a history to Parquet files in `folder`. Return the rest of the history, and the number
    of rows of each large table.

    `apart` has the [begin, end] in ns in which faults kept brokers apart. `skew_ms` is the largest error that brokers'
    clocks may have had.
    """
    from squall.checkers.history.parquet import TableWriter

    reader = parser.HistoryParser(apart, skew_ms)
    kept = reader.history
    tables = {name: getattr(kept, name) for name in LARGE}
    writers = {name: TableWriter(folder, name) for name in tables}

    def drain(_: History) -> None:
        for name, table in tables.items():
            writers[name].write(table)
            table.truncate(0)

    reader.drain = drain
    try:
        with path.open("rb") as lines:
            reader.feed(lines)
    except FileNotFoundError:
        reader.history.problem = HistoryProblem(path.name, 0, "there is none")
    history = reader.finish()
    drain(history)
    for writer in writers.values():
        writer.close()
    return history, {name: writer.rows for name, writer in writers.items()}
