"""`squall test`: what CI runs. Linters, types and layers first, then pytest, whose own summary ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]

CHECKS: dict[str, list[str]] = {
    "ruff": ["-m", "ruff", "check", "--quiet", "."],
    "layers": ["-c", "from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"],
    "mypy": ["-m", "mypy", "--no-error-summary"],
}

LANES = ["--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
"""Contract tests and those of containers mostly wait: one lane is theirs, the other everything else's."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--only", type=click.Choice(["lint", "tests"]), help="Run the linters only, or pytest only.")
@click.option("--all", "nothing_skipped", is_flag=True, help="Fail if a test was skipped.")
@click.option("--rules", is_flag=True, help="Take each rule of the broker out in turn: its tests must fail.")
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED)
def command(only: str | None, nothing_skipped: bool, rules: bool, pytest_arguments: tuple[str, ...]) -> int:
    """Run every test that CI runs: ruff, layers, mypy, then pytest, in two lanes where there are two CPUs: contract
    tests and containers in one, in the other everything else, the fast tests first. At the end, a line for each
    reason why tests were skipped: how many, what they need, how to get it.

    Further arguments go to pytest, which has one lane then, and leave the linters out. A few tests that take minutes
    are left out without them: -m night runs these.

    With --rules no other test runs. Arguments then name mechanisms or single rules; --jobs N runs N side by side.

    \b
    Examples:
      squall test
      squall test tests/unit -x
      squall test --only lint
      squall test --all                  fails where something was skipped
      squall test -m night               each night: the few that take minutes
      squall test --rules R4 C2.0
    """
    if rules:
        words = [sys.executable, "-m", "tests.mechanisms", *pytest_arguments]
        return subprocess.call(words, cwd=ROOT, env=_environment())
    if only != "tests" and not pytest_arguments:
        failed = [name for name, arguments in CHECKS.items() if not _passes(name, arguments)]
        if failed:
            click.echo(f"squall: {', '.join(failed)} failed; no test was run")
            return 1
    if only == "lint":
        return 0
    # A shell has its background jobs ignore Ctrl-C, nohup has them ignore a hangup, and all that they start: tests that
    # send it would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # One session, ordered by tests/conftest.py, so that one summary line speaks for all of it.
    words = list(pytest_arguments) or ["-m", "not night", *(LANES if (os.cpu_count() or 1) > 1 else [])]
    words += ["--all", "--durations=25"] if nothing_skipped else []
    return subprocess.call([sys.executable, "-m", "pytest", *words], cwd=ROOT, env=_environment())


def _passes(name: str, arguments: list[str]) -> bool:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    click.echo(f"{name}: {'passed' if done.returncode == 0 else 'FAILED'} in {time.monotonic() - began:.1f} s")
    if done.returncode:
        click.echo(done.stdout)
    return done.returncode == 0


def _environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": os.environ.get("COLUMNS", "140")}
