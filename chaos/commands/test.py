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

OF_PROCESSES = ("tests/live/", "tests/interop/")
AGAIN_AT_MOST = 3
SKIPPED = "squall/skipped"
"""In pytest's cache, if --all fails because tests were skipped: tests/support/lacks.py."""

LANES = ["--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
"""Contract tests and those of containers mostly wait: one lane is theirs, the other everything else's."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--only", type=click.Choice(["lint", "tests"]), help="Run the linters only, or pytest only.")
@click.option("--all", "nothing_skipped", is_flag=True, help="Fail if a test was skipped.")
@click.option("--again", is_flag=True, help="Run a few failed tests of real processes once more, and tell it.")
@click.option("--rules", is_flag=True, help="Take each rule of the broker out in turn: its tests must fail.")
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    only: str | None, nothing_skipped: bool, again: bool, rules: bool, pytest_arguments: tuple[str, ...]
) -> int:
    """Run every test that CI runs: ruff, layers, mypy, then pytest, in two lanes where there are two CPUs: contract
    tests and containers in one, in the other everything else, the fast tests first. At the end, a line for each
    reason why tests were skipped: how many, what they need, how to get it.

    Further arguments go to pytest, which has one lane then, and leave the linters out. A few tests that take minutes
    are left out without them: -m night runs these.

    --again is for machines that stop for seconds now and then. Where at most three tests failed, and all of them run
    real processes (tests/live, tests/interop), these run once more when everything else is done. Those that pass then
    are told as FLAKY: each is a bug that is not found yet.

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
    every = ["--all"] if nothing_skipped else []
    words += [*every, "--durations=25"] if every else []
    return _twice(words, every) if again else _pytest(words)


def _pytest(words: list[str]) -> int:
    return subprocess.call([sys.executable, "-m", "pytest", *words], cwd=ROOT, env=_environment())


def _twice(words: list[str], every: list[str]) -> int:
    """The exit code of pytest, or of its second try where `worth_again` says so."""
    with TemporaryDirectory() as cache:
        code = _pytest([*words, "-o", f"cache_dir={cache}"])
        failed = worth_again(code, Path(cache))
    if not failed:
        return code
    click.echo(f"squall: once more, alone: {', '.join(failed)}")
    if (code := _pytest([*failed, *every])) == 0:
        for each in failed:
            click.echo(f"squall: FLAKY: it failed above and passed when it was run again alone: {each}")
    return code


def worth_again(code: int, cache: Path) -> list[str]:
    """The failed tests of a session of pytest, from its cache, if they are to be tried again; else nothing.

    Only real processes, real clocks and a busy machine make a test fail that is not to blame: what fails in the
    simulation, and what fails often, fails for a reason. So does the whole if --all found a test that was skipped.
    """
    known = cache / "v/cache/lastfailed"
    if code != 1 or not known.exists() or (cache / "v" / SKIPPED).exists():
        return []
    failed = sorted(json.loads(known.read_text(encoding="utf-8")))
    return failed if len(failed) <= AGAIN_AT_MOST and all(each.startswith(OF_PROCESSES) for each in failed) else []


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
