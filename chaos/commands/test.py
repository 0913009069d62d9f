"""Implements `squall test`, which runs linters, the import rules and mypy, then the tests (`tests/support/gate`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import click

from squall.chaos.errors import PreconditionError
from squall.chaos.toolchain.cache import locked
from squall.chaos.toolchain.places import is_checkout

ROOT = Path(__file__).resolve().parents[2]

LAYERS = """
from importlib.machinery import ModuleSpec
from importlinter.cli import lint_imports_command as run
import squall
# import-linter accepts only packages at the top level or in a namespace package.
squall.__spec__ = ModuleSpec("squall", None, is_package=True)
run(["--no-cache"])
"""
CHECKS: dict[str, list[str]] = {
    "ruff": ["-m", "ruff", "check", "--quiet", "."],
    "layers": ["-c", LAYERS],
    "mypy": ["-m", "mypy", "--no-error-summary", "--config-file", str(ROOT / "pyproject.toml")],
}


TAKES: Mapping[str, tuple[str, ...]] = {
    "": ("--only tests", "--all", "--no-skips", "--again", "--results", "--go-on"),
    "--costs": ("--stale", "--results", "--go-on"),
    "--rules": (),
    "--night": (),
    "--only lint": (),
}
"""Maps each mode of `squall test` to the options that it accepts. The empty key is the default mode: what every change
must pass. If arguments for pytest are given, only --no-skips is accepted.
"""


class _NightFlagsCommand(click.Command):
    """Parses the flags of `squall test`. With --night, it passes all other arguments on to the program `tests.night`,
    which has a parser of its own.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. With --night, leave all other arguments unparsed, for the program `tests.night`."""
        if "--night" in args:
            args = ["--night", "--", *(each for each in args if each != "--night")]
        return super().parse_args(ctx, args)


@click.command(cls=_NightFlagsCommand, context_settings={"ignore_unknown_options": True})
@click.option("--only", type=click.Choice(["lint", "tests"]), help="Run the linters only, or the tests only.")
@click.option("--all", is_flag=True, help="Run everything there is, the rules included. For a night.")
@click.option("--no-skips", is_flag=True, help="Fail if a test was skipped.")
@click.option("--again", is_flag=True, help="Run a few failed tests once more, alone, to tell flaky ones.")
@click.option("--results", metavar="FILE", help="Write a line of JSON for each test to this file, as it ends.")
@click.option("--go-on", is_flag=True, help="Leave out the tests that have a result in that file.")
@click.option("--costs", is_flag=True, help="Measure all tests and write tests/costs.json. On a quiet machine.")
@click.option("--stale", is_flag=True, help="With --costs: measure only new tests, and drop rows without a test.")
@click.option("--rules", is_flag=True, help="Take each rule of the broker out in turn: its tests must fail.")
@click.option("--night", is_flag=True, help="Run all that runs by night, part by part; --night --help tells of it.")
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    only: str | None, rules: bool, costs: bool, night: bool, pytest_arguments: tuple[str, ...], **options: Any
) -> int:
    """Run what every change must pass, in at most ten minutes on two idle cores. Ruff, the import rules and mypy come
    first. Then come the tests that tests/costs.json and tests/support/gate/rules.py choose: one pytest process for each
    CPU, and one more for tests that mostly wait. At the end, each reason why tests were skipped has a line: how many
    tests, what they need, and how to get it.

    With --all, everything runs, which takes hours. This includes the tests that are too slow for every change, and the
    removal of each rule of the broker in turn, which must make a test fail. Tests that assert how long something takes
    run last and alone. A table of the costs comes at the end.

    Further arguments go to pytest, which then runs only the tests that they name, in one process and without the
    linters.

    With --again, if at most three tests failed, they run once more at the end, each alone. Those that pass then are
    reported as FLAKY. The exit code stays 1: a flaky test is still a failure.

    With --rules, only the removal of rules runs. Arguments then select mechanisms (parts of Kafka's design, see
    docs/mechanisms.md) or single rules of them; --jobs N runs N at the same time. --show prints the rules and runs
    nothing.

    With --night, --all is one part of several. The other parts plant known bugs, simulate new seeds, run containers and
    foreign client libraries, and call the README's commands on new machines. A page comes at the end. A night that was
    interrupted can be resumed.

    \b
    Examples:
      squall test
      squall test tests/unit -x
      squall test --only lint
      squall test --no-skips --again     what CI runs
      squall test --all                  for a night
      squall test --all --results all.jsonl --go-on
      squall test --costs --stale        measure the tests that are new
      squall test --rules R4 C2.0
      squall test --night --only seeds hunts
      squall test --night --resume nights/tests-20260704T010000
    """
    if not is_checkout():
        raise PreconditionError("squall test needs a checkout of Squall: the tests are not part of what is installed")
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    given += [f"--only {only}"] if only else []
    _fit(given, {"--costs": costs, "--rules": rules, "--night": night}, pytest_arguments)
    if night:
        _python("tests.night", *pytest_arguments)
    if rules:
        _python("tests.mechanisms", *pytest_arguments)
    if pytest_arguments:
        _python("tests.support.usage", *pytest_arguments, *(["--no-skips"] if options["no_skips"] else []))
    if only != "tests" and not costs:
        failed = lint()
        if failed:
            click.echo(f"squall: {', '.join(failed)} failed; no test was run")
            return 1
    if only == "lint":
        return 0
    words = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is True]
    words += ["--costs"] if costs else []
    words += ["--results", str(Path(options["results"]).absolute())] if options["results"] else []
    _python("tests.support.gate", *words)


def _fit(given: list[str], ways: Mapping[str, bool], pytest_arguments: tuple[str, ...]) -> None:
    """Raise UsageError if options exclude each other, so that one of them would have no effect. given: the options that
    were given, such as "--again". ways: says for each mode, such as "--rules", whether it was chosen.
    """
    chosen = [way for way, on in ways.items() if on]
    chosen += ["--only lint"] if "--only lint" in given else []
    if pytest_arguments and not {"--rules", "--night"} & {*chosen}:
        chosen.append(pytest_arguments[0])
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} do not go together.")
    way = chosen[0] if chosen else ""
    takes = TAKES.get(way, ("--no-skips",))
    if odd := [each for each in given if each not in takes and each != way]:
        raise click.UsageError(f"{odd[0]} does not go with {way or 'the gate'}.")
    if "--go-on" in given and "--results" not in given:
        raise click.UsageError("--go-on needs --results FILE.")


def _python(module: str, *words: str) -> NoReturn:
    """Replace this OS process by `python -m module words`. So signals reach that program, and its exit code is this
    command's.
    """
    # A shell lets background jobs ignore SIGINT, and nohup SIGHUP, and child processes inherit that: tests that send
    # these signals would wait forever.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sys.stdout.flush()
    os.chdir(ROOT)
    outliving = [sys.executable, "-m", "squall.chaos.standard_streams", module, *words]
    os.execve(sys.executable, outliving, _environment())


def lint() -> list[str]:
    """Run all checks side by side, and return the names of those that failed."""
    with ThreadPoolExecutor(len(CHECKS)) as pool:
        passed = pool.map(lambda check: _passes(*check), CHECKS.items())
    return [name for name, fine in zip(CHECKS, passed, strict=True) if not fine]


def _passes(name: str, arguments: list[str]) -> bool:
    began = time.monotonic()
    with _prepared(name) as (folder, options):
        done = subprocess.run(
            [sys.executable, *arguments, *options],
            cwd=folder,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    click.echo(f"{name}: {'passed' if done.returncode == 0 else 'FAILED'} in {time.monotonic() - began:.1f} s")
    if done.returncode:
        click.echo(done.stdout)
    return done.returncode == 0


@contextmanager
def _prepared(name: str) -> Iterator[tuple[Path, list[str]]]:
    """Yield the folder in which a check runs, and more options for it.

    mypy derives module names from folder names, so its folder has a link `squall` to the checkout. All checkouts of a
    user share mypy's cache, so that a fresh clone finds it filled. mypy reuses a cached file if the content is equal,
    wherever the file is. The cache is locked while mypy runs: two processes that write it would wait 5 s for each other
    at each module.
    """
    if name != "mypy":
        yield ROOT, []
        return
    with locked("mypy") as cache, TemporaryDirectory(prefix="squall-mypy-") as folder:
        Path(folder, "squall").symlink_to(ROOT)
        yield Path(folder), ["--cache-dir", str(cache)]


def _environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": os.environ.get("COLUMNS", "140")}
