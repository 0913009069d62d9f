"""Judges a run directory: writes a verdict and findings. This can be repeated later, alone, and on another machine.

history.jsonl -> an engine's findings -> replica logs compared, if the brokers' data is there -> the verdict
(`squall.checkers.verdict`). The commands display it. The engine is Spark, which reads Parquet in a process of its own
(`python -m squall.spark_analysis`), or the reference engine (`squall.checkers.analysis`), which reads the lines in this
process.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from rich.console import Console

from squall.chaos.errors import HarnessError, error_message, traceback_text
from squall.chaos.faults.audit import audit
from squall.chaos.runs.background_calls import BackgroundCalls
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.figures import figures_of
from squall.chaos.runs.prestarted_spark import LOG, PrestartedSpark
from squall.chaos.runs.progress import MakePhase, no_display
from squall.chaos.runs.spark import HERE, SparkOptions, command_of
from squall.chaos.runs.staged import Show, follow, run_staged
from squall.chaos.toolchain.cache import remove
from squall.chaos.toolchain.class_archive import class_archive_here
from squall.chaos.toolchain.java import java
from squall.checkers import analysis, run_facts
from squall.checkers.anomalies.replica_divergence import FILE as REPLICAS
from squall.checkers.anomalies.replica_divergence import compare_run
from squall.checkers.engines import too_large
from squall.checkers.history.conversion import load
from squall.checkers.history.tables import History
from squall.checkers.stages import FIND, LOOK, stage_of
from squall.checkers.verdict import give_up, judge_run

JUDGE = "judge"
COMPARE = f"{JUDGE}: compare the replicas' logs"
JUNIT = "junit.xml"
"""Names the file that the commands write beside report.html."""
TRACEBACK = "harness-traceback.txt"
CRASH = "A fatal error has been detected by the Java Runtime Environment"
"""Is what a JVM prints when it crashes."""
CHANGED = (
    f"the replicas' logs do not show what they showed when they were first compared ({REPLICAS}): nodes/ was changed "
    f"since. To judge them as they are now, remove {REPLICAS}"
)
HAVE_FILES = ("process", "docker")
"""Names the runtimes whose brokers leave their data in the run directory."""


class _AnalysisOptions(NamedTuple):
    """Bundles how a history is analysed: by Spark or by the reference engine, and with which display of phases."""

    spark: SparkOptions | None
    phase: MakePhase
    prestarted: PrestartedSpark | None


def judge(
    directory: RunDirectory,
    say: Console,
    *,
    expect: str | None = None,
    spark: SparkOptions | None = HERE,
    phase: MakePhase = no_display,
    prestarted: PrestartedSpark | None = None,
    beside: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Judge a run directory, whatever its state, and write verdict.json. Return the content of verdict.json.

    An earlier verdict stays, with its page and junit.xml, until the new verdict is written: an interruption changes
    nothing. An exception in a checker makes the verdict unknown, and is the verdict's reason. In two other cases the
    verdict is unknown, too, and the history is not analysed: the user's client program never replied as its protocol
    requires (`refused` in run.json), or the history is too large for the reference engine.

    expect: the required guarantees; None: those of the plan. spark: None means that the reference engine analyses the
    history. phase: displays the phases of the analysis. prestarted: a Spark that was started for this directory.
    beside: is called while Spark analyses the history; not called if there is no such analysis.
    """
    try:
        _judge(directory, say, expect, _AnalysisOptions(spark, phase, prestarted), beside)
    except Exception as error:  # no exception says anything about the cluster, and the run must get a verdict
        (directory.path / TRACEBACK).write_text(traceback_text(error))
        _withdraw(directory)
        give_up(directory.path, f"judging stopped: {error_message(error)} (see {TRACEBACK})")
    written: dict[str, Any] = json.loads(directory.verdict.read_text())
    return written


def _judge(
    directory: RunDirectory, say: Console, expect: str | None, how: _AnalysisOptions, beside: Callable[[], None] | None
) -> None:
    info = run_facts.read(directory.path).info  # the verdict reports what is wrong with it
    beyond = too_large(directory.history) if how.spark is None else ""
    if refused := info.get("refused") or beyond:  # a user who tries out a first program should not wait for Spark
        # A full disk has room for the verdict only once the reserved space is free.
        directory.release()
        _withdraw(directory)
        give_up(directory.path, refused)
        return
    harness_troubles = troubles_of_the_harness(info)
    troubles: list[str] = []
    history = None
    if not directory.history.exists() or not directory.history.stat().st_size:
        directory.release()
        _withdraw(directory)
        analysis.remove(directory.path)
        give_up(directory.path, _no_history(info), *_other_troubles(info), *harness_troubles)
        return
    if how.spark is None:
        with how.phase(f"{JUDGE}: {FIND}"):
            history = analysis.find_in_run(directory.path)
        with how.phase(COMPARE):
            compare_replicas(directory, troubles, history)
    else:
        # A list of its own, because another thread fills it.
        of_replicas: list[str] = []
        background = BackgroundCalls(lambda: compare_replicas(directory, of_replicas), beside or (lambda: None))
        trouble = analyse(directory, say, how.spark, how.phase, how.prestarted, background)
        if trouble is not None:
            troubles.append(trouble)
        with how.phase(COMPARE):
            background.finish()
        troubles += of_replicas
    troubles += [*_other_troubles(info), *harness_troubles, *_fault_line_errors(directory)]
    directory.release()
    with how.phase(JUDGE):
        workload = figures_of(directory, troubles, history)
        _withdraw(directory)
        # Not in `troubles`: a standstill makes findings by time uncertain, but a run without such findings stays valid.
        harness_troubles += standstill_troubles(info)
        judge_run(
            directory.path,
            expect=expect,
            troubles=troubles,
            harness_troubles=harness_troubles,
            workload=workload,
            history=history,
        )


def _no_history(info: Mapping[str, Any]) -> str:
    """Return the reason for the verdict of a run without a history: the history was removed, or nothing was recorded.
    Findings of an earlier judgement are not used, because they may be about another history.
    """
    when = "it was removed after the run" if "ended_ns" in info else "the run ended before anything was recorded"
    return f"there is no history: {when}"


def _withdraw(directory: RunDirectory) -> None:
    """Remove report.html and junit.xml of an earlier verdict. Call this just before a new verdict is written, which
    they may contradict.
    """
    for shown in (directory.report, directory.path / JUNIT):
        shown.unlink(missing_ok=True)


def compare_replicas(directory: RunDirectory, troubles: list[str], history: History | None = None) -> None:
    """Compare the replicas' logs if the brokers' data is still there; otherwise keep the result of an earlier
    judgement.

    troubles: gets a sentence if nothing is known about some replicas, because their files are missing. It also gets one
    if the result differs from the first comparison of this run, because the files were changed since; then the first
    result is kept. history: None means that the history is loaded from the run directory's Parquet files.
    """
    kept = directory.path / REPLICAS
    try:
        before = kept.read_bytes() if kept.exists() else None
        history = history or load(directory.path, large=False)[0]
        comparison = compare_run(directory.path, history.partitions, history.run)
        names = [each.name for each in history.partitions]
        troubles += _not_compared(directory, names, None if comparison is None else comparison.compared)
        if comparison is not None and _changed(before, kept.read_bytes()):
            # `compare_run` has replaced the file with its own result.
            kept.write_bytes(before or b"")
            troubles.append(CHANGED)
    except Exception as error:  # a checker that stops is a trouble of this run, whatever stopped it
        troubles.append(f"comparing the replicas' logs stopped: {error_message(error)}")


def _changed(before: bytes | None, now: bytes) -> bool:
    """Return whether two comparisons of the replicas of one run differ."""
    try:
        one, other = json.loads(before or b"{}"), json.loads(now)
    except (ValueError, RecursionError):
        return False  # the earlier comparison is unreadable
    # The result of another run, or one in another format, says nothing of what these files showed before.
    same_run = isinstance(one, dict) and one.get("run") == other.get("run") and one.get("schema") == other["schema"]
    return same_run and one.get("findings") != other["findings"]


def _not_compared(
    directory: RunDirectory, partitions: Sequence[str], compared: Mapping[str, Mapping[str, Any]] | None
) -> list[str]:
    """Return why not all replicas were compared although brokers leave their files on this machine; empty if none is
    missing. partitions: the names of all partitions. compared: maps a partition to an entry in which `nodes` lists the
    compared brokers; None: this judgement has compared no replicas.
    """
    try:
        plan = tomllib.loads(directory.plan.read_text())
        replicas, nodes = plan["workload"]["replication_factor"], plan["cluster"]["nodes"]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # the verdict reports a plan that cannot be read
    # Once they were compared, the data of a valid run is removed.
    earlier = compared is None and (directory.path / REPLICAS).exists()
    if plan.get("runtime") not in HAVE_FILES or replicas < 2 or earlier:
        return []
    if compared is None:
        left = len(list(directory.nodes.glob("*/data")))
        return [f"the replicas' logs were not compared: nodes/ has the data of {left} of {nodes} brokers"]
    lacking = [name for name in partitions if len(compared.get(name, {}).get("nodes", ())) < replicas]
    if not lacking:
        return []
    have = len(compared.get(lacking[0], {}).get("nodes", ()))
    more = len(lacking) - 1
    others = f" (and of {more} other partition{'s'[: more > 1]})" if more else ""
    said = f"only {have} of {replicas} left files" if have else "fewer than two left files"
    return [f"the replicas of {lacking[0]}{others} were not all compared: {said}"]


def troubles_of_the_harness(info: Mapping[str, Any]) -> list[str]:
    """Return what went wrong in the harness or on the machine, a sentence each. Clients and brokers may have stopped
    because of it. info: the entries of run.json (`RunFacts.info`).
    """
    found = [f"the harness had trouble: {info['trouble']}"] if info.get("trouble") else []
    return [*found, *map(str, info.get("harness", ()))]


def standstill_troubles(info: Mapping[str, Any]) -> list[str]:
    """Return the times at which the harness noticed that nothing ran on this machine, a sentence each. info: the
    entries of run.json (`RunFacts.info`).
    """
    found = []
    for each in info.get("standstills", ()):
        at_s = (each["began"] - info["began_ns"]) / 1e9 if "began_ns" in info else 0.0
        asleep = f", of which it was suspended for {each['suspended_s']:g} s" if each["suspended_s"] >= 1 else ""
        where = f"{at_s:.0f} s after the run began{asleep}"
        found.append(f"the harness or the machine stood still for {each['s']:g} s, {where}")
    return found


def _other_troubles(info: Mapping[str, Any]) -> list[str]:
    """Return what else went wrong in the run, by run.json: it ended early, or a broker ended that no fault was meant to
    end.
    """
    found = []
    if not info or "ended_ns" not in info:
        found.append("the run did not come to its end")
    if info.get("stopped"):
        found.append(str(info["stopped"]))
    for ended in info.get("node_exits", ()):
        if ended.get("expected"):
            continue
        last = (ended["last_words"].strip().splitlines() or ["without a word"])[-1]
        found.append(f"broker {ended['node']} ended by itself with code {ended['code']}: {last}")
    return found


def _fault_line_errors(directory: RunDirectory) -> list[str]:
    """Return what is wrong in nemesis.jsonl: lines that no kind of fault would have written."""
    if not directory.nemesis.exists():
        return []
    with directory.nemesis.open("rb") as lines:
        return audit(lines)


def analyse(
    directory: RunDirectory,
    say: Console,
    spark: SparkOptions = HERE,
    phase: MakePhase = no_display,
    prestarted: PrestartedSpark | None = None,
    background: BackgroundCalls | None = None,
) -> str | None:
    """Run Spark over the history. Return None on success, else the reason of the failure (Spark's output is in
    spark.log).

    background: these calls begin when the history has been converted to Parquet. None of them runs during a second
    conversion, which follows if Spark must be started again.
    """
    background = background or BackgroundCalls()
    if prestarted is not None and _used_prestarted(prestarted, directory, spark, phase, background):
        return None
    background.settle()
    try:
        there = java(say.print)
    except HarnessError as missing:
        return str(missing)
    archive = class_archive_here(there)
    trouble = _analyse(directory, command_of(directory.path, there, archive, spark), spark.limit_s, phase, background)
    if trouble is None or archive is None or CRASH not in (directory.path / LOG).read_text(errors="replace"):
        return trouble
    # A JVM verifies only an archive's header, and may crash if the rest is damaged.
    say.print("the JVM crashed; judging again without the archive of Spark's classes, which the next run makes anew")
    remove(archive.parent)
    background.settle()
    return _analyse(directory, command_of(directory.path, there, None, spark), spark.limit_s, phase, background)


def _used_prestarted(
    prestarted: PrestartedSpark,
    directory: RunDirectory,
    spark: SparkOptions,
    phase: MakePhase,
    background: BackgroundCalls,
) -> bool:
    """Let the prestarted Spark analyse the history, then end it. Return whether the analysis succeeded; if not, the
    caller starts another Spark.
    """
    try:
        # Any failure is left to the Spark that the caller starts then: that one says what is wrong.
        program = prestarted.begin()
        return program is not None and not follow(program, prestarted.log, spark.limit_s, _shown(phase, background))
    except subprocess.TimeoutExpired:
        return False
    finally:
        prestarted.end()


def _shown(phase: MakePhase, background: BackgroundCalls) -> Show:
    def show(stage: str) -> AbstractContextManager[None]:
        if stage == LOOK:
            background.begin()
        return phase(f"{JUDGE}: {stage}")

    return show


def _analyse(
    directory: RunDirectory, command: Sequence[str], limit_s: float, phase: MakePhase, background: BackgroundCalls
) -> str | None:
    log = directory.path / LOG
    try:
        code = run_staged(command, log, limit_s, _shown(phase, background))
    except subprocess.TimeoutExpired:
        return f"Spark did not finish within {limit_s:g} s"
    if code:
        words = [line for line in log.read_text(errors="replace").splitlines() if line.strip() and not stage_of(line)]
        return f"Spark ended with code {code}: {words[-1] if words else 'it said nothing'} (see {LOG})"
    return None


def prune_data(directory: RunDirectory, verdict: dict[str, Any]) -> None:
    """Remove the brokers' data if all checks passed: traces and output are enough for a valid run."""
    if verdict["verdict"] != "valid":
        return
    for node in sorted(directory.nodes.glob("*")):
        for folder in ("data", "faults"):
            shutil.rmtree(node / folder, ignore_errors=True)
