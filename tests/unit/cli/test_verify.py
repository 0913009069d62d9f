"""`squall verify`: what is asked of Spark reaches the process that starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from squall.chaos import cli
from squall.chaos.commands.verify import command, spark_of
from squall.chaos.errors import PreconditionError
from squall.chaos.plans.plan import make_plan, write_plan
from squall.chaos.runs import judgement
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.real import lacks
from squall.chaos.runs.spark import HERE, SparkOptions
from squall.chaos.toolchain.java import JavaRuntime
from squall.checkers import engines

FLAGS = (
    "--master spark://h:7077 --executor-memory 8g --executor-cores 4 --cores 16 --driver-memory 3g "
    "--spark-set spark.driver.host=10.0.0.1 --spark-set spark.x=a=b --limit 60"
).split()
ASKED = SparkOptions(
    "spark://h:7077",
    {
        "spark.executor.memory": "8g",
        "spark.executor.cores": "4",
        "spark.cores.max": "16",
        "spark.driver.memory": "3g",
        "spark.driver.host": "10.0.0.1",
        "spark.x": "a=b",
    },
    60.0,
)


def asked(*flags: str) -> SparkOptions:
    with command.make_context("verify", ["runs/latest", *flags]) as context:
        given: dict[str, Any] = context.params
        return spark_of(given)


def test_without_flags_it_runs_on_this_machine() -> None:
    assert asked() == HERE


def test_every_flag_is_a_setting_of_spark() -> None:
    assert asked(*FLAGS) == ASKED


def test_a_setting_without_a_value_is_wrong_usage() -> None:
    result = CliRunner().invoke(command, ["runs/latest", "--spark-set", "spark.x"])
    assert result.exit_code == 2, "click's own; the program makes 3 of it"
    assert "--spark-set spark.x: it is NAME=VALUE" in result.stderr


def test_options_of_spark_are_wrong_usage_where_another_engine_judges(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [str(tmp_path), "--engine", "reference", "--cores", "2"])
    assert result.exit_code == 2, "click's own; the program makes 3 of it"
    assert "--engine reference: it ignores the options of Spark" in result.stderr


def test_a_history_that_is_too_large_for_the_reference_engine_is_refused_and_keeps_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(tmp_path)
    run.history.write_bytes(b"x")
    run.plan.write_text(write_plan(make_plan({})))
    run.verdict.write_text("{}")
    monkeypatch.setattr(engines, "LARGEST_MIB", 0)
    assert cli.run(["verify", str(tmp_path), "--engine", "reference"]) == 3
    assert "the reference engine takes at most 0 MiB; Spark takes more" in capsys.readouterr().err
    assert run.verdict.read_text() == "{}"
    judged = judgement.judge(run, Console(quiet=True), spark=None)  # the end of a run
    assert judged["verdict"] == "unknown"
    assert "history.jsonl has 0 MiB, and the reference engine takes at most 0 MiB" in judged["reasons"][0]
    (lack,) = lacks(make_plan({}), engines.REFERENCE)
    assert "the history of this load will have about 18 MiB" in lack.what


@pytest.mark.parametrize("archive", [None, Path("/cache/classes.jsa")])
def test_spark_gets_master_settings_and_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: Path | None
) -> None:
    commands = []

    def run(given: list[str], log: Path, limit_s: float, show: Any) -> int:
        commands.append((given, limit_s))
        return 0

    monkeypatch.setattr(judgement, "java", lambda say: JavaRuntime(Path("/opt/java"), 21))
    monkeypatch.setattr(judgement, "class_archive_here", lambda there: archive)
    monkeypatch.setattr(judgement, "run_staged", run)
    assert judgement.analyse(RunDirectory(tmp_path), Console(quiet=True), ASKED) is None
    ((given, limit_s),) = commands
    assert limit_s == 60
    assert given[given.index("--master") + 1] == "spark://h:7077"
    assert [each for each in given if each.startswith("--conf=")] == [f"--conf={n}={v}" for n, v in ASKED.conf.items()]
    assert ("--class-archive" in given) == (archive is not None)
    assert (str(archive) in given) == (archive is not None)


EDN = "{:type :invoke, :f :send, :value [[:send 0 1]], :process 0, :time 1234, :index 0}\n"


@pytest.mark.parametrize("named", ["store/history.edn", "store", "store/history.txt"])
def test_a_history_of_jepsen_is_refused_as_edn_with_what_to_do(tmp_path: Path, named: str) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/history.edn").write_text(EDN)
    (tmp_path / "store/history.txt").write_text(EDN)
    with pytest.raises(
        PreconditionError, match=r"this is EDN.*Jepsen's checkers, or write its operations as docs/run-directory"
    ):
        RunDirectory.open(tmp_path / named)


def test_a_folder_of_runs_and_a_file_are_no_run(tmp_path: Path) -> None:
    (tmp_path / "runs/one").mkdir(parents=True)
    (tmp_path / "runs/one/plan.toml").touch()
    with pytest.raises(PreconditionError, match="this is a folder of runs; name one of them, such as .*/runs/one"):
        RunDirectory.open(tmp_path / "runs")
    with pytest.raises(PreconditionError, match="this is a file; name the directory of a run"):
        RunDirectory.open(tmp_path / "runs/one/plan.toml")
    (tmp_path / "night.json").touch()
    with pytest.raises(
        PreconditionError, match="this is a night, .*squall report --nightly .*; its runs are in .*/runs$"
    ):
        RunDirectory.open(tmp_path)
