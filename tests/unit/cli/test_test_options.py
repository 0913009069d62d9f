"""`squall test` refuses options of which one would say nothing, and passes all others on."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from squall.chaos.commands import test as command_module

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--only lint --costs", "--costs and --only lint do not go together"),
        ("--costs --rules", "--costs and --rules do not go together"),
        ("--only lint -x", "--only lint and -x do not go together"),
        ("--go-on", "--go-on needs --results FILE"),
        ("--stale", "--stale does not go with the gate"),
        ("--all --costs", "--all does not go with --costs"),
        ("--results x.jsonl tests/unit", "--results does not go with tests/unit"),
        ("--only tests tests/unit", "--only tests does not go with tests/unit"),
    ],
)
def test_options_that_do_not_go_together_are_refused(monkeypatch: pytest.MonkeyPatch, options: str, why: str) -> None:
    monkeypatch.setattr(command_module, "_python", lambda *words: pytest.fail(f"{words} ran"))
    done = CliRunner().invoke(command_module.command, shlex.split(options))
    assert done.exit_code == 2
    assert why in done.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--only tests --no-skips --again", ("tests.support.gate", "--no-skips", "--again")),
        ("--costs --stale", ("tests.support.gate", "--stale", "--costs")),
        ("tests/unit -x --no-skips", ("tests.support.usage", "tests/unit", "-x", "--no-skips")),
        ("--rules R4 --jobs 1", ("tests.mechanisms", "R4", "--jobs", "1")),
        ("--night --only seeds hunts", ("tests.night", "--only", "seeds", "hunts")),
    ],
)
def test_what_goes_together_is_passed_on(monkeypatch: pytest.MonkeyPatch, options: str, words: tuple[str, ...]) -> None:
    ran: list[tuple[str, ...]] = []

    def become(*words: str) -> None:
        ran.append(words)
        raise SystemExit(0)

    monkeypatch.setattr(command_module, "_python", become)
    assert CliRunner().invoke(command_module.command, shlex.split(options)).exit_code == 0
    assert ran == [words]


@pytest.mark.parametrize(
    "words",
    ["--no-such-option", "tests/no_such_file.py", "--rules --no-such-option", "--rules R2 --jobs x", "--rules none",
     "--night --no-such-option", "--only nothing", "--go-on", "--results"],
)  # fmt: skip
def test_every_wrong_usage_ends_with_3(words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "squall.chaos", "test", *words.split()], cwd=ROOT, capture_output=True)
    assert done.returncode == 3, done.stderr.decode()


def test_a_file_of_results_is_where_the_command_was_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(command_module, "_python", lambda *words: ran.append(words))
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(command_module.command, ["--only", "tests", "--results", "all.jsonl"], standalone_mode=False)
    assert ran == [("tests.support.gate", "--results", str(tmp_path / "all.jsonl"))]
