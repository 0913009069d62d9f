"""Checks how a night reports to other programs: summary.json, a command that is given it, and metrics."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from squall.chaos import cli
from squall.chaos.commands.night_end import night_output
from squall.chaos.nightly.accepted import AcceptedFinding
from squall.chaos.nightly.announcement import announce
from squall.chaos.nightly.findings import NightFinding
from tests.unit.nightly.test_outcome import night

ENTRY = AcceptedFinding(fingerprint="0123456789ab", owner="alice", until=date(2026, 12, 31), why="KAFKA-17754")
SAVE = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"


def facts(folder: Path) -> dict[str, Any]:
    """Return the facts of a night whose one finding is accepted."""
    outcome = night()
    item = outcome.items[0]
    attempts = frozenset({(item.item, 1)})
    one = NightFinding(
        "0123456789ab", ("lost-write",), "why", (item.configuration,), attempts, ("n1", "n2"), ENTRY, date(2026, 7, 4)
    )
    outcome = replace(outcome, by_cause=(one,), folder=str(folder))
    times = {"began": "2026-07-04T01:00:00+00:00", "ended": "2026-07-04T02:00:00+00:00", "seconds": 3600}
    told = {**msgspec.to_builtins(night_output(outcome, **times)), "exit": outcome.exit}
    return dict(json.loads(json.dumps(told)))


def test_the_summary_says_what_came_of_the_night_and_of_each_finding(tmp_path: Path) -> None:
    told = facts(tmp_path)
    assert list(announce(told, tmp_path / "summary.json", None, None)) == []
    assert json.loads((tmp_path / "summary.json").read_text()) == told
    assert (told["schema"], told["night"], told["fail_on"]) == (1, "20260704T010000", "any")
    assert told["exit"] == 2, "the finding is accepted, and too much is unknown"
    counts = {"valid": 1, "invalid": 1, "unknown": 1, "no_verdict": 0}
    assert told["counts"] == {"planned": 4, "played": 3, "retried": 2, "left_out": 1, **counts}
    (one,) = told["findings"]
    assert (one["state"], one["anomalies"], one["nights"]) == ("accepted", ["lost-write"], ["n1", "n2"])
    assert one["accepted"] == {
        "fingerprint": "0123456789ab", "owner": "alice", "until": "2026-12-31", "why": "KAFKA-17754"
    }  # fmt: skip
    (run,) = one["runs"]
    assert run["run"].startswith(f"{tmp_path}/runs/20260704T010000-squall-process")
    assert run["explain"].endswith(f"squall explain {run['run']}")
    whys = [each["attempts"][-1]["why"] for each in told["runs"] if each["attempts"]]
    assert "kill did not land" in whys and len(told["runs"]) == 4


def test_a_command_gets_the_summary_on_its_standard_input(tmp_path: Path) -> None:
    told = facts(tmp_path)
    command = f'{sys.executable} -c "{SAVE}" {tmp_path}/got'
    assert list(announce(told, tmp_path / "summary.json", None, command)) == []
    assert (tmp_path / "got").read_text() == (tmp_path / "summary.json").read_text()


def test_what_cannot_be_told_is_said_and_the_rest_is_told(tmp_path: Path) -> None:
    command = f"{sys.executable} -c \"import sys; print('no route', file=sys.stderr); sys.exit(7)\""
    said = list(announce(facts(tmp_path), tmp_path / "none/summary.json", tmp_path / "none/night.prom", command))
    assert said == [
        f"{tmp_path}/none/summary.json cannot be written: No such file or directory",
        f"--metrics {tmp_path}/none/night.prom cannot be written: No such file or directory",
        f"--notify {command}: exit code 7: no route",
    ]


def test_the_metrics_are_those_of_the_night(tmp_path: Path) -> None:
    assert list(announce(facts(tmp_path), tmp_path / "summary.json", tmp_path / "night.prom", None)) == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["night.prom", "summary.json"], "and no half of a file"
    families = text_string_to_metric_families((tmp_path / "night.prom").read_text())
    samples = {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}
    assert samples == {
        ("squall_nightly_exit_code",): 2,
        ("squall_nightly_end_time_seconds",): 1783130400,
        ("squall_nightly_duration_seconds",): 3600,
        ("squall_nightly_planned_runs",): 4,
        ("squall_nightly_left_out_runs",): 1,
        ("squall_nightly_retried_runs",): 2,
        ("squall_nightly_runs", "valid"): 1,
        ("squall_nightly_runs", "invalid"): 1,
        ("squall_nightly_runs", "unknown"): 1,
        ("squall_nightly_runs", "no verdict"): 0,
        ("squall_nightly_findings", "new"): 0,
        ("squall_nightly_findings", "expired"): 0,
        ("squall_nightly_findings", "known"): 0,
        ("squall_nightly_findings", "accepted"): 1,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--notify", "no-such-program -x"), "there is no program 'no-such-program'"),
        (("--notify", "'"), "No closing quotation"),
        (("--notify", ""), "a command is needed"),
        (("--metrics", "night.txt"), "node_exporter reads only files whose names end with .prom"),
        (("--metrics", "/none/night.prom"), "'/none/night.prom': there is no folder /none"),
        (("--summary", "/none/s.md"), "'/none/s.md': there is no folder /none"),
        (("--summary", ""), "'': a file is needed"),
        (("--mail", "/"), "'/': this is a folder, and a file is needed"),
        (("--fail-on", "new", "--no-report"), "--fail-on new needs the report"),
    ],
)
def test_what_could_not_be_told_is_refused_before_the_night(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["nightly", "--list", "--vary", "runtime=sim", *words]) == 3
    assert said in capsys.readouterr().err
