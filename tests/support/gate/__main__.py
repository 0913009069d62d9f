"""`squall test`: the gate, all tests, or their costs."""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.gate import costs, lanes, night_list, results, rules, summary
from tests.support.gate.costs import ROOT
from tests.support.gate.lanes import WAITING, Lane
from tests.support.gate.playing import Played, Selected, environment, play, say
from tests.support.gate.results import Result

AGAIN_AT_MOST = 3
"""More failures than that have a reason that they share."""
ORDER = ["-p", "randomly", "--randomly-seed=1", "--randomly-dont-reorganize"]
"""The order of the gate: the same each time."""
RULES = "tests/mechanisms/rules::each"
"""The name under which `squall test --rules` stands among the results of all tests."""


def main() -> int:
    """Return 0 if all that was to run has passed, 1 if not, 130 after Ctrl-C."""
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
        session = Session(ROOT, Path(folder), asked.results, go_on=asked.go_on)
        try:
            if asked.costs:
                return session.measure(stale=asked.stale)
            return session.run(everything=asked.all, no_skips=asked.no_skips, again=asked.again)
        except KeyboardInterrupt:
            say("squall: interrupted")
            return 130


class Session:
    """One call of `squall test`. `root`: the checkout. `file`: where each result is written as soon as it is known."""

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
            with file.open("a" if go_on else "w", encoding="utf-8") as lines:
                lines.write(json.dumps(head()) + "\n")

    # ------------------------------------------------------------------------------------------- the gate, everything

    def run(self, *, everything: bool, no_skips: bool, again: bool) -> int:
        """Run the gate's tests, or all: first what can run beside others, then the rules, then the quiet tests."""
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
        if not everything:
            troubles += rules.over_budget((each.test for each in played[0].selected), self._costs)
        failed = [each for each in self._results if each.result == "failed"]
        for line in summary.failures(played):
            say(line)
        if again and 0 < len(failed) <= AGAIN_AT_MOST:
            self._again(failed)
        skips = [f"--no-skips: {line}" for line in summary.skipped(self._results)] if no_skips else []
        for line in summary.of(self._results, played, self._costs, [*troubles, *skips], table=everything):
            say(line)
        return 1 if failed or troubles or skips else 0

    def _play(
        self, wanted: Sequence[rules.When], words: Sequence[str], name: str, cpus: int | None = None, **also: str
    ) -> Played:
        """Run these tests in lanes, but for those that have a result already."""
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
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"{result.line()}\n")

    def _rules(self) -> None:
        if any(each.test == RULES for each in self._before):
            return
        began = costs.now()
        words = [sys.executable, "-m", "tests.mechanisms"]
        done = subprocess.run(words, cwd=self._root, env=environment(), stdout=subprocess.PIPE, text=True)
        last = done.stdout.strip().splitlines()[-1:] or ["it printed nothing"]
        say(f"rules: {last[0]}")
        self._take(Result(RULES, "failed" if done.returncode else "passed", *costs.since(began), last[0]))

    def _again(self, failed: Sequence[Result]) -> None:
        """Run failed tests once more, alone. One that passes then is flaky, which excuses nothing."""
        for result in failed:
            say(f"squall: once more, alone: {result.test}")
            words = [sys.executable, "-m", "pytest", "-q", result.test]
            flaky = subprocess.call(words, cwd=self._root, env=environment()) == 0
            say(f"squall: {'FLAKY, it passes alone' if flaky else 'fails alone, too'}: {result.test}")
            self._results.remove(result)
            self._take(result._replace(flaky=flaky))

    # ------------------------------------------------------------------------------------------------------- the costs

    def measure(self, *, stale: bool) -> int:
        """Write `costs.json`: all rows, or (stale) drop those without a test and add those that are missing.

        The list of what only the night runs, in docs/testing.md, follows from it.
        """
        everything: list[rules.When] = ["gate", "night", "quiet"]
        tests = {each.test for each in self._collected(everything)} if stale else set()
        known = tests & set(self._costs)
        if stale:
            say(f"{len(self._costs) - len(known)} rows without a test, {len(tests - known)} tests without a row")
        missing = {test.partition("::")[0] for test in tests - known}
        files = {file: text for file, text in self._files.items() if not stale or file in missing}
        planned = lanes.plan(files, self._costs, everything, self._cpus)
        # What waits is measured after what computes, and not beside it.
        waiting = [lane for lane in planned if lanes.folder_of(lane.files[0]) in WAITING]
        for name, part in (("computing", [lane for lane in planned if lane not in waiting]), ("waiting", waiting)):
            self._play_lanes(part, ORDER, name, known, {})
        kept = known if stale else {each.test for each in self._results} & set(self._costs)
        self._costs = costs.renewed({test: self._costs[test] for test in kept}, self._results)
        costs.write(self._costs, self._root / costs.FILE)
        night_list.write(self._root / night_list.PAGE, self._collected(everything), self._costs)
        return 1 if any(each.result == "failed" for each in self._results) else 0

    def _collected(self, wanted: Sequence[rules.When]) -> list[Selected]:
        """All tests, and when each runs by the costs that are on disk."""
        planned = lanes.plan(self._files, {}, wanted, self._cpus)
        folder = f"collected-{len(self._results)}"
        return self._play_lanes(planned, [*ORDER, "--collect-only"], folder, (), {}).selected


def head() -> dict[str, str]:
    """The first line of a file of results: what ran where, and when."""
    words = ["git", "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        commit = ""
    return {"commit": commit, "python": platform.python_version(), "began": datetime.now(UTC).isoformat()}


if __name__ == "__main__":
    sys.exit(main())
