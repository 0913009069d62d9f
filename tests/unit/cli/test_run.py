"""`squall run`: what is refused before anything starts, and what is said of a plan before it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from squall.chaos import cli
from squall.chaos.commands import run, sim
from squall.chaos.plans.operations import concrete
from squall.chaos.plans.plan import Plan, lengthened_for_proofs, make_plan, write_plan
from squall.chaos.plans.schedule import DEFAULT_KINDS
from squall.workloads.registry import SCENARIOS

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def shrunk(tmp_path: Path) -> Path:
    """A plan of processes that brings its own operations, as shrinking leaves one."""
    plan = concrete(make_plan({"runtime": "sim", "time_s": 10, "workload": {"rate": 20}}))
    path = tmp_path / "shrunk.toml"
    path.write_text(write_plan(plan.model_copy(update={"runtime": "process"})))
    return path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The lines of a refusal, without usage."""
    assert cli.run(list(arguments)) == 3
    said = capsys.readouterr().err
    return said.partition("Error: ")[2].splitlines() or said.splitlines()


@pytest.mark.parametrize("command", ["run", "sim"])
@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--rate", "50"], "--rate:"),
        (["--max-bytes", "500", "--rate", "7"], "--rate, --max-bytes:"),
    ],
)
def test_an_option_of_the_load_is_refused_where_the_plan_has_its_own_operations(
    command: str, flags: list[str], named: str, shrunk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = refused(capsys, command, "--plan", str(shrunk), *flags)
    assert line.startswith(named)
    assert "operations of its own, and they are its load" in line


def test_every_setting_of_the_draw_alone_is_a_setting() -> None:
    for scenario in SCENARIOS.values():
        assert set(scenario.DRAW_ONLY_SETTINGS) <= set(scenario.model_fields)


@pytest.mark.parametrize("name", [each for each in SCENARIOS if each != "appends"])
def test_the_operations_of_another_workload_are_refused_in_a_sentence(
    name: str, shrunk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = refused(capsys, "run", "--plan", str(shrunk), "--workload", name)
    assert "operations of its own, and they are of the workload appends" in line
    text = shrunk.read_text().replace('name = "appends"', f'name = "{name}"')
    shrunk.write_text("\n".join(line for line in text.splitlines() if not re.match("topics|partitions|acks", line)))
    lines = refused(capsys, "run", "--plan", str(shrunk))
    assert len([line for line in lines if ": operation " in line]) <= 4
    assert len(lines) < 20


def test_a_simulated_plan_starts_no_processes_unless_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(write_plan(make_plan({"runtime": "sim"})))
    (line,) = refused(capsys, "run", "--plan", str(path))
    assert f"./squall sim --plan {path}" in line
    started: list[Plan] = []
    monkeypatch.setattr("squall.chaos.runs.real.run_and_judge", lambda plan, *_: started.append(plan))
    assert cli.run(["run", "--plan", str(path), "--runtime", "process"]) == 130
    assert [plan.runtime for plan in started] == ["process"]


@pytest.mark.parametrize("flag", ["--set", "--topic-set"])
def test_the_example_of_a_wrong_pair_is_a_setting_that_there_is(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = refused(capsys, "run", flag, "nonsense")
    example = line.rpartition(f"as in {flag} ")[2]
    monkeypatch.setattr("squall.chaos.runs.real.run_and_judge", lambda plan, *_: None)
    assert cli.run(["run", flag, example]) == 130


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bootstrap", "localhost:9092"], "--bootstrap: only for a cluster that already runs: --runtime external"),
        (
            ["--compose", "c.yaml", "--target", "other"],
            "--compose, --target other: only for a cluster",
        ),
        (["--runtime", "sim"], "'sim': ./squall sim simulates runs; it takes the same flags"),
        (["--runtime", "external"], "--runtime external needs --bootstrap HOST:PORT"),
        (["--runtime", "external", "--bootstrap", "nonsense"], "--bootstrap nonsense: HOST:PORT is wanted"),
        (["--runtime", "external", "--bootstrap", "h:port"], "--bootstrap h:port: HOST:PORT is wanted"),
        (["--nodes", "0"], "--nodes: it must be at least 1"),
        (["--plan", "no-such.toml"], "no-such.toml: there is no such file"),
        (["--plan", "README.md"], "README.md: not TOML"),
        (["--plan", "docs"], "docs is a folder"),
    ],
)
def test_a_mistake_of_a_newcomer_is_one_sentence(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (line,) = refused(capsys, "run", *arguments)
    assert said in line


# -------------------------------------------------------------------------------------------- faults that are drawn


def planned(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Plan:
    """The plan that `squall run` would have run."""
    plans: list[Plan] = []
    monkeypatch.setattr("squall.chaos.runs.real.run_and_judge", lambda plan, *_: plans.append(plan))
    assert cli.run(["run", "--seed", "7", *arguments]) == 130
    return plans[0]


@pytest.mark.parametrize("command", ["run", "sim"])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            "--time 0 --nodes 0 --rate 0",
            [
                "--time: it must be above 0 (given: 0.0)",
                "--nodes: it must be at least 1 (given: 0)",
                "--rate: it must be at least 1 (given: 0)",
            ],
        ),
        ("--min-isr 5", ["--min-isr 5 is above --replication-factor 3"]),
        ("--replication-factor 5", ["--replication-factor 5 needs as many nodes; --nodes is 3"]),
        ("--topic-set min.isr=2", ["--topic-set: unknown topic setting min.isr: did you mean min.insync.replicas?"]),
        (
            "--faults kill,partiton,timeout,none",
            [
                "unknown fault 'partiton': did you mean 'partition'?",
                "unknown fault 'timeout': here it is partition with manner drop (docs/faults.md)",
                "none excludes all faults: leave it out, or name it alone",
            ],
        ),
        (
            "--churn 3 --max-bytes 9 --workload transactions",
            [
                "--max-bytes: the workload transactions has no such setting; these have: appends",
                "--churn: the workload transactions has no such setting; these have: groups, pipeline, semantics",
            ],
        ),
    ],
)
def test_mistakes_are_told_all_at_once_in_the_words_of_the_command_line(
    command: str, flags: str, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, command, *flags.split()) == said


def test_mistakes_of_a_file_keep_its_words_beside_those_of_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(write_plan(make_plan({"runtime": "process"})))
    assert refused(capsys, "run", "--plan", str(plan), "--min-isr", "5") == [
        "--min-isr 5 is above replication_factor 3"
    ]


@pytest.mark.parametrize(("more", "engine"), [([], "spark"), (["--engine", "reference"], "reference")])
def test_spark_searches_the_history_unless_another_engine_is_named(
    more: list[str], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("squall.chaos.runs.real.run_and_judge", lambda *given: asked.append(given[-1]))
    assert cli.run(["run", "--seed", "7", *more]) == 130
    assert asked == [engine]


@pytest.mark.parametrize(("more", "drawn"), [([], False), (["--faults", "kill"], True)])
def test_only_the_faults_of_this_run_are_drawn_and_those_of_a_plan_are_played_as_it_says(
    more: list[str], drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Plan, bool]] = []
    monkeypatch.setattr("squall.chaos.runs.real.run_and_judge", lambda plan, *rest: asked.append((plan, rest[-2])))
    assert cli.run(["run", "--seed", "7"]) == 130
    (tmp_path / "plan.toml").write_text(write_plan(lengthened_for_proofs(asked[0][0], 200.0)))
    assert cli.run(["run", "--plan", str(tmp_path / "plan.toml"), *more]) == 130
    assert [(plan.probe_ms, each) for plan, each in asked] == [(None, True), (None if drawn else 200.0, drawn)]


@pytest.mark.parametrize("seed", range(5))
def test_kinds_that_found_no_room_are_named_before_the_run_with_a_time_that_has_room(
    seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {"kill", "partition", "pause", "stop"}
    asked = ["--seed", str(seed), "--faults", ",".join(sorted(kinds))]
    plan = planned(monkeypatch, *asked, "--time", "12")
    said = capsys.readouterr().err
    found = re.search(r"no room in 12 s of load for (.*); --time (\d+) has room for all kinds", said)
    assert found is not None
    assert set(found[1].split(", ")) == kinds - {fault.action for fault in plan.faults}
    plan = planned(monkeypatch, *asked, "--time", found[2])
    assert {fault.action for fault in plan.faults} == kinds
    assert not capsys.readouterr().err


def test_as_many_faults_are_drawn_as_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    all_of_them = planned(monkeypatch, "--faults", "kill,pause", "--time", "60").faults
    for count in (1, 3, len(all_of_them)):
        asked = ["--faults", "kill,pause", "--time", "60", "--fault-count", str(count)]
        assert planned(monkeypatch, *asked).faults == all_of_them[:count]
    capsys.readouterr()
    (line,) = refused(capsys, "run", "--seed", "7", "--time", "60", "--fault-count", "40")
    found = re.search(r"has room for (\d+), one of (\d+) s for all", line)
    assert found is not None
    assert len(planned(monkeypatch, "--time", found[2], "--fault-count", "40").faults) == 40


def test_a_count_without_faults_to_draw_is_refused(shrunk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--faults", "none"], ["--plan", str(shrunk)]):
        (line,) = refused(capsys, "run", *arguments, "--fault-count", "3")
        assert line.startswith("--fault-count:")
    (line,) = refused(capsys, "run", "--upgrade-to", ".", "--faults", "upgrade", "--fault-count", "2")
    assert "only once" in line


# --------------------------------------------------------------------------------------------------------- the help


def defaults_of(command: str) -> dict[str, str]:
    """Option -> the default that its help names."""
    module = {"run": run, "sim": sim}[command]
    return {
        option.opts[0]: found[1]
        for option in module.command.params
        if (found := re.search(r"\[default: (.*)\]", getattr(option, "help", "") or ""))
    }


@pytest.mark.parametrize("name", list(SCENARIOS))
@pytest.mark.parametrize("extra", [[], ["--rate", "3"]])
@pytest.mark.parametrize("command", ["run", "sim"])
def test_the_help_of_a_command_shows_the_defaults_that_hold_for_it(
    command: str, extra: list[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []
    monkeypatch.setattr("squall.chaos.runs.real.run_and_judge", lambda plan, *_: plans.append(plan))
    monkeypatch.setattr(sim, "_single", lambda plan, *_: plans.append(plan) or 0)
    cli.run([command, "--seed", "1", "--workload", name, *extra])
    if command == "sim" and not SCENARIOS[name].SIMULATED:
        assert plans == []
        return
    table = plans[0].workload.model_dump()
    seen = 0
    for option, told in defaults_of(command).items():
        setting = option.lstrip("-").replace("-", "_")
        if setting not in table or (extra and setting == "rate"):
            continue
        by_workload = {each[1]: each[0] for each in re.findall(r"([^()]+) \((\w+)\)(?:, )?", told)}
        word = by_workload[name] if by_workload else told
        without, _, with_rate = word.partition(", or ")
        word = with_rate.split()[0] if extra and with_rate else without
        said = {"acks": {-1: "all"}, "directory": {os.getcwd(): "the current folder"}}
        value = said.get(setting, {}).get(table[setting], table[setting])
        value = {"True": "on", "False": "off"}.get(str(value), value)
        assert word == (str(value) or "none"), option
        seen += 1
    assert seen >= 6


def test_the_simulator_offers_no_client_library_that_it_refuses() -> None:
    said = CliRunner().invoke(sim.command, ["--help"]).output
    assert "confluent" not in said
    assert "confluent" in CliRunner().invoke(run.command, ["--help"]).output


# --------------------------------------------------------------------------------------------------- what pages say


def options_of(command: click.Command) -> set[str]:
    return {name for option in command.params for name in option.opts if name.startswith("--")} - {"--out", "--help"}


def test_the_page_of_run_has_every_option_and_every_value_that_an_option_can_have() -> None:
    page = (ROOT / "docs/run.md").read_text()
    table = page.partition("## Flags")[2].partition("## While it runs")[0]
    told = set(re.findall(r"--[a-z][a-z-]*", table))
    assert options_of(run.command) <= told
    assert told - options_of(run.command) <= {name for option in run.command.params for name in option.secondary_opts}
    rows = {row.split("`")[1].split()[0]: row for row in table.splitlines() if row.startswith("| `--")}
    for option in run.command.params:
        if isinstance(option.type, click.Choice) and option.opts[0] in rows and option.opts[0] != "--codec":
            values = set(option.type.choices) - {"-1"}
            assert all(f"`{value}`" in rows[option.opts[0]] for value in values), option.opts[0]


def test_the_page_of_sim_names_every_option_of_run_that_it_has_not() -> None:
    page = (ROOT / "docs/sim.md").read_text()
    told = page.partition("do not apply:")[2].partition("Without `--plan`")[0]
    assert set(re.findall(r"`(--[a-z-]+)`", told)) == options_of(run.command) - options_of(sim.command)


def test_the_examples_of_help_count_the_kinds_that_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    epilog = run.command.epilog or ""
    assert f"{len(DEFAULT_KINDS)} kinds of faults" in epilog
    for line in re.findall(r"^  squall (.*?)(?:  .*)?$", epilog, flags=re.MULTILINE):
        if "--plan" not in line:
            planned(monkeypatch, *line.split()[1:])


def test_help_of_run_imports_neither_broker_nor_history() -> None:
    script = (
        "import sys; from squall.chaos import cli; code = cli.run(['run', '--help']); "
        "slow = ('trio', 'rich', 'numpy'); "
        "slow += ('squall.broker.protocol', 'squall.broker.config', 'squall.checkers.history'); "
        "loaded = [name for name in sys.modules if name.startswith(slow)]; "
        "assert not loaded, loaded; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["run", "sim"])
def test_an_isolation_that_there_is_not_is_refused_and_so_is_one_of_a_workload_without(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = " ".join(refused(capsys, command, "--workload", "transactions", "--isolation", "serializable"))
    assert "'--isolation': 'serializable' is not one of 'read_committed', 'read_uncommitted', 'both'" in said
    (line,) = refused(capsys, command, "--isolation", "both")
    assert line == "--isolation: the workload appends has no such setting; these have: transactions, load"
    line, asked = refused(capsys, command, "--executors", "3")
    assert line == "--executors: the workload appends has no such setting; these have: load"
    assert asked == "did you forget --workload load?"


@pytest.mark.parametrize("command", ["run", "sim"])
def test_a_coordinators_log_that_finds_too_few_brokers_is_refused_with_what_to_set(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    factor = "transaction.state.log.replication.factor"
    (line,) = refused(capsys, command, "--workload", "transactions", "--nodes", "2", "--set", f"{factor}=3")
    assert line.endswith(f"so no producer gets a transactional id: set {factor}=2, or leave it out")
