"""Exit codes of every command: 2 is whatever breaks, 3 wrong usage, 130 a signal."""

from __future__ import annotations

import errno
import importlib
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from squall.chaos import cli
from squall.chaos.errors import HarnessError, PreconditionError

BREAKS = [
    (RuntimeError("a rule"), 2, "a failure inside Squall, and no word about the cluster"),
    (AssertionError("a rule"), 2, "a failure inside Squall, and no word about the cluster"),
    (OSError(errno.ENOSPC, "No space left on device"), 2, "the machine refused: [Errno 28] No space left on device"),
    (ExceptionGroup("of a nursery", [ValueError("x")]), 2, "ValueError: x"),
    (HarnessError("a link is gone"), 2, "squall: a link is gone"),
    (PreconditionError("there is no engine"), 3, "squall: there is no engine"),
    (KeyboardInterrupt(), 130, "squall: interrupted"),
]
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", [name for name in cli.COMMANDS if name != "test"])
def test_an_option_that_a_command_has_not_is_wrong_usage(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`squall test` is left out: it becomes pytest, which gets what `squall test` does not know."""
    assert cli.run([name, "--no-such-option"]) == 3
    assert "--no-such-option" in capsys.readouterr().err


@pytest.mark.parametrize("name", cli.COMMANDS)
@pytest.mark.parametrize(("error", "code", "said"), BREAKS, ids=[type(error).__name__ for error, _, _ in BREAKS])
def test_whatever_breaks_in_a_command_never_looks_like_an_anomaly(
    name: str,
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def breaks(_: click.Context) -> None:
        raise error

    command = importlib.import_module(cli.COMMANDS[name][0]).command
    monkeypatch.setattr(command, "params", [])
    monkeypatch.setattr(command, "no_args_is_help", False)
    monkeypatch.setattr(command, "invoke", breaks)
    monkeypatch.chdir(tmp_path)
    assert cli.run([name]) == code
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


def told_and_code(tmp_path: Path, command: str) -> tuple[str, int]:
    """Return the output and the exit code of `squall` with this text as a command."""
    # Read from a module: for `-c` and for a file Python keeps the code.
    (tmp_path / "interrupted_import.py").write_text(f"{command}\ncli.squall.main = command; cli.main()")
    done = subprocess.run(
        [sys.executable, "-m", "interrupted_import"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    return done.stderr, done.returncode


def test_an_interruption_of_an_import_is_an_exit_code_and_no_death_by_a_signal(tmp_path: Path) -> None:
    command = "from squall.chaos import cli\ndef command(**_): exec('raise KeyboardInterrupt')"
    assert told_and_code(tmp_path, command) == ("squall: interrupted\n", 130)


def test_so_it_is_where_the_command_itself_catches_it(tmp_path: Path) -> None:
    command = """
from squall.chaos import cli
def command(**_):
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return 130
"""
    assert told_and_code(tmp_path, command) == ("", 130)
