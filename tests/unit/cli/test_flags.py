"""`squall.toml` and `SQUALL_COMMAND_FLAG`: flags that a team always gives, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from squall.chaos import cli
from squall.chaos.flags import default_map, environment_of_children
from squall.chaos.plans.plan import make_plan, write_plan


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout, which is the working directory."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error message for a command that is wrong usage."""
    assert cli.run(words) == cli.USAGE
    return capsys.readouterr().err


def guaranteed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The configuration that `squall guarantees` was asked about, as its first line names it."""
    assert cli.run(["guarantees", *words]) == 0
    return capsys.readouterr().out.splitlines()[0]


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "squall.toml").write_text('[guarantees]\nacks = "all"\nreplication-factor = 5\n')
    assert guaranteed([], capsys) == "acks=all, min ISR 2 or more (replication factor 5)"
    monkeypatch.setenv("SQUALL_GUARANTEES_REPLICATION_FACTOR", "6")
    assert guaranteed([], capsys).endswith("(replication factor 6)")
    assert guaranteed(["--replication-factor", "7"], capsys).endswith("(replication factor 7)")


def test_the_nearest_file_up_to_the_checkout_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = folder / "a/b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    (folder / "squall.toml").write_text("[guarantees]\nreplication-factor = 5\n")
    assert "factor 5" in guaranteed([], capsys)
    (folder / "a/squall.toml").write_text("[guarantees]\nreplication-factor = 6\n")
    assert "factor 6" in guaranteed([], capsys)
    (inner / ".git").touch()
    assert "factor 3" in guaranteed([], capsys), "the checkout ends here"


@pytest.mark.parametrize("named", ["", "other.toml"])
def test_the_environment_names_another_file_or_none(
    named: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "squall.toml").write_text("[guarantees]\nreplication-factor = 5\n")
    (folder / "other.toml").write_text("[guarantees]\nreplication-factor = 6\n")
    monkeypatch.setenv("SQUALL_CONFIG", named)
    assert f"factor {6 if named else 3}" in guaranteed([], capsys)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[guarantees]\nmin-isr = 1\nakcs = 1\n", 3, "squall guarantees has no such flag: did you mean 'acks'?"),
        ('[guarantees]\nacks = "two"\n', 2, "'two' is not one of"),
        ("\n[guarantees]\nmin-isr = [1, 2]\n", 3, "one value is wanted, not [1, 2]"),
        ("[guarantees]\nmin-isr = true\n", 2, "a value is wanted, not true"),
        ('[guarantees]\nunclean = "perhaps"\n', 2, "'perhaps' is not a valid boolean"),
        ("# ours\n[guarantee]\nacks = 1\n", 2, "there is no command 'guarantee': did you mean 'guarantees'?"),
        ("acks = 1\n", 1, "there is no command 'acks'"),
        ("run = 1\n", 1, "flags stand in a table of their command, such as [run], not 1"),
    ],
)
def test_a_mistake_is_told_with_its_file_and_line(
    text: str, line: int, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "squall.toml").write_text(text)
    told = refused(["guarantees"], capsys)
    assert f"squall.toml: line {line}: " in told and said in told


def test_the_example_of_the_page_is_accepted(folder: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/flags.md").read_text()
    (folder / "squall.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    group = click.Context(cli.squall)
    for name in ("run", "sim", "nightly", "cluster"):
        command = cli.squall.get_command(group, name)
        assert command is not None
        assert default_map(group, name, command, cli.COMMANDS)[name]


def test_a_file_that_is_no_toml_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "squall.toml").write_text("[guarantees\n")
    assert "squall.toml: not TOML: " in refused(["guarantees"], capsys)


def test_a_wrong_variable_is_told_by_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SQUALL_GUARANTEES_AKCS", "1")
    assert "SQUALL_GUARANTEES_AKCS: squall guarantees has no such flag" in refused(["guarantees"], capsys)
    monkeypatch.delenv("SQUALL_GUARANTEES_AKCS")
    monkeypatch.setenv("SQUALL_GUARANTEES_MIN_ISR", "none")
    assert "SQUALL_GUARANTEES_MIN_ISR: 'none' is not a valid integer range." in refused(["guarantees"], capsys)


def test_help_is_there_although_the_file_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "squall.toml").write_text("[guarantees\n")
    assert cli.run(["guarantees", "--help"]) == 0
    assert "--min-isr" in capsys.readouterr().out


def test_commands_inside_a_command_have_tables_of_their_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "squall.toml").write_text('[cluster.up]\nnodes = 1\nset = ["log.segment.bytes=65536"]\n')
    group = cli.squall.get_command(click.Context(cli.squall), "cluster")
    assert group is not None
    made = default_map(click.Context(cli.squall), "cluster", group, cli.COMMANDS)
    assert made == {"cluster": {"up": {"nodes": "1", "given": ["log.segment.bytes=65536"]}}}
    (folder / "squall.toml").write_text("[cluster.up]\nnode = 1\n")
    told = refused(["cluster", "up"], capsys)
    assert "squall.toml: line 2: cluster.up.node: squall cluster up has no such flag" in told


@pytest.mark.parametrize("named", ["--plan", "--swarm", "--seeds"])
def test_a_plan_that_is_named_is_not_changed_by_the_file(
    named: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[object] = []
    monkeypatch.setattr("squall.chaos.commands.sim._single", lambda plan, *_: seen.append(plan) or 0)
    monkeypatch.setattr("squall.chaos.commands.sim.run_seeds", lambda *_: seen.append("batch") or 0)
    plan = make_plan({"seed": 3, "runtime": "sim", "cluster": {"nodes": 3}})
    (folder / "plan.toml").write_text(write_plan(plan))
    (folder / "squall.toml").write_text('[sim]\nnodes = 5\nset = ["log.segment.bytes=65536"]\n')
    words = {"--plan": ["--plan", "plan.toml"], "--swarm": ["--swarm", "--seed", "3"], "--seeds": ["--seeds", "0..2"]}
    assert cli.run(["sim", *words[named]]) == 0
    if named == "--plan":
        assert seen == [plan]
        assert cli.run(["sim", "--plan", "plan.toml", "--nodes", "4"]) == 0
        assert seen[1].cluster.nodes == 4  # type: ignore[attr-defined]
        assert cli.run(["sim", "--seed", "3"]) == 0
        assert seen[2].cluster.nodes == 5  # type: ignore[attr-defined]


def test_runs_of_a_night_have_the_flags_of_the_night_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUALL_RUN_NODES", "5")
    monkeypatch.setenv("SQUALL_SIM_NODES", "5")
    monkeypatch.setenv("SQUALL_CACHE", "/cache")
    told = environment_of_children()
    assert (told["SQUALL_CONFIG"], told["SQUALL_CACHE"]) == ("", "/cache")
    assert not {"SQUALL_RUN_NODES", "SQUALL_SIM_NODES"} & told.keys()
