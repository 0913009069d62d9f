"""Analyses a run directory with Spark, and writes findings and metrics.

`analyse` converts `RUN/history.jsonl` (`squall.checkers.history`), reads the tables, and writes

- `anomalies/`: Parquet files with every witness, one row each;
- `findings.json`: how many witnesses each finding has, and some of them (`squall.spark_analysis.witnesses`);
- `metrics.json`: latencies, unavailability and other measures (`squall.checkers.metrics`);
- `series.json`: operations and latencies in each second of the run.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from squall.checkers import analysis, metrics
from squall.checkers.analysis import ANOMALIES, Analysis
from squall.checkers.anomalies.check import SparkDriverSearch, WitnessQuery, WitnessRule
from squall.checkers.anomalies.registry import IN_HISTORY
from squall.checkers.engines import SPARK
from squall.checkers.findings import Finding
from squall.checkers.history import conversion
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.group_tables import PartitionOwnership
from squall.checkers.history.parquet import SCHEMAS
from squall.checkers.history.parser import FILE
from squall.checkers.history.tables import ClientProcess
from squall.checkers.metrics import MeasurementContext, MeasurementRow, StuckLimits
from squall.checkers.signs import RunCircumstances
from squall.checkers.stages import CONVERT, LOOK, READY, START
from squall.spark_analysis import measures, session, signs, views, witnesses
from squall.spark_analysis.query import statement, views_of
from squall.spark_analysis.short_history import write_short_history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BYTES_A_RECORD = 50
"""Is the rough size of a record in history.jsonl, by which the session's size is chosen before anything was read."""

SQL_TYPES = {"int8": "tinyint", "int32": "int", "int64": "bigint", "string": "string", "bool": "boolean"}


Result = TypeVar("Result")


START_LIMIT_S = 300
"""Is how long, in s, Spark may take to start once there is a history: PySpark itself waits for its Java without a
limit.
"""


class NoStart(Exception):
    """Reports that Spark has not started within its time limit."""


class HistoryTooLarge(Exception):
    """Reports that the history is too large for the session that was started before there was a history."""


def analyse(
    run_dir: Path,
    java_home: Path,
    *,
    out: Path | None = None,
    master: str = session.LOCAL,
    class_archive: Path | None = None,
    conf: Mapping[str, str] | None = None,
    java_options: Sequence[str] = (),
    limits: StuckLimits | None = None,
    stage: Callable[[str], None] = lambda _: None,
    ahead: Callable[[], None] | None = None,
    start_limit_s: float = START_LIMIT_S,
) -> Analysis:
    """Analyse a run, and write the results into `out`; None: into `run_dir`.

    The history is converted while the JVM of `java_home` starts. `limits` limits the time without progress; None: as
    the run's plan says, if there is one. `stage` is called with each stage that begins. The other arguments are those
    of `session.start`. Raises what the converter raises for missing files, and what `session.start` and Spark raise.
    findings.json is removed first, so a findings.json that exists is complete and belongs to this history.

    `ahead` is given if the run has no history yet: it is a function that returns when the history is there. Meanwhile
    Spark starts and runs every statement once over a history of a few records, so that its code is compiled. An
    exception of `ahead` ends the analysis at once, and the OS process should then end. Raises HistoryTooLarge if the
    history then needs a larger session.

    Raises NoStart if Spark has not started `start_limit_s` seconds after the history was converted. Spark's OS
    processes may still run then, so this OS process should end, and its children with it.
    """
    out = out or run_dir
    analysis.remove(out)
    with ExitStack() as kept:
        practice, there = None, threading.Event()
        if ahead is not None:
            folder = tempfile.TemporaryDirectory(prefix="squall-ahead-", ignore_cleanup_errors=True)
            practice = Path(kept.enter_context(folder))

        def practise(running: SparkSession, folder: Path) -> None:
            _practise(running, folder)
            if not there.is_set():
                stage(READY)

        def start() -> SparkSession:
            running = session.start(
                _rows(run_dir), java_home, master, class_archive, conf=conf, java_options=java_options
            )
            # The warm-up runs beside the analysis, so a history that arrives need not wait for it.
            if practice is not None and not there.is_set():
                _beside(partial(practise, running, practice))
            return running

        starting = _beside(start)
        if ahead is not None:
            ahead()
            there.set()
            if _rows(run_dir) > session.SMALL_ROWS:
                raise HistoryTooLarge
        try:
            stage(CONVERT)
            converted = conversion.convert(run_dir)
        finally:
            stage(START)
            running = _started(starting, start_limit_s)
        try:
            stage(LOOK)
            return analyse_converted(running, run_dir, out, converted, limits)
        finally:
            running.stop()


def _rows(run_dir: Path) -> int:
    """Return roughly how many records the history has; 0 if there is no history yet."""
    file = run_dir / FILE
    return file.stat().st_size // BYTES_A_RECORD if file.exists() else 0


def _started(starting: Future[SparkSession], limit_s: float) -> SparkSession:
    try:
        return starting.result(limit_s)
    except TimeoutError:
        if starting.done():
            raise  # the start itself raised it
        raise NoStart(f"Spark has not started within {limit_s:g} s: its Java may have died as it began") from None


def _beside(work: Callable[[], Result]) -> Future[Result]:
    """Run `work` in a daemon thread: unlike an executor's threads, it does not delay the exit of the OS process."""
    result: Future[Result] = Future()

    def do() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # raised where the result is asked for
            result.set_exception(error)

    threading.Thread(target=do, name="spark", daemon=True).start()
    return result


def _practise(spark: SparkSession, folder: Path) -> None:
    """Analyse a short history, so that Java loads and compiles what a long history needs as well.

    This runs in a session of its own, so that its views are not those of the history to come.
    """
    write_short_history(folder)
    analyse_converted(spark.newSession(), folder, folder, conversion.convert(folder), StuckLimits())


def run_queries(
    spark: SparkSession,
    folder: Path,
    out: Path,
    converted: ConversionResult,
    context: MeasurementContext,
    processes: Sequence[ClientProcess],
    holds: Iterable[PartitionOwnership],
    circumstances: RunCircumstances,
    *,
    few: int = witnesses.FEW,
) -> tuple[list[Finding], list[MeasurementRow]]:
    """Return the findings and the measures of the tables in `folder`.

    `circumstances` are what happened in the run that may explain findings. Parquet files with all witnesses are written
    to `out`. If there are at most `few` witnesses, the driver takes them all (`witnesses.collect`).
    """
    found = [each for check in IN_HISTORY for each in check.queries(converted)]
    kept = []
    for name in views.in_order({*views_of(found), *measures.views(context), *signs.views(circumstances)}):
        view = views.VIEWS.get(name)
        table = _view(spark, context, view) if view else _table(spark, folder, name)
        table.createOrReplaceTempView(name)
        kept += [table] if view and view.kept else []
    counts, gaps = measures.statements(context, processes, holds)
    selects: list[WitnessRule | WitnessQuery] = [each for each in found if not isinstance(each, SparkDriverSearch)]
    try:
        searched = [each for each in found if isinstance(each, SparkDriverSearch)]
        more = [witness for search in searched for witness in witnesses.search(spark, search)]
        # Planning is one thread's work: several statements at a time keep two cores busy.
        with ThreadPoolExecutor(3) as threads:
            collected = threads.submit(witnesses.collect, spark, statement(selects), circumstances, out, few, more)
            measured = list(threads.map(lambda statement: spark.sql(statement).toArrow(), (counts, gaps)))
            findings = collected.result()
    finally:
        # The last one first: Spark plans each cached table anew that reads the one it drops.
        for table in reversed(kept):
            table.unpersist()
    rows = (row for table in measured for row in witnesses.rows(table))
    return findings, [measures.taken(*row) for row in rows]


def _table(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    # With the columns given, Spark starts no job to infer them.
    columns = ", ".join(f"{column.name} {SQL_TYPES[str(column.type)]}" for column in SCHEMAS[name])
    return spark.read.schema(columns).parquet(str(folder / f"{name}.parquet"))


def _view(spark: SparkSession, context: MeasurementContext, view: views.SparkView) -> DataFrame:
    table = spark.sql(view.sql if isinstance(view.sql, str) else view.sql(context.partitions))
    if view.by:
        table = table.repartition(view.by)
    return table.cache() if view.kept else table


def analyse_converted(
    spark: SparkSession, run_dir: Path, out: Path, converted: ConversionResult, limits: StuckLimits | None = None
) -> Analysis:
    """Analyse a converted history in a running session, and write the results into `out`. `limits` limits the time
    without progress; None: as the run's plan says.
    """
    folder = run_dir / conversion.FOLDER
    kept, faults = conversion.load(run_dir, large=False)
    context = metrics.context_of(kept, faults)
    circumstances, of_plan = analysis.facts_of_run(run_dir, kept, faults, outputs=converted.outputs > 0)
    reported = (context, kept.processes, kept.holds.rows(), circumstances)
    shown, taken = run_queries(spark, folder, out / ANOMALIES, converted, *reported)
    shown += analysis.of_measures(taken, kept.processes, context, limits or of_plan)
    found = Analysis(SPARK, converted.run, shown, taken, context)
    found.write(out)
    return found
