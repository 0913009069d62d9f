"""`python -m squall.spark_analysis RUN_DIR`: find the anomalies of a run and take its measures.

Writes findings.json, metrics.json, series.json and anomalies/ into RUN_DIR, or into --out. Exit code 0 says that all of
them are written; `squall.checkers.verdict` decides what they mean. With any other exit code nothing is written, and
stderr says why.

With --ahead the command starts before there is a history: it starts Spark, and then waits for a line on standard input.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from squall.checkers.stages import line_of
from squall.spark_analysis.jobs import START_LIMIT_S, NoStart, analyse
from squall.spark_analysis.session import LOCAL


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit code; argparse ends the program itself on wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m squall.spark_analysis", description=__doc__.split("\n")[0])
    parser.add_argument("run_dir", type=Path, help="has history.jsonl in it")
    parser.add_argument("--out", type=Path, help="where to write (default: RUN_DIR)")
    parser.add_argument("--master", default=LOCAL, help="Spark's, e.g. spark://HOST:7077 (default: %(default)s)")
    parser.add_argument(
        "--conf",
        action="append",
        type=_setting,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark, e.g. spark.executor.memory=4g; may be repeated",
    )
    parser.add_argument(
        "--class-archive", type=Path, metavar="FILE", help="an archive of Spark's classes: it starts sooner with one"
    )
    parser.add_argument(
        "--java-home",
        type=Path,
        default=os.environ.get("JAVA_HOME"),
        metavar="DIR",
        help="a Java (default: $JAVA_HOME)",
    )
    parser.add_argument(
        "--ahead",
        action="store_true",
        help="start Spark before there is a history, and wait for a line on standard input; without one, end",
    )
    parser.add_argument(
        "--start-limit",
        type=float,
        default=START_LIMIT_S,
        metavar="SECONDS",
        help="how long Spark may take to start once the history is there (default: %(default)s)",
    )
    given = parser.parse_args(arguments)
    if not given.run_dir.is_dir():
        parser.error(f"{given.run_dir}: there is no such run directory")
    if given.java_home is None:
        parser.error("no Java is named: set JAVA_HOME, or call `./squall verify`, which finds one or fetches it")
    try:
        analyse(
            given.run_dir,
            given.java_home,
            out=given.out,
            master=given.master,
            class_archive=given.class_archive,
            conf=dict(given.conf),
            stage=_say,
            ahead=_wait if given.ahead else None,
            start_limit_s=given.start_limit,
        )
    except NoStart as error:
        sys.stderr.write(f"{error}\n")
        _end_children()
        sys.stderr.flush()
        os._exit(1)  # PySpark still waits in a thread
    except _HistoryNotComing:
        # `return` would wait for Spark's threads.
        os._exit(0)
    return 0


def _end_children(process: str = "self") -> None:
    """Kill the child processes of this OS process, and theirs: a Java that does not start, and the shells that started
    it. Otherwise this process would wait for them at its end.
    """
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # it has ended meanwhile
            for child in children.read_text().split():
                _end_children(child)
                os.kill(int(child), signal.SIGKILL)


class _HistoryNotComing(Exception):
    """Reports that standard input ended before a history came: Spark was started (--ahead) in vain."""


def _wait() -> None:
    if not sys.stdin.readline():
        raise _HistoryNotComing


def _say(stage: str) -> None:
    sys.stdout.write(line_of(stage) + "\n")
    sys.stdout.flush()


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
