"""Runs the test suites of other projects' Kafka clients, unmodified, against a cluster.

A failure without a row in tests/foreign_suites/known.toml fails the command. A row whose test passes is reported, so
that it can be removed. With --docs the results are written into docs/foreign-suites.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import trio

from squall.chaos.errors import HarnessError, gravest_error
from squall.chaos.interrupts import as_ctrl_c, stoppable
from squall.chaos.nightly import scheduling
from squall.chaos.toolchain.cache import installed
from tests.foreign_suites import known, page
from tests.foreign_suites.clusters import TARGETS, running
from tests.foreign_suites.playing import FAILED, PASSED, SKIPPED, Play, Played
from tests.foreign_suites.suites import SUITES, Suite
from tests.support.usage import Parser

OK, WRONG, UNKNOWN, INTERRUPTED = 0, 1, 2, 130


def main(given: Sequence[str] | None = None) -> int:
    """Return the exit code. 0: each failure has its row. 1: one has none. 2: a suite, or a test of it, has no result.
    3: wrong usage.
    """
    asked = _parser().parse_args(given)
    codes = []
    try:
        for name in asked.suite or SUITES:
            codes.append(_play(SUITES[name], asked))
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    return WRONG if WRONG in codes else max(codes)


def _play(suite: Suite, asked: argparse.Namespace) -> int:
    """Fetch a suite, run it against a cluster of its own, and print what is new. Returns the exit code."""
    out = (asked.out / f"{scheduling.new_id()}-{suite.name}-{asked.target}").absolute()
    out.mkdir(parents=True)
    say(f"{suite.name} {suite.version} against {asked.target}: output in {out}")
    try:
        folder = installed(f"suite-{suite.name}-{suite.version}", lambda place: suite.fetch(suite, place))
        played = trio.run(_against, suite, folder, out, asked)
    except (HarnessError, ExceptionGroup) as error:
        if not isinstance(trouble := gravest_error(error), HarnessError):
            raise
        say(f"{suite.name}: no result: {trouble}")
        return UNKNOWN
    verdict = known.judge(suite.name, asked.target, played.results, known.read())
    _tell(played, verdict)
    if asked.docs and not asked.only:
        page.write(suite, asked.target, played)
    if verdict.unexplained:
        return WRONG
    return UNKNOWN if played.lost or not played.results else OK


async def _against(suite: Suite, folder: Path, out: Path, asked: argparse.Namespace) -> Played:
    """Return the suite's results. A signal ends its program and the cluster, and raises KeyboardInterrupt."""
    played = Played([], ["every test"])

    async def playing() -> None:
        nonlocal played
        async with running(asked.target, suite.nodes, suite.port, suite.settings, out / "cluster", say) as bootstrap:
            say(f"{len(suite.nodes)} brokers are up at {bootstrap}")
            environment = suite.environment(bootstrap, TARGETS[asked.target])
            play = Play(folder, out, environment, 60 * suite.minutes * asked.patience, asked.only, Event())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_set_when_cancelled, play.ended)
                played = await trio.to_thread.run_sync(suite.player, play)
                nursery.cancel_scope.cancel()

    await stoppable(playing, say)
    return played


async def _set_when_cancelled(ended: Event) -> None:
    try:
        await trio.sleep_forever()
    finally:
        ended.set()


def _tell(played: Played, verdict: known.Verdict) -> None:
    for each in played.results:
        say(f"  {each.result:7} {each.wall_s:7.2f} s  {each.test}")
    for each in verdict.unexplained:
        say(f"NEW FAILURE {each.test}: {each.why}")
    for row in verdict.mended:
        say(f"passes now, its row can go: {row.test}")
    for name in played.lost:
        say(f"no result: {name}")
    count = {result: sum(1 for each in played.results if each.result == result) for result in (PASSED, FAILED, SKIPPED)}
    told = ", ".join(f"{number} {result}" for result, number in count.items())
    say(f"{told}, {len(played.lost)} without a result; {len(verdict.unexplained)} failures have no row")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m tests.foreign_suites", description=__doc__)
    parser.add_argument("suite", nargs="*", choices=[*SUITES, []], metavar="SUITE", help=f"{', '.join(SUITES)}; all")
    parser.add_argument("--target", choices=list(TARGETS), default="squall", help="whose brokers (default: squall)")
    parser.add_argument("--only", default="", metavar="WORD", help="tests with this word in their names")
    parser.add_argument("--patience", type=float, default=1.0, metavar="FACTOR", help="of the suites' time limits")
    parser.add_argument("--out", type=Path, default=Path("runs/foreign-suites"), help="outputs, brokers' files")
    parser.add_argument("--docs", action="store_true", help="write the results into docs/foreign-suites.md")
    return parser


def say(line: str) -> None:
    """Print a line of progress without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    as_ctrl_c()
    sys.exit(main())
