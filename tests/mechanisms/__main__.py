"""The program behind `squall test --rules`: removes each rule from the broker in turn, and checks that a test then
fails.

A mechanism is a part of Kafka's design (docs/mechanisms.md), and consists of rules. A removal replaces the code of a
rule by what the broker would do without it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.mechanisms import page, runner
from tests.support.usage import USAGE, Parser


def main() -> int:
    """Return the exit code. 0: without each rule a test failed, and each test in the table failed without some rule. 1:
    not so. 3: wrong usage.
    """
    parser = Parser(prog="squall test --rules", description=__doc__)
    parser.add_argument("ids", nargs="*", help="mechanisms (R2) or single removals (R2.0); all without any")
    parser.add_argument("--jobs", type=int, default=2, help="how many run side by side (default: 2)")
    parser.add_argument("--docs", action="store_true", help="write docs/mechanisms.md anew, and run nothing")
    parser.add_argument("--show", action="store_true", help="print the rules and their tests, and run nothing")
    asked = parser.parse_args()
    if asked.docs:
        Path(page.PAGE).write_text(page.text())
        return 0
    try:
        runner.selected(asked.ids)
    except KeyError as error:
        sys.stderr.write(f"squall: {error.args[0]}\n")
        return USAGE
    if asked.show:
        _say("\n".join(page.rules(asked.ids)))
        return 0
    began = time.monotonic()
    outcomes = runner.run_all(asked.ids, asked.jobs, _say)
    return _sum_up(outcomes, time.monotonic() - began)


def _sum_up(outcomes: list[runner.Outcome], seconds: float) -> int:
    missed = [outcome for outcome in outcomes if not outcome.is_caught]
    idle = runner.unmoved(outcomes)
    for test in idle:
        _say(f"never failed: {test}")
    mechanisms = len({outcome.id.partition(".")[0] for outcome in outcomes})
    caught = len(outcomes) - len(missed)
    _say(f"{len(outcomes)} rules of {mechanisms} mechanisms taken out, {caught} caught, {seconds:.0f} s")
    return 1 if missed or idle else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
