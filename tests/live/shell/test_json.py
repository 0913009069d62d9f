"""`squall run --json`, with a run of processes judged by Spark, prints one object and nothing else on standard output.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.json_output import checked
from tests.support.squall import ended, start

RUN = ("run", "--seed", "7", "--time", "8", "--warmup", "1", "--faults", "kill", "--rate", "200", "--json")


@pytest.mark.night("whole runs; the gate has one")
def test_a_run_is_told_with_its_verdict(tmp_path: Path) -> None:
    code, out, errors = ended(start(*RUN, "--runs", tmp_path), 600)
    told = checked("run", out)
    run = told["run"]
    assert (told["exit"], run["verdict"], run["reasons"]) == (code, "valid", []), errors
    assert run["sent"] >= run["acked"] > 0 and run["landed"] == run["planned"] == 1
    assert Path(run["report"]).exists() and "VALID" in errors
