"""Implements `squall load`, which loads topics into a folder of Parquet files."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from squall.chaos.commands.verify import spark_of
from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.interrupts import end_asked
from squall.chaos.runs.spark import HERE
from squall.chaos.runtimes.real.proc import ProcessId, identify, is_alive
from squall.chaos.screen import console, live_line
from squall.chaos.toolchain.extras import missing

if TYPE_CHECKING:
    from squall.chaos.toolchain.cache import Say
    from squall.spark_analysis.load.held_back import HoldingTransaction
    from squall.spark_analysis.load.job import LoadTotals

LINE_EVERY_S = 5.0
JVM_ENDS_S = 30.0
"""Limits the time, in seconds, for which a load waits for the end of the JVM of a load that was killed."""
MB = 1_000_000


class Interval(click.ParamType):  # type: ignore[type-arg]
    """Reads a time such as 10s, 500ms or 2m, as seconds."""

    name = "TIME"
    UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the time in seconds."""
        for unit, seconds in self.UNITS.items():
            number = str(value).removesuffix(unit)
            if number != str(value) and number.replace(".", "", 1).isdecimal() and float(number) > 0:
                return float(number) * seconds
        self.fail(f"{value}: a time such as 10s, 500ms or 2m", param, ctx)


@click.command(
    epilog="""\b
Examples:
  squall load orders payments --bootstrap 127.0.0.1:9092 --to lake/
  squall load orders --bootstrap 127.0.0.1:9092 --to lake/ --follow 10s
  squall load orders --bootstrap 127.0.0.1:9092 --to lake/ --from latest --allow-gaps

\b
Exit codes: 0 everything is loaded (with --follow: until Ctrl-C), 2 something
cannot be loaded, 3 usage, 130 interrupted: called again, it continues."""
)
@click.argument("topics", nargs=-1, required=True)
@click.option("--bootstrap", required=True, metavar="HOST:PORT,...", help="Brokers of the cluster.")
@click.option("--to", required=True, type=click.Path(path_type=Path, file_okay=False), help="The folder to load into.")
@click.option("--follow", "every_s", type=Interval(), help="Keep loading, a batch every so often, until Ctrl-C.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="With read_committed, aborted and undecided records are left out.",
)
@click.option(
    "--from",
    "starting",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where a new load begins. A continued one begins where it ended.",
)
@click.option("--headers", is_flag=True, help="Load the headers of records, too.")
@click.option("--columns", default="", metavar="NAME,...", help="More columns: producerId, sequence, codec, ...")
@click.option(
    "--records-per-task",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Offsets that one Spark task reads.",
)
@click.option("--records-per-batch", type=click.IntRange(min=1), help="Offsets of one batch. [default: all there are]")
@click.option(
    "--patience",
    "patience_s",
    type=Interval(),
    default="60s",
    show_default=True,
    help="For how long no broker may serve a range before the load fails, and a transaction may stay open before it "
    "is named.",
)
@click.option("--allow-gaps", is_flag=True, help="Pass over offsets that are gone, and list them in the summary.")
@click.option("--master", default=HERE.master, show_default=True, metavar="URL", help="Where Spark runs.")
@click.option("--spark-set", multiple=True, metavar="NAME=VALUE", help="Any setting of Spark; may be repeated.")
def command(topics: tuple[str, ...], bootstrap: str, to: Path, every_s: float | None, **flags: Any) -> int:
    """Load TOPICS into Parquet files, each row exactly once. Killed at any moment and called again, it continues.

    The files lie in TO/topic=NAME/partition=N. DuckDB, pandas and Spark read the folder (docs/load.md).
    """
    if lacks := missing("spark"):
        raise PreconditionError("; ".join(lacks))
    from squall.chaos.toolchain.class_archive import class_archive_here
    from squall.chaos.toolchain.java import java
    from squall.spark_analysis.load.folder import LoadFolder
    from squall.spark_analysis.load.job import load
    from squall.spark_analysis.load.options import read_options
    from squall.spark_analysis.session import jvm_pid, start
    from squall.workloads.client.settings import SettingsError
    from squall.workloads.load.reading import LoadError

    options = _options(topics, bootstrap, flags)
    say = console(stderr=True)
    line = partial(say.print, highlight=False, soft_wrap=True)
    folder = LoadFolder(to.absolute())
    spark_options = spark_of({**flags, "limit": HERE.limit_s})
    try:
        read_options(options, streams=True)
        with folder.locked():
            outlast_jvm(folder.jvm, line)
            continued = folder.claim(_kept(topics, options))
            if removed := folder.remove_uncommitted():
                line(f"{to}: removed {removed} files of a batch that was never committed")
            there = java(line)
            archive = class_archive_here(there)
            spark = start(0, there.home, spark_options.master, archive, conf=spark_options.conf)
            _note_jvm(folder.jvm, jvm_pid(spark))
            shown = _Shown(topics, to, say, flags["patience_s"], continued=continued)
            asked = end_asked(line)
            try:
                with live_line(say, shown.words):
                    found = load(spark, folder, options, every_s=every_s, look=shown.look, stopped=asked.is_set)
            finally:
                spark.stop()
    except SettingsError as wrong:
        raise PreconditionError(str(wrong)) from None
    except LoadError as wrong:
        raise HarnessError(str(wrong)) from None
    click.echo(shown.summary(found))
    if asked.is_set() and every_s is None:
        raise KeyboardInterrupt
    return 0


def outlast_jvm(noted: Path, say: Say) -> None:
    """Wait until the JVM of the last load has ended. A JVM whose driver was killed notices that about a second later,
    and may write into the folder until then. `noted` names the file with that process. Raises HarnessError if it does
    not end.
    """
    try:
        jvm = ProcessId(**json.loads(noted.read_text()))
    except (OSError, ValueError, TypeError):
        return
    if is_alive(jvm):
        say(f"waiting for the end of process {jvm.pid}, the JVM of a load that was killed")
    until = time.monotonic() + JVM_ENDS_S
    while is_alive(jvm):
        if time.monotonic() > until:
            raise HarnessError(
                f"process {jvm.pid} still runs after {JVM_ENDS_S:.0f} s: it is the JVM of a load that was killed, and "
                f"may write into the folder; end it, and call again"
            )
        time.sleep(0.1)


def _note_jvm(noted: Path, pid: int) -> None:
    from squall.spark_analysis.load.folder import write_json

    if (jvm := identify(pid)) is not None:
        write_json(noted, asdict(jvm))


def _options(topics: tuple[str, ...], bootstrap: str, flags: dict[str, Any]) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": ",".join(topics),
        "kafka.isolation.level": flags.pop("isolation"),
        "startingOffsets": flags.pop("starting"),
        "includeHeaders": str(flags.pop("headers")).lower(),
        "failOnDataLoss": str(not flags.pop("allow_gaps")).lower(),
        "maxRecordsPerPartition": str(flags.pop("records_per_task")),
        "kafkaConsumer.pollTimeoutMs": str(max(1, round(flags["patience_s"] * 1000))),
    }
    columns, per_batch = flags.pop("columns"), flags.pop("records_per_batch")
    if columns:
        options["extraColumns"] = columns
    if per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(per_batch)
    return options


def _kept(topics: tuple[str, ...], options: dict[str, str]) -> dict[str, str]:
    """Return what must stay the same over all starts of a load: the flags with their values."""
    return {
        "the topics": " ".join(sorted({*topics})),
        "--isolation": options["kafka.isolation.level"],
        "--headers": options["includeHeaders"],
        "--columns": options.get("extraColumns", "none"),
        "--records-per-task": options["maxRecordsPerPartition"],
    }


class _Shown:
    """Displays the progress of a load: a line that is updated on a terminal, elsewhere one every few seconds."""

    def __init__(self, topics: tuple[str, ...], to: Path, say: Any, patience_s: float, *, continued: bool) -> None:
        self._title = f"squall load {' '.join(topics)} -> {to}" + (", continued" if continued else "")
        self._say, self._began, self._last = say, time.monotonic(), time.monotonic()
        self._patience_ms = patience_s * 1000
        self._named: set[HoldingTransaction] = set()
        self._before: tuple[int, int] | None = None
        """Holds the records and bytes that earlier starts of the load have read."""
        self._now: LoadTotals | None = None

    def look(self, now: LoadTotals) -> None:
        """Take what the load has read so far."""
        if self._before is None:
            self._before = now.records, now.bytes
        self._now = now
        for each in now.lag.open if now.lag is not None else ():
            same = each._replace(waiting=0)
            now_ms = int(time.time() * 1000)
            if same not in self._named and now_ms - each.since_ms >= self._patience_ms:
                self._named.add(same)
                self._say.print(f"held back: {each.words(now_ms)}", highlight=False, soft_wrap=True)
        if not self._say.is_terminal and time.monotonic() - self._last >= LINE_EVERY_S:
            self._last = time.monotonic()
            self._say.print(self.words(), highlight=False, soft_wrap=True)

    def words(self) -> str:
        """Return the line."""
        now, before = self._now, self._before
        if now is None or before is None:
            return f"{self._title}: starting Spark"
        rate = (now.bytes - before[1]) / MB / max(time.monotonic() - self._began, 0.001)
        behind = f", {now.lag.behind:,} offsets behind the end" if now.lag is not None else ""
        return f"{self._title}: {now.records:,} records, {rate:.1f} MB/s{behind}"

    def summary(self, found: LoadTotals) -> str:
        """Return the last line."""
        before = self._before[0] if self._before is not None else 0
        took = time.monotonic() - self._began
        skipped = [
            (found.control, "control records"),
            (found.aborted, "aborted records"),
            (found.compacted, "compacted"),
            (found.lost_offsets, "gone"),
        ]
        without = ", ".join(f"{count:,} {what}" for count, what in skipped if count)
        return (
            f"{self._title}: {found.records:,} records, {found.records - before:,} of them now, in {took:.0f} s"
            + (f"; offsets without a record: {without}" if without else "")
            + (f"; {found.lag.behind:,} offsets behind the end" if found.lag is not None and found.lag.behind else "")
        )
