"""Plays the runs of a night. Each run is an OS process that ends when this process ends, in whichever way that happens.

No thread is used here: the kernel ends the run's process when the thread that started it ends, so this must be the main
thread.
"""

# A run that crashes or hangs does not affect other runs; after `kill -9` of the night no run is left.
# Rejected: runs inside pytest's process.

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from squall.chaos.flags import environment_of_children
from squall.chaos.nightly import budget, full_disk
from squall.chaos.nightly.axes import Cell
from squall.chaos.nightly.budget import CostModel, cores
from squall.chaos.nightly.directory import NightDirectory, bytes_of, thin
from squall.chaos.nightly.full_disk import caused_by_full_disk, is_full
from squall.chaos.nightly.items import PlannedRun
from squall.chaos.nightly.matrix import Matrix, plain
from squall.chaos.runtimes.real.processes.child import TETHER
from squall.chaos.toolchain.places import PACKAGES
from squall.checkers.losses import permitted_loss
from squall.checkers.nightly.matrix import ForbiddenAnomalies, expectations, forbidden
from squall.checkers.nightly.results import INVALID, NO_VERDICT, UNKNOWN, VALID, RunAttempt

POLL_S = 0.1
ENDING_S = 90.0
"""Limits the seconds that a run may take to end after the night has sent it SIGINT. Then the night kills it."""
CODES = {VALID: 0, INVALID: 1, UNKNOWN: 2}
TROUBLE = "the harness had trouble"


@dataclass(slots=True)
class _RunProcess:
    """Is the OS process of a run that is under way."""

    item: PlannedRun
    number: int
    popen: subprocess.Popen[bytes]
    cores: int
    """Counts the CPU cores that no other run may use meanwhile."""
    began: datetime
    clock: float
    asked: float | None = None
    """Is the time at which the run was asked to end because it took too long; None: it was not asked."""


@dataclass(slots=True)
class NightLimits:
    """Limits the time and the disk space of a night, and the number of runs that are played side by side."""

    budget_s: float | None
    keep_bytes: int
    slots: int
    """Limits how many runs are played side by side. One slot has room for one run with real brokers, or for two
    simulations.
    """
    run_s: float | None = None
    """Limits the seconds of one run; None: the limit depends on the length of the run's load (`budget.limit_s`)."""


@dataclass(slots=True)
class NightRunner:
    """Plays the runs of one session of a night. `spent_s`: the seconds that earlier sessions of the night took."""

    directory: NightDirectory
    matrix: Matrix
    items: Sequence[PlannedRun]
    """Lists the selected runs, in the order of playing."""
    limits: NightLimits
    costs: CostModel
    attempts: dict[str, list[RunAttempt]]
    """Maps an item to its attempts that have ended."""
    spent_s: float = 0.0
    left_out: dict[str, str] = field(default_factory=dict)
    """Maps an item that is not played to the reason."""
    on_ended: Callable[[PlannedRun, RunAttempt], None] = lambda item, attempt: None
    """Is called with each attempt that has ended."""
    on_begun: Callable[[PlannedRun, Path], None] = lambda item, log: None
    """Is called with each attempt that begins, and the file for its output."""
    stop_at_first: bool = False
    """Is True if no run may begin after the first item that is not valid."""
    clean_up: Callable[[], None] = lambda: None
    """Is called when a run that took too long has ended, because it may have left processes or containers."""
    disk_full: str = ""
    """Says that the disk is full; then nothing more is played. Empty while there is space."""
    program: tuple[str, ...] = (sys.executable, "-P", "-m", "squall.chaos")
    """Is the command that plays a run."""
    ending_s: float = ENDING_S
    _next: int = 0
    _to_retry: list[PlannedRun] = field(default_factory=list)
    _children: list[_RunProcess] = field(default_factory=list)
    _clock: float = field(default_factory=time.monotonic)
    _expected: tuple[ForbiddenAnomalies, ...] = ()

    def __post_init__(self) -> None:
        self._expected = expectations(plain(self.matrix))

    def done(self, item: PlannedRun) -> bool:
        """Return whether the item needs no further attempt."""
        return finished(self.attempts.get(item.item, ()), self.matrix.retries, repeats=item.runtime == "sim")

    def elapsed_s(self) -> float:
        """Return the seconds of the budget that are spent."""
        return self.spent_s + time.monotonic() - self._clock

    def under_way(self) -> list[PlannedRun]:
        """Return the items that run now."""
        return [child.item for child in self._children]

    def result(self, item: PlannedRun) -> list[RunAttempt] | None:
        """Play the item, and other items at the same time, and return its attempts. Return None if it is left out, or
        if the disk is full.
        """
        try:
            return self._result(item)
        except OSError as error:
            self.stop_for(error)
            return None

    def stop_for(self, error: OSError) -> None:
        """End the session if `error` means a full disk; else raise it again."""
        if not is_full(error):
            raise error
        if not self.disk_full:
            self.disk_full = full_disk.sentence(self.directory.path)
            self.stop()
            full_disk.give_back(self.directory.path)

    def _result(self, item: PlannedRun) -> list[RunAttempt] | None:
        while not self.done(item):
            if self.disk_full:
                return None
            self._step()
            if item.item in self.left_out and item not in self.under_way():
                return self.attempts.get(item.item)
            time.sleep(POLL_S if not self._reap() else 0)
        return self.attempts[item.item]

    def stop(self) -> None:
        """End all runs under way in good order, without a result: the night's next session plays them again."""
        # All are asked before the first is waited for, so that they end side by side.
        for child in self._children:
            child.popen.send_signal(signal.SIGINT)
        deadline = time.monotonic() + self.ending_s
        for child in self._children:
            try:
                child.popen.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.popen.kill()
                child.popen.wait()
            self._forget(child)
        self._children.clear()

    # ---------------------------------------------------------------------------------------------------- starting

    def _step(self) -> None:
        """Start the next runs, as far as cores and budget allow."""
        while (item := self._next_item()) is not None:
            # A slot has two cores: a run of processes needs both, a simulation one.
            if sum(child.cores for child in self._children) + self._cores(item) > 2 * self.limits.slots:
                return
            self._take(item)
            if why := self._no_room(item):
                self.left_out[item.item] = why
                continue
            self._start(item)

    def _cores(self, item: PlannedRun) -> int:
        """Return the cores for an attempt, doubled for each earlier attempt: a run that was unknown on a busy machine
        may have a verdict on a less busy one.
        """
        return min(cores(item) << len(self.attempts.get(item.item, ())), 2 * self.limits.slots)

    def _next_item(self) -> PlannedRun | None:
        """Return the next item to start, or None. Every item has its first attempt before any has its second, so that a
        night that ends early has tried all of them.
        """
        while self._next < self._reachable_items():
            item = self.items[self._next]
            if not self.done(item) and item.item not in self.left_out:
                if not self.attempts.get(item.item):
                    return item
                self._to_retry.append(item)  # its first attempt was in an earlier session
            self._next += 1
        return self._to_retry[0] if self._to_retry else None

    def _reachable_items(self) -> int:
        """Return how many items, from the first on, may be started. If the night stops at its first failure, those
        after a failed item may not.
        """
        failed = (number for number, item in enumerate(self.items) if self.stop_at_first and self._failed(item))
        return next(failed, len(self.items))

    def _failed(self, item: PlannedRun) -> bool:
        attempts = self.attempts.get(item.item, ())
        ended = self.done(item) and any(each.verdict != VALID for each in attempts[-1:])
        return ended or any(each.fails for each in attempts)

    def _take(self, item: PlannedRun) -> None:
        if self._to_retry and self._to_retry[0] is item:
            del self._to_retry[0]
        else:
            self._next += 1

    def _no_room(self, item: PlannedRun) -> str:
        used = self.kept_bytes() + int(sum(self.costs.of(child.item).bytes for child in self._children))
        limits, cost = self.limits, self.costs.of(item)
        report_s = self.costs.report_s(len(self._begun() | {item.item}))
        return budget.no_room(cost, self.elapsed_s(), used, limits.budget_s, limits.keep_bytes, report_s)

    def kept_bytes(self) -> int:
        """Return how many bytes the night takes on disk. If Allure's results and page are not written yet, this
        includes an estimate of their size, for all runs that were started.
        """
        runs = sum(each.bytes for attempts in self.attempts.values() for each in attempts)
        return runs + max(budget.PAGES_BYTES * len(self._begun()), self.directory.bytes_outside_runs())

    def _begun(self) -> set[str]:
        """Return the items that have ended or are under way."""
        ended = {name for name, attempts in self.attempts.items() if attempts}
        return ended | {child.item.item for child in self._children}

    def _start(self, item: PlannedRun) -> None:
        number = len(self.attempts.get(item.item, ())) + 1
        for run in self._runs_of(item, number):
            shutil.rmtree(run, ignore_errors=True)  # half a run of a session that was killed
        self.directory.logs.mkdir(parents=True, exist_ok=True)
        words = [*item.arguments, "--runs", str(self.directory.runs.absolute()), "--label", label(item, number)]
        tether = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid())]
        command = [*tether, *self.program, *words]
        environment = {**environment_of_children(), "PYTHONPATH": str(PACKAGES), "PYTHONUNBUFFERED": "1"}
        log = self.directory.logs / f"{label(item, number)}.txt"
        with log.open("wb") as out:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                start_new_session=True,  # Ctrl-C is for us to answer
            )
        self._children.append(_RunProcess(item, number, popen, self._cores(item), datetime.now(UTC), time.monotonic()))
        self.on_begun(item, log)

    # ------------------------------------------------------------------------------------------------------ ending

    def _reap(self) -> bool:
        """Record the attempts that have ended, and return whether there were any."""
        self._end_overdue()
        full: OSError | None = None
        ended = [child for child in self._children if child.popen.poll() is not None]
        for child in ended:
            self._children.remove(child)
            if child.asked is not None:
                self.clean_up()
            attempt = self._attempt(child)
            if not attempt.proven and caused_by_full_disk(attempt.why, self.directory.path):
                full = OSError(errno.ENOSPC, attempt.why)
                self._forget(child)
                continue
            full = self._note(attempt) or full
            self.attempts.setdefault(child.item.item, []).append(attempt)
            self.costs.learn(child.item, attempt)
            if not self.done(child.item):
                self._to_retry.append(child.item)
            self.on_ended(child.item, attempt)
        # Only now: all attempts that have ended must be recorded first.
        if full is not None:
            raise full
        return bool(ended)

    def _note(self, attempt: RunAttempt) -> OSError | None:
        """Write an attempt to results.jsonl. If the disk is full, free the reserved space for it, and return the error.
        """
        try:
            self.directory.add(attempt)
        except OSError as error:
            if not is_full(error):
                raise
            full_disk.give_back(self.directory.path)
            self.directory.add(attempt)
            return error
        return None

    def _forget(self, child: _RunProcess) -> None:
        """Remove the run directories of an attempt that will be played again."""
        for run in self._runs_of(child.item, child.number):
            shutil.rmtree(run, ignore_errors=True)

    def _end_overdue(self) -> None:
        """Send SIGINT to each run that takes too long. Kill it if it does not end in time after that, so that the other
        runs of the night can begin.
        """
        now = time.monotonic()
        for child in self._children:
            if child.asked is None and now - child.clock > self.limit_s(child.item):
                child.asked = now
                child.popen.send_signal(signal.SIGINT)
            elif child.asked is not None and now - child.asked > self.ending_s:
                child.popen.kill()

    def limit_s(self, item: PlannedRun) -> float:
        """Return the seconds that a run may take."""
        return self.limits.run_s if self.limits.run_s is not None else budget.limit_s(item)

    def _attempt(self, child: _RunProcess) -> RunAttempt:
        code = child.popen.returncode
        run = next(iter(self._runs_of(child.item, child.number)), None)
        written, content = (NO_VERDICT, {}) if run is None else read_verdict(run)
        verdict = judged(written, code, ended_by_us=child.asked is not None)
        unexpected = () if verdict == NO_VERDICT else self._unexpected(child.item.cell, content)
        # All other runs stay whole, because somebody has to explain them.
        if run is not None and verdict == VALID and not unexpected:
            thin(run, found=bool(content.get("anomalies")))
        log = self.directory.logs / f"{label(child.item, child.number)}.txt"
        overdue = self._overdue(child.item) if verdict == NO_VERDICT and child.asked else ""
        return RunAttempt(
            item=child.item.item,
            attempt=child.number,
            verdict=verdict,
            exit=code,
            run="" if run is None else run.relative_to(self.directory.path.absolute()).as_posix(),
            began=child.began.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - child.clock, 1),
            why=overdue or _why(verdict, content, code, log),
            unexpected=unexpected,
            bytes=0 if run is None else bytes_of(run),
            permitted_loss=str(permitted_loss(content) or ""),
        )

    def _overdue(self, item: PlannedRun) -> str:
        return f"ended because it took longer than {self.limit_s(item):g} s (--run-limit)"

    def _unexpected(self, cell: Cell, content: Mapping[str, object]) -> tuple[str, ...]:
        return forbidden(self._expected, cell, content.get("anomalies"))

    def _runs_of(self, item: PlannedRun, number: int) -> list[Path]:
        """Return a list with the run directory of an attempt; [] if there is none."""
        wanted = re.compile(rf"\d{{8}}T\d{{6}}-{re.escape(label(item, number))}(-\d+)?")
        folder = self.directory.runs.absolute()
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(each for each in found if wanted.fullmatch(each.name) and not each.is_symlink())


def finished(attempts: Sequence[RunAttempt], retries: int, *, repeats: bool) -> bool:
    """Return whether an item needs no further attempt. `repeats`: a retry would end in the same way, as in the
    simulator.
    """
    if not attempts:
        return False
    return attempts[-1].verdict != UNKNOWN or repeats or len(attempts) > retries


def label(item: PlannedRun, number: int) -> str:
    """Return the name of an attempt's run directory, without the time in front."""
    return item.item if number == 1 else f"{item.item}.again{number}"


def read_verdict(run: Path) -> tuple[str, Mapping[str, object]]:
    """Return the verdict of a run directory and the content of verdict.json; `NO_VERDICT` and {} if the run was not
    judged.
    """
    try:
        content = json.loads((run / "verdict.json").read_text())
        return str(content["verdict"]), content
    except (OSError, ValueError, KeyError, TypeError):
        return NO_VERDICT, {}


def judged(written: str, code: int, *, ended_by_us: bool = False) -> str:
    """Return the verdict of an attempt. written: the verdict in verdict.json; code: the exit code of the process.

    An invalid run stays invalid, however the process ended after that. Any other verdict counts only with its own exit
    code, because a harness that fails after its verdict proves nothing. With another exit code the attempt is unknown.
    But it has no verdict if `ended_by_us`: the night asked the run to end, because it took too long.
    """
    if written in (INVALID, NO_VERDICT) or CODES.get(written) == code:
        return written if written in CODES else NO_VERDICT
    return NO_VERDICT if ended_by_us else UNKNOWN


ASIDE = "squall: the traceback is in"
"""Is how the last line of a run's output begins if its harness failed. The line before it says why."""


def _why(verdict: str, content: Mapping[str, object], code: int, log: Path) -> str:
    if verdict == VALID:
        return ""
    reasons = content.get("reasons")
    if verdict != NO_VERDICT and isinstance(reasons, list) and reasons:
        # Trouble of the harness explains the other reasons, such as a missing history.
        reason = next((str(each) for each in reasons if str(each).startswith(TROUBLE)), str(reasons[0]))
        return reason if CODES.get(verdict) == code else f"{reason}; its exit code was {code}"
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    lines = [line for line in lines if not line.startswith(ASIDE)] or lines
    return f"exit code {code}: {lines[-1].strip() if lines else 'it said nothing'}"
