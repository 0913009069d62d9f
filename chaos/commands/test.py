"""`squall test`: what CI runs. Linters, types and layers first, then pytest, whose own summary ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import click

ROOT = Path(__file__).resolve().parents[2]

CHECKS: dict[str, list[str]] = {
    "ruff": ["-m", "ruff", "check", "--quiet", "."],
    "layers": ["-c", "from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"],
    "mypy": ["-m", "mypy", "--no-error-summary"],
}

AGAIN_AT_MOST = 3
"""More failures than that have a reason that they share."""

LANES = ["--numprocesses", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
"""With two CPUs: in two lanes tests left both idle for two thirds of the time, because those of real processes and of
containers mostly wait. The longest part has a lane of its own, see `tests/conftest.py`."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--only", type=click.Choice(["lint", "tests"]), help="Run the linters only, or pytest only.")
@click.option("--all", "nothing_skipped", is_flag=True, help="Fail if a test was skipped.")
@click.option("--again", is_flag=True, help="Run a few failed tests once more, alone, to tell flaky ones.")
@click.option("--rules", is_flag=True, help="Take each rule of the broker out in turn: its tests must fail.")
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    only: str | None, nothing_skipped: bool, again: bool, rules: bool, pytest_arguments: tuple[str, ...]
) -> int:
    """Run every test that CI runs: ruff, layers, mypy, then pytest, in three lanes where there are two CPUs: contract
    tests and containers in one, in the others everything else, the fast tests first. At the end, a line for each
    reason why tests were skipped: how many, what they need, how to get it.

    Further arguments go to pytest, which has one lane then, and leave the linters out. A few tests that take minutes
    are left out without them: -m night runs these.

    With --again, where at most three tests failed, these run once more when everything else is done, each time alone.
    Those that pass then are told as FLAKY. That says where to look, and excuses nothing: the exit code stays 1.

    With --rules no other test runs. Arguments then name mechanisms or single rules; --jobs N runs N side by side.

    \b
    Examples:
      squall test
      squall test tests/unit -x
      squall test --only lint
      squall test --all                  fails where something was skipped
      squall test --all --again          what CI runs
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
    return _twice(words) if again else _pytest(words)


def _pytest(words: list[str]) -> int:
    return subprocess.call([sys.executable, "-m", "pytest", *words], cwd=ROOT, env=_environment())


def _twice(words: list[str]) -> int:
    """The exit code of pytest, which a second try of a few failed tests does not change: it tells which are flaky."""
    with TemporaryDirectory() as cache:
        code = _pytest([*words, "-o", f"cache_dir={cache}"])
        failed = failed_in(Path(cache))
    if code == 1 and 0 < len(failed) <= AGAIN_AT_MOST:
        for each in failed:
            click.echo(f"squall: once more, alone: {each}")
            told = "FLAKY, it passes alone" if _pytest([each]) == 0 else "fails alone, too"
            click.echo(f"squall: {told}: {each}")
    return code


def failed_in(cache: Path) -> list[str]:
    """The failed tests of a session of pytest, from its cache."""
    known = cache / "v/cache/lastfailed"
    return sorted(json.loads(known.read_text(encoding="utf-8"))) if known.exists() else []


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
