"""What the reference judges: a run's own lines, without the tables that Spark reads."""

from __future__ import annotations

from pathlib import Path

from checkers import nemesis_log
from checkers.history import parser
from checkers.history.conversion import read_faults
from checkers.history.tables import History, PlayedFault


def read_run(run_dir: Path) -> tuple[History, list[PlayedFault]]:
    """The history and the faults of a run directory. None of Parquet's mistakes can be in them."""
    faults, _ = read_faults(run_dir)
    lines = (run_dir / parser.FILE).read_bytes().splitlines(keepends=True)
    return parser.parse(lines, nemesis_log.apart(faults)), faults
