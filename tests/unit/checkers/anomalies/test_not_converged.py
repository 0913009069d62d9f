"""A cluster that does not become healthy again after the faults is a finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from squall.checkers import run_facts
from squall.checkers.anomalies import not_converged


def write(run_dir: Path, info: Any) -> None:
    (run_dir / run_facts.FILE).write_text(info if isinstance(info, str) else json.dumps(info))


def test_a_partition_without_a_full_isr_is_a_finding(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"converged": {"ok": False, "took_s": 30, "lacking": {"t-0": "no leader", "t-1": "ISR [1] of [1, 2]"}}},
    )
    looked, (found,) = not_converged.read(tmp_path, [])
    assert looked
    assert (found.anomaly, found.count) == ("not-converged", 2)


def test_a_cluster_that_converged_gives_none(tmp_path: Path) -> None:
    write(tmp_path, {"converged": {"ok": True, "took_s": 0.1, "lacking": {}}})
    assert not_converged.read(tmp_path, []) == (True, [])


@pytest.mark.parametrize("info", ["", "{", {}, {"converged": None}, {"converged": {"ok": False}}, []])
def test_a_run_that_did_not_come_so_far_was_not_looked_at(tmp_path: Path, info: Any) -> None:
    write(tmp_path, info)
    assert not_converged.read(tmp_path, []) == (False, [])
    assert not_converged.read(tmp_path / "none", []) == (False, [])
