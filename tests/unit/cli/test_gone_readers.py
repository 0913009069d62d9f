"""Checks commands whose output is not read, or not stored, any more: they continue, with exit codes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from squall.chaos import cli

ROOT = Path(__file__).resolve().parents[3]
PRINTS = """
import subprocess, sys
import click
from squall.chaos import cli
from squall.chaos.screen import console
def command(**_):
    for number in range(2):
        print("a line", flush=True)
        click.echo("a line")
        click.echo("a line", err=True)
        console().print("a line " * 20_000)
        console(stderr=True).print("a line")
        code = subprocess.call([sys.executable, "-c", "import sys; print(1); print(2, file=sys.stderr)"])
    return 7 + code
cli.squall.main = command
cli.main()
"""
"""A program that prints in all ways in which commands print."""


def reader_has_gone() -> int:
    """Return the writing end of a pipe whose reading end is closed."""
    read, write = os.pipe()
    os.close(read)
    return write


def terminal_has_gone() -> int:
    """Return a descriptor of a terminal that was closed."""
    master, slave = os.openpty()
    os.close(master)
    return slave


def code_of(words: list[str], out: int, errors: int, folder: Path) -> int:
    """Run Python with these arguments, stdout and stderr, and return its exit code. Both descriptors are closed here.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *words], stdout=out, stderr=errors, cwd=folder, env=environment)
    for each in {out, errors} - {subprocess.DEVNULL}:
        os.close(each)
    return done.returncode


@pytest.mark.parametrize("gone", [reader_has_gone, terminal_has_gone])
@pytest.mark.parametrize("streams", ["stdout", "stderr", "both"])
def test_a_command_whose_reader_has_gone_goes_on(gone: object, streams: str, tmp_path: Path) -> None:
    assert callable(gone)
    end = gone()
    out = subprocess.DEVNULL if streams == "stderr" else end
    errors = subprocess.DEVNULL if streams == "stdout" else end
    assert code_of(["-c", PRINTS], out, errors, tmp_path) == 7


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["guarantees"], 0), (["guarantees", "--no"], 3)])
def test_so_do_the_commands_of_the_program(words: list[str], code: int, tmp_path: Path) -> None:
    end = reader_has_gone()
    assert code_of(["-m", "squall.chaos", *words], end, end, tmp_path) == code


def test_what_runs_as_another_module_goes_on_too(tmp_path: Path) -> None:
    end = reader_has_gone()
    (tmp_path / "prints.py").write_text("import sys\nprint('a line', flush=True)\nsys.exit(int(sys.argv[1]))\n")
    assert code_of(["-m", "squall.chaos.standard_streams", "prints", "7"], end, end, tmp_path) == 7


def test_the_descriptor_of_a_closed_stream_is_given_to_no_file(tmp_path: Path) -> None:
    words = "import os; from squall.chaos.standard_streams import outlive_readers; outlive_readers(); "
    words += 'print("a", flush=True); os._exit(os.open("a file", os.O_CREAT))'
    command = ["sh", "-c", 'exec "$0" "$@" >&- 2>&-', sys.executable, "-c", words]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 3


@pytest.mark.parametrize("streams", ["stdout", "stderr", "both"])
def test_a_command_whose_output_is_full_goes_on_and_says_so_once(streams: str, tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full, (tmp_path / "errors").open("wb") as errors:
        out = subprocess.DEVNULL if streams == "stderr" else os.dup(full.fileno())
        on = os.dup((errors if streams == "stdout" else full).fileno())
        assert code_of(["-c", PRINTS], out, on, tmp_path) == 7
    said = [line for line in (tmp_path / "errors").read_text().splitlines() if line not in ("a line", "2")]
    assert len(said) == (1 if streams == "stdout" else 0)
    for line in said:
        assert line.startswith("squall: standard output takes nothing more") and "No space left on device" in line


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["guarantees", "--acks", "1"], 0), (["runs"], 3)])
def test_on_a_full_disk_the_exit_codes_are_those_of_the_commands(words: list[str], code: int, tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        assert code_of(["-m", "squall.chaos", *words], os.dup(full.fileno()), subprocess.DEVNULL, tmp_path) == code


def test_a_pipe_of_the_harness_that_breaks_is_no_anomaly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def breaks(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("click.Group.invoke", breaks)
    monkeypatch.chdir(tmp_path)
    assert cli.run(["doctor"]) == 2
    assert "the machine refused: [Errno 32] Broken pipe" in capsys.readouterr().err
