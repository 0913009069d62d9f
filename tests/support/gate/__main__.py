"""The program behind `squall test`: runs the gate (the tests that every change must pass) or all tests, or measures
what tests cost.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from squall.chaos.errors import PreconditionError
from squall.chaos.interrupts import as_ctrl_c
from tests.support.gate import costs, lanes, night_list, results, rules, summary
from tests.support.gate.costs import ROOT
from tests.support.gate.lanes import WAITING, Lane
from tests.support.gate.playing import Played, environment, play, say
from tests.support.gate.results import Result

AGAIN_AT_MOST = 3
"""Failed tests are run once more only up to this number: more failures have a common cause."""
ORDER = ["-p", "randomly", "--randomly-seed=1", "--randomly-dont-reorganize"]
"""pytest's options for one fixed order of the tests."""
RULES = "tests/mechanisms/rules::each"
"""The test id under which `squall test --all` records the result of `squall test --rules`."""


def main() -> int:
    """Return the exit code: 0 all tests passed, 1 they did not, 3 a file cannot be used, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="squall test", description=__doc__)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--costs", action="store_true")
    parser.add_argument("--stale", action="store_true")
    parser.add_argument("--no-skips", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--go-on", action="store_true")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="squall-test-") as folder:
        as_ctrl_c()
        try:
            session = Session(ROOT, Path(folder), asked.results, go_on=asked.go_on)
            if asked.costs:
                return session.measure(stale=asked.stale)
            return session.run(everything=asked.all, no_skips=asked.no_skips, again=asked.again)
        except KeyboardInterrupt:
            say("squall: interrupted")
            return 130
        except (PreconditionError, OSError) as error:
            say(f"squall: {error}")
            return 3


class Session:
    """One call of `squall test`. `root` is the checkout. Each result is written to `file` as soon as it is known."""

    def __init__(self, root: Path, folder: Path, file: Path | None = None, *, go_on: bool = False) -> None:
        self._root = root
        self._folder = folder
        self._file = file
        self._costs = costs.read(root / costs.FILE)
        self._files = lanes.every_file(root)
        self._cpus = os.cpu_count() or 1
        self._before = results.read(file) if file is not None and go_on else []
        self._results = list(self._before)
        if file is not None:
            began = head()
            others = {each["commit"][:10] for each in results.heads(file) if each["commit"] != began["commit"]}
            if go_on and others:
                say(f"{file} has results of other commits: {', '.join(sorted(others))}")
            with file.open("a" if go_on else "w", encoding="utf-8") as lines:
                # What a session wrote last may lack its end.
                lines.write(f"{os.linesep if lines.tell() else ''}{json.dumps(began)}\n")

    # ------------------------------------------------------------------------------------------- the gate, everything

    def run(self, *, everything: bool, no_skips: bool, again: bool) -> int:
        """Run the gate's tests or, with `everything`, all: first those that can run beside others, then the removals of
        `squall test --rules`, then the tests that assert times, alone.
        """
        if everything:
            seed = random.randrange(2**31)
            say(f"order: --randomly-seed={seed}")
            words = ["-p", "randomly", f"--randomly-seed={seed}"]
            played = [self._play(["gate", "night"], [*words, "-m", "not quiet"], "together", SQUALL_FUZZ="1")]
            self._rules()
            played.append(self._play(["quiet"], [*words, "-m", "quiet"], "quiet", cpus=1, SQUALL_FUZZ="1"))
        else:
            played = [self._play(["gate"], [*ORDER, "-m", "gate"], "gate")]
        troubles = [trouble for each in played for trouble in each.troubles]
        if not self._results:
            troubles.append("no test was run")
        if everything:
            troubles += self._unplayed(played)
        to_run = {each.test for part in played for each in part.selected} | {each.test for each in self._results}
        if gone := {test.partition("::")[0] for test in self._costs} - self._files.keys():
            say(f"{costs.FILE} has rows of {len(gone)} files that are gone: ./squall test --costs --stale drops them")
        if not everything:
            troubles += rules.over_budget((each.test for each in played[0].selected), self._costs)
        failed = [each for each in self._results if each.result == "failed"]
        for line in summary.failures(played):
            say(line)
        if again and 0 < len(failed) <= AGAIN_AT_MOST:
            self._again(failed, **({"SQUALL_FUZZ": "1"} if everything else {}))
        self._write(json.dumps({"tests": len(to_run)}))
        skips = [f"--no-skips: {line}" for line in summary.skipped(self._results)] if no_skips else []
        for line in summary.of(self._results, played, self._costs, troubles, skips, table=everything):
            say(line)
        return 1 if failed or troubles or skips else 0

    def _play(
        self, wanted: Sequence[rules.When], words: Sequence[str], name: str, cpus: int | None = None, **also: str
    ) -> Played:
        """Run these kinds of tests in parallel lanes. Tests that already have a result are left out."""
        planned = lanes.plan(self._files, self._costs, wanted, cpus or self._cpus)
        return self._play_lanes(planned, words, name, [each.test for each in self._before], also)

    def _play_lanes(
        self, planned: Sequence[Lane], words: Sequence[str], name: str, left_out: Iterable[str], also: Mapping[str, str]
    ) -> Played:
        if tests := list(left_out):
            file = self._folder / f"{name}.left-out"
            file.write_text("".join(f"{test}\n" for test in tests), encoding="utf-8")
            words = [*words, f"--leave-out={file}"]
        return play(planned, words, self._root, self._folder / name, environment(**also), self._take)

    def _take(self, result: Result) -> None:
        self._results.append(result)
        self._write(result.line())

    def _write(self, line: str) -> None:
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def _rules(self) -> None:
        if any(each.test == RULES for each in self._before):
            return
        began = costs.now()
        words = [sys.executable, "-m", "tests.mechanisms"]
        done = subprocess.run(words, cwd=self._root, env=environment(), stdout=subprocess.PIPE, text=True)
        *lines, last = done.stdout.strip().splitlines() or ["it printed nothing"]
        for line in lines if done.returncode else []:
            say(f"rules: {line}")
        say(f"rules: {last}")
        self._take(Result(RULES, "failed" if done.returncode else "passed", *costs.since(began), last))

    def _unplayed(self, played: Sequence[Played]) -> Iterator[str]:
        """Yield a sentence for each collected test that was not run, and for each test of the gate in a file that the
        gate skips because it does not find a mark there.
        """
        collected = {each.test: each for part in played for each in part.collected}
        chosen = {each.test for part in played for each in part.selected} | {each.test for each in self._results}
        yield from (f"{test} was not run" for test in sorted(collected.keys() - chosen))
        read = {file for lane in lanes.plan(self._files, self._costs, ["gate"], self._cpus) for file in lane.files}
        for each in collected.values():
            if each.when == "gate" and each.test.partition("::")[0] not in read:
                yield f"{each.test} is of the gate, which does not see its mark: see lanes.marks_of"

    def _again(self, failed: Sequence[Result], **also: str) -> None:
        """Run failed tests once more, alone. A test that passes then is reported as flaky, and still counts as failed.
        """
        for number, result in enumerate(failed):
            say(f"squall: once more, alone: {result.test}")
            file = self._folder / f"again-{number}.jsonl"
            words = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.gate.results", f"--results-to={file}"]
            subprocess.call([*words, result.test], cwd=self._root, env=environment(**also))
            flaky = [each.result for each in results.read(file) if each.test == result.test] == ["passed"]
            say(f"squall: {'FLAKY, it passes alone' if flaky else 'fails alone, too'}: {result.test}")
            self._results.remove(result)
            self._take(result._replace(flaky=flaky))

    # ------------------------------------------------------------------------------------------------------- the costs

    def measure(self, *, stale: bool) -> int:
        """Write `costs.json`: all rows, or (stale) drop those without a test and add those that are missing.

        The list of what only the night runs, in docs/testing.md, follows from it.
        """
        everything: list[rules.When] = ["gate", "night", "quiet"]
        collected = self._collected()
        if self._said(collected.troubles) or any(each.result == "failed" for each in collected.results):
            say("squall: tests/costs.json stays as it is")
            return 1
        tests = {each.test for each in collected.selected} if stale else set()
        known = tests & set(self._costs)
        if stale:
            say(f"{len(self._costs) - len(known)} rows without a test, {len(tests - known)} tests without a row")
        ended = {each.test for each in self._before}
        missing = {test.partition("::")[0] for test in tests - known - ended}
        files = {file: text for file, text in self._files.items() if not stale or file in missing}
        planned = lanes.plan(files, self._costs, everything, self._cpus)
        # What waits is measured after what computes, and not beside it.
        waiting = [lane for lane in planned if lanes.folder_of(lane.files[0]) in WAITING]
        played = [
            self._play_lanes(part, ORDER, name, known | ended, {})
            for name, part in (("computing", [lane for lane in planned if lane not in waiting]), ("waiting", waiting))
        ]
        troubled = self._said(trouble for each in played for trouble in each.troubles)
        ran = {each.test for each in self._results}
        kept = known if stale else set(self._costs) if troubled else ran & set(self._costs)
        new = [each for each in self._results if each.test not in known]
        self._costs = costs.renewed({test: self._costs[test] for test in kept}, new)
        costs.write(self._costs, self._root / costs.FILE)
        night_list.write(self._root / night_list.PAGE, self._collected().selected, self._costs)
        return 1 if troubled or any(each.result == "failed" for each in self._results) else 0

    def _said(self, troubles: Iterable[str]) -> bool:
        """Print these problems, and return whether there were any."""
        lines = [f"squall: {trouble}" for trouble in troubles]
        for line in lines:
            say(line)
        return bool(lines)

    def _collected(self) -> Played:
        """Collect the tests of all files, without running them."""
        planned = [Lane(f"cpu {cpu + 1}", sorted(self._files)[cpu :: self._cpus]) for cpu in range(self._cpus)]
        planned = [lane for lane in planned if lane.files]
        folder = f"collected-{len(self._results)}"
        return self._play_lanes(planned, [*ORDER, "--collect-only"], folder, (), {})


def head() -> dict[str, str]:
    """Return the first line of a file of results: the commit, the Python version and the time at which the session
    began.
    """
    words = ["git", "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        commit = ""
    return {"commit": commit, "python": platform.python_version(), "began": datetime.now(UTC).isoformat()}


if __name__ == "__main__":
    sys.exit(main())
