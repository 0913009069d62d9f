"""The command line as a whole: help, exit codes, and the table of commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from squall.chaos import cli
from squall.chaos.errors import HarnessError, PreconditionError, error_message, gravest_error, traceback_text
from squall.chaos.screen import console

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_of_the_table_loads_and_says_what_it_is_for(name: str) -> None:
    command = cli.squall.get_command(click.Context(cli.squall), name)
    assert command is not None
    assert command.help


def test_every_module_of_commands_is_in_the_table() -> None:
    # What commands share, and what none of them is by itself.
    shared = {"__init__", "completions", "conclusion", "durability", "grouped", "night_end", "night_evidence"}
    shared |= {"engines", "json_output", "outputs", "run_output", "sim_batch", "sim_coverage"}
    stems = {path.stem for path in (ROOT / "chaos/commands").glob("*.py")}
    modules = {f"squall.chaos.commands.{stem}" for stem in stems - shared}
    assert modules == {module for module, _ in cli.COMMANDS.values()}


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["--nonsense"], ["broker"], ["broker", "--config", "/nonexistent"]]
)
def test_usage_errors_exit_with_three(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 3
    assert "Usage:" in capsys.readouterr().err


def test_help_names_every_command_and_imports_none_of_them() -> None:
    script = (
        "import sys; from squall.chaos import cli; code = cli.run(['--help']); "
        "heavy = {'trio', 'rich', 'pydantic', 'numpy'}; "
        "loaded = [m for m in sys.modules if m.startswith('squall.chaos.commands.') or m in heavy]; "
        "assert not loaded, loaded; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"  {name} " in done.stdout for name in cli.COMMANDS)
    assert "Examples:" in done.stdout


def test_harness_errors_are_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, code in ((HarnessError("it broke"), 2), (PreconditionError("no go: install go"), 3)):

        def fails(error: Exception = error, **_: object) -> None:
            raise error

        monkeypatch.setattr(cli.squall, "main", fails)
        assert cli.run([]) == code
        assert capsys.readouterr().err == f"squall: {error}\n"


def test_trouble_is_found_in_the_groups_that_trio_wraps_it_in() -> None:
    refused, interrupted, bug = PreconditionError("no"), KeyboardInterrupt(), AssertionError()
    assert gravest_error(ExceptionGroup("", [ExceptionGroup("", [refused])])) is refused
    assert gravest_error(BaseExceptionGroup("", [interrupted, refused])) is refused
    assert gravest_error(BaseExceptionGroup("", [interrupted, refused, ExceptionGroup("", [bug])])) is bug
    assert gravest_error(BaseExceptionGroup("", [interrupted])) is interrupted


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("x"), "KeyError: 'x'"),
        (AssertionError(), "AssertionError"),
        (ValueError("one\n  two"), "ValueError: one two"),
        (HarnessError("no broker"), "no broker"),
        (PreconditionError(""), "PreconditionError"),
        (ExceptionGroup("a nursery", [ExceptionGroup("another", [KeyError("x")])]), "KeyError: 'x'"),
        (ExceptionGroup("a nursery", [HarnessError("no broker"), KeyError("x")]), "KeyError: 'x'"),
    ],
)
def test_the_last_line_of_a_traceback_says_what_is_wrong(error: Exception, said: str) -> None:
    text = traceback_text(error)
    assert error_message(error) == said
    assert text.endswith("\n")
    assert text.splitlines()[-1].endswith(said)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (AssertionError("a rule"), "inside Squall, and no word about the cluster: AssertionError: a rule"),
        (ExceptionGroup("two", [KeyError("x"), ValueError("y")]), "KeyError: 'x'"),
        (OSError(28, "No space left on device"), "the machine refused: [Errno 28] No space left on device"),
    ],
)
def test_a_bug_of_ours_is_unknown_in_a_sentence_and_keeps_its_traceback(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fails(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli.squall, "main", fails)
    monkeypatch.chdir(tmp_path)
    assert cli.run([]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told
    (kept,) = (tmp_path / "runs").iterdir()
    assert str(Path("runs") / kept.name) in told
    assert "Traceback" in kept.read_text()


def test_a_traceback_that_no_file_takes_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fails(**_: object) -> None:
        raise AssertionError("a broken rule")

    monkeypatch.setattr(cli.squall, "main", fails)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("no folder")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere/at/all"))
    assert cli.run([]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("rnu", "did you mean 'run'?"),
        ("simulate", "did you mean 'sim'?"),
        ("zzz", "one of run, sim"),
        ("prune", "'prune': one of run, sim"),  # `run` has three letters of five in common, and nothing to do with it
        ("help", "squall --help"),
        ("version", "squall --version"),
    ],
)
def test_a_command_that_does_not_exist_is_told_with_the_nearest_name(
    given: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([given]) == 3
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("option", "said"), [("--ack", "Did you mean '--acks'?"), ("--probe", "'--probe'.\n")])
def test_an_option_that_does_not_exist_is_told_with_the_nearest_one_if_that_is_near(
    option: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["run", option, "1"]) == 3
    assert capsys.readouterr().err.endswith(f"No such option {option!r}. {said}\n" if "?" in said else said)


def test_lines_in_a_pipe_are_whole_and_a_terminal_has_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width > 1000
    monkeypatch.setenv("COLUMNS", "72")
    assert console().width == 72
