"""Reads the files of a run directory for reports. Every file may be missing, cut off or wrong: that is reported, never
hidden.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from squall.checkers import first_schema, kafka_log, simulated
from squall.checkers.history import seal
from squall.checkers.sent import ObservedProduceRequests, sent_in
from squall.reports.checkout import PROGRAM, from_checkout

Json = dict[str, Any]

SCHEMAS = {"run.json": 1, "verdict.json": 1, "metrics.json": 1, "series.json": 1}
PAGE = "report.html"
"""Names the page of a run."""
PLAN = "plan.toml"
OURS = "squall"
"""Is the `target` in plan.toml for Squall's own brokers."""
_HEAD_LINES = 20_000
"""Limits the lines of history.jsonl that are searched for the names of partitions, which are near its begin."""


def mapping(value: Any) -> Json:
    """Return `value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[Json]:
    """Return the objects in `value` if it is a list, else none."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def texts(value: Any) -> list[str]:
    """Return the items of `value` as text if it is a list, else an empty list."""
    return [str(each) for each in value] if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """Return `value` if it is a number, else None."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def integer(value: Any, otherwise: int = -1) -> int:
    """Return `value` if it is a whole number, else `otherwise`."""
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def traits_of(fault: Json) -> frozenset[str]:
    """Return the traits of a fault, such as "takes down" or "cuts links", from its line of nemesis.jsonl. Lines of
    schema 1 have no traits, so they are derived from the line's action.
    """
    if "traits" in fault:
        return frozenset(texts(fault["traits"]))
    return first_schema.traits_of(str(fault.get("action")), mapping(fault.get("params")))


@dataclass
class RunFiles:
    """Holds a run directory's files as values; `problems` says in a sentence each what could not be read."""

    path: Path
    problems: list[str] = field(default_factory=list)
    run: Json = field(default_factory=dict)
    plan: Json = field(default_factory=dict)
    plan_text: str = ""
    verdict: Json = field(default_factory=dict)
    metrics: Json = field(default_factory=dict)
    series: Json = field(default_factory=dict)
    faults: list[Json] = field(default_factory=list)
    """Lists the faults in the order of their ids. Each is the fault's last line in nemesis.jsonl."""
    traces: dict[int, list[Json]] = field(default_factory=dict)
    """Maps a node id to the events of its trace."""
    traces_whole: bool = True
    """Is False if a trace is missing or has unreadable lines."""
    from_broker_logs: bool = False
    """Is True if the events of `traces` come from logs of Apache Kafka, whose times are in milliseconds."""
    from_polls: bool = False
    """Is True if the events of `traces` come from polls of the cluster (polled.jsonl): leaders, epochs and ISRs."""
    violations: list[Json] = field(default_factory=list)
    """Lists the invariants that broke in a simulation, as violations.json describes them."""
    overlooked: str = ""
    """Says which failure the simulator saw although the verdict is valid (`simulated.overlooked`). Such a verdict does
    not count. Empty if there is none.
    """
    part_names: dict[int, str] = field(default_factory=dict)
    """Maps the id of a partition in the history to its name, such as "orders-3"."""
    origin_ns: float | None = None
    """Is the zero of the page's time axis, in ns of the run's clock. It is the begin of the load with faults, because
    plans count from there, too. If that is not known, it is the time in the history's header, else the begin of the
    run.
    """

    @property
    def name(self) -> str:
        """Returns the run's id."""
        return str(self.run.get("run") or self.path.name)

    @property
    def command(self) -> str:
        """Returns the command that repeats the run; empty if it is not known. It names plan.toml in the directory that
        was read, even if that is a copy of the original run directory.
        """
        return self._repeated(str((self.path / PLAN).absolute()))

    def command_in_checkout(self, place: str = "") -> str:
        """Return the command that repeats the run, for the folder of the checkout. Its path of plan.toml is relative,
        so it is still correct after the checkout was moved. `place` is the run directory's path in the checkout if that
        differs from the present one: an exported run will be unpacked there.
        """
        return self._repeated(f"{place or from_checkout(self.path)}/{PLAN}", PROGRAM)

    def _repeated(self, plan: str, program: str = "") -> str:
        try:
            words = shlex.split(str(self.run.get("command") or ""))
        except ValueError:  # quotes that do not end
            return str(self.run.get("command"))
        if program and words:
            words[0] = program
        if (self.path / PLAN).exists():
            words = [plan if Path(word).name == PLAN else word for word in words]
        return shlex.join(words)

    @property
    def planted(self) -> str:
        """Returns the bug that was put into a simulation's brokers on purpose; empty for unchanged brokers."""
        told = mapping(self.run.get(simulated.KEY))
        return str(told.get("planted") or told.get("mutant") or "")

    @property
    def foreign(self) -> str:
        """Returns the name of the brokers' program if the brokers are not Squall's own; else empty. Foreign brokers
        write no traces.
        """
        planned = str(self.plan.get("target") or OURS)
        return str(mapping(self.run.get("target")).get("name") or ("" if planned == OURS else planned))

    def seconds(self, ns: Any) -> float | None:
        """Convert a time of the run's clock to seconds on the page's time axis; None if it is no time, or if the origin
        is unknown.
        """
        at = number(ns)
        return None if at is None or at < 0 or self.origin_ns is None else (at - self.origin_ns) / 1e9

    def simulated_seconds(self, virtual_s: Any) -> float | None:
        """Convert virtual seconds of a simulation to seconds on the page's time axis."""
        at, begin = number(virtual_s), number(self.run.get("began_ns"))
        return None if at is None or begin is None else self.seconds(begin + at * 1e9)

    def phase(self, *names: str) -> tuple[float | None, float | None]:
        """Return the begin of the first and the end of the last of these phases, in seconds on the page's time axis;
        None for an unknown time.
        """
        found = [each for each in self.phases if each[0] in names]
        begins = [b for _, b, _ in found if b is not None]
        ends = [e for _, _, e in found if e is not None]
        return min(begins, default=None), max(ends, default=None)

    @cached_property
    def phases(self) -> list[tuple[str, float | None, float | None]]:
        """Lists the phases of the run, such as "load with faults", in order: (name, begin, end), in seconds on the
        page's time axis. A time is None if it is not known.
        """
        listed = objects(self.run.get("phases"))
        return [(str(p.get("name")), self.seconds(p.get("began")), self.seconds(p.get("ended"))) for p in listed]

    @cached_property
    def sent(self) -> ObservedProduceRequests:
        """Returns the Produce requests of the load that brokers or Squall's relay saw, with their settings (acks,
        compression, ...).
        """
        return sent_in(self.path)

    @property
    def nodes(self) -> list[int]:
        """Returns the broker ids of the plan and of the traces."""
        count = integer(mapping(self.plan.get("cluster")).get("nodes"), 0)
        # Bounded, because plan.toml may be damaged.
        return sorted({*range(1, min(count, 99) + 1), *self.traces})

    def landed(self) -> int:
        """Return how many faults landed: they have evidence and no error."""
        return sum(1 for fault in self.faults if fault.get("evidence") and not fault.get("error"))

    def planned_faults(self) -> int | None:
        """Return how many faults were planned; None if no file says so."""
        if self.plan:
            return len(objects(self.plan.get("faults")))
        told = mapping(self.run.get("faults")).get("planned")
        return told if isinstance(told, int) else None


def read_run(path: Path) -> RunFiles:
    """Read the files in `path`. Raises nothing for the state of the files."""
    files = RunFiles(path)
    files.run = _object(files, "run.json")
    files.verdict = _object(files, "verdict.json")
    files.metrics = _object(files, "metrics.json")
    files.series = _object(files, "series.json")
    files.plan_text = _text(files, "plan.toml") or ""
    if files.plan_text:
        try:
            files.plan = tomllib.loads(files.plan_text)
        except tomllib.TOMLDecodeError as error:
            files.problems.append(f"plan.toml is not TOML: {error}.")
    by_id = {fault["id"]: fault for fault in _lines(files, "nemesis.jsonl") if isinstance(fault.get("id"), int)}
    files.faults = [by_id[key] for key in sorted(by_id)]
    files.violations = _violations(files)
    files.overlooked = simulated.overlooked(path, files.verdict)
    files.problems += [f"{files.overlooked}."] if files.overlooked else []
    _read_traces(files)
    clock = _read_history_head(files)
    if files.foreign and not files.traces:
        _read_broker_logs(files, *clock)
        if not files.traces:
            _read_polled(files)
    _tell_missing_traces(files)
    _count_from_the_load(files)
    _cross_check(files)
    if other := seal.not_judged(path, files.verdict):
        files.problems.append(f"{other}. What is told of clients, and what was judged, may not fit together.")
    return files


def _violations(files: RunFiles) -> list[Json]:
    """Read violations.json, which only failing simulations have. If it is missing, return the broken invariant that
    run.json names, or none.
    """
    files.problems += [f"{each}." for each in simulated.read(files.path, files.run, {}).troubles]
    found, _ = simulated.listed(files.path)
    told = mapping(files.run.get(simulated.KEY))
    failure = mapping(told.get("failure"))
    if found or failure.get("kind") != simulated.INVARIANT:
        return found
    return [{"name": failure.get("name"), "message": " ".join(texts(told.get("told"))[:1])}]


def _text(files: RunFiles, name: str) -> str | None:
    try:
        return (files.path / name).read_text(errors="replace")
    except FileNotFoundError:
        files.problems.append(f"{name} is missing.")
    except OSError as error:
        files.problems.append(f"{name} cannot be read: {error.strerror}.")
    return None


def _object(files: RunFiles, name: str) -> Json:
    text = _text(files, name)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        files.problems.append(f"{name} is cut or damaged: {error}.")
        return {}
    if not isinstance(found, dict):
        files.problems.append(f"{name} does not hold an object.")
        return {}
    if found.get("schema") != SCHEMAS[name]:
        known = SCHEMAS[name]
        files.problems.append(f"{name} is of schema {found.get('schema')!r}, this page knows {known}: left out.")
        return {}
    return found


def _lines(files: RunFiles, name: str) -> list[Json]:
    """Return the objects of a JSONL file, and report its unreadable lines."""
    text = _text(files, name)
    if text is None:
        return []
    found, bad = [], []
    lines = text.split("\n")
    for line_number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            # A whole file ends with a newline, and its last piece is empty: only an unfinished line can be the last
            # piece.
            bad.append((line_number, line_number == len(lines)))
            continue
        if isinstance(value, dict):
            found.append(value)
        else:
            bad.append((line_number, False))
    if bad and bad[-1][1]:
        files.problems.append(f"{name}: the last line is unfinished.")
        files.traces_whole &= not name.startswith("nodes/")
        bad.pop()
    if bad:
        files.traces_whole &= not name.startswith("nodes/")
        files.problems.append(f"{name}: {len(bad)} unreadable lines were left out, the first is line {bad[0][0]}.")
    return found


def _read_traces(files: RunFiles) -> None:
    folder = files.path / "nodes"
    if not folder.is_dir():
        files.problems.append("nodes/ is missing: who led which partition is not known.")
        return
    for each in sorted(folder.iterdir()):
        if each.name.isdigit() and each.is_dir():
            if files.foreign and not (each / "trace.jsonl").exists():
                files.traces_whole = False
                continue
            events = _lines(files, f"nodes/{each.name}/trace.jsonl")
            files.traces[int(each.name)] = [
                event for event in events if number(event.get("t")) is not None and isinstance(event.get("e"), str)
            ]


def _read_broker_logs(files: RunFiles, wall_ms: int, mono_ns: int) -> None:
    """Read events from nodes/N/broker.log if it is a log of Apache Kafka. `wall_ms` and `mono_ns` are one moment on the
    wall clock, which the log uses, and on the history's clock. If they are not known (-1), nothing is read.
    """
    if wall_ms < 0:
        return
    told = kafka_log.read_logs(files.path, wall_ms, mono_ns, files.problems.append)
    if any(said.events for said in told.values()):
        files.from_broker_logs = True
        files.traces = {node: said.events for node, said in told.items()}
        files.traces_whole = set(files.nodes) == set(told)
        files.problems += kafka_log.missing_loggers(list(told.values()))


def _read_polled(files: RunFiles) -> None:
    """Read polled.jsonl, the leaders, ISRs and controllers that a foreign cluster named when it was asked. Each entry
    becomes an event in the trace of the leader or controller that it names.
    """
    if not (files.path / "polled.jsonl").exists():
        return
    traces: dict[int, list[Json]] = {}
    count, active = 0, -1
    for line in _lines(files, "polled.jsonl"):
        if number(line.get("t")) is None:
            continue
        if line.get("e") == "polled" and isinstance(line.get("isr"), list):
            count += 1
            leader, isr = integer(line.get("leader")), [each for each in line["isr"] if isinstance(each, int)]
            # An event has to be in some broker's trace. Without a leader, any broker will do.
            about = leader if leader >= 0 else min(isr, default=min(traces, default=1))
            # Metadata has no partition epoch. The count takes its place: readers of traces ignore a state whose epoch
            # does not rise (`lanes._isr_steps`).
            traces.setdefault(about, []).append({**line, "partition_epoch": count})
        elif line.get("e") == "polled_controller" and integer(line.get("node")) >= 0:
            if active >= 0:
                traces.setdefault(active, []).append({"t": line["t"], "e": "controller_resigned"})
            active = integer(line.get("node"))
            traces.setdefault(active, []).append({"t": line["t"], "e": "controller_active"})
    files.traces, files.from_polls, files.traces_whole = traces, bool(traces), False


def _tell_missing_traces(files: RunFiles) -> None:
    if files.foreign and not files.traces:
        files.problems.append(
            f"{files.foreign} writes no trace, and there is no log of a broker that can be read (nodes/N/broker.log), "
            "nor what the cluster said when it was asked (polled.jsonl): who led which partition when, and why a "
            "record went, is not known from inside. "
            "Stories tell what clients saw, and of transactions what the brokers' logs still hold."
        )
    for node in files.nodes if not files.from_polls else ():
        if not files.traces.get(node) and files.traces:
            name = "broker.log" if files.from_broker_logs else "trace.jsonl"
            files.traces_whole = False
            files.problems.append(f"nodes/{node}/{name} has nothing: what only broker {node} knew is not told.")


def _read_history_head(files: RunFiles) -> tuple[int, int]:
    """Read the clock's origin and the partitions' names. Return the header's (wall ms, monotonic ns), -1 if unknown."""
    clock = -1, -1
    for name, partition in mapping(files.metrics.get("partitions")).items():
        files.part_names[integer(mapping(partition).get("part"))] = name
    files.origin_ns = number(files.run.get("began_ns"))
    path = files.path / "history.jsonl"
    if not path.exists():
        files.problems.append("history.jsonl is missing: times count from the run's begin.")
        return clock
    with path.open("rb") as lines:
        for count, raw in enumerate(lines):
            # With metrics.json, which has the partitions' names, only the header is needed.
            if count > _HEAD_LINES or (count and files.metrics):
                break
            try:
                line = mapping(json.loads(raw))
            except (ValueError, RecursionError):
                break
            if line.get("e") == "h" and number(line.get("mono_ns")) is not None:
                files.origin_ns = number(line["mono_ns"])
                clock = integer(line.get("wall_ms")), integer(line["mono_ns"])
            elif line.get("e") == "t":
                files.part_names[integer(line.get("part"))] = f"{line.get('topic')}-{line.get('index')}"
    return clock


_MOMENTS = ("from_s", "to_s", "began_s", "ended_s", "healed_s")
"""Lists the keys of metrics.json, and of a workload's figures in verdict.json, whose values are times. The files give
them in seconds since the history's header.
"""


def _count_from_the_load(files: RunFiles) -> None:
    """Make all times count from the begin of the load with faults, like the times in plans."""
    begins = {str(each.get("name")): number(each.get("began")) for each in objects(files.run.get("phases"))}
    begin = begins.get("load with faults") or begins.get("load")
    if begin is None or files.origin_ns is None:
        return
    shift_s = (files.origin_ns - begin) / 1e9
    files.origin_ns = begin
    files.metrics = _shifted(files.metrics, shift_s)
    if "workload" in files.verdict:
        files.verdict["workload"] = _shifted(files.verdict["workload"], shift_s)
    seconds = files.series.get("second")
    if isinstance(seconds, list):
        files.series["second"] = [at if number(at) is None else at + shift_s for at in seconds]


def _shifted(value: Any, shift_s: float) -> Any:
    """Return a JSON value in which `shift_s` is added to every time, at any depth: to each number with a key in
    `_MOMENTS`.
    """
    if isinstance(value, list):
        return [_shifted(each, shift_s) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: each + shift_s if key in _MOMENTS and number(each) is not None else _shifted(each, shift_s)
        for key, each in value.items()
    }


def _cross_check(files: RunFiles) -> None:
    judged = files.verdict.get("run")
    if judged and files.run.get("run") and judged != files.run["run"]:
        files.problems.append(f"verdict.json is about another run, {judged}.")
    if files.run and not number(files.run.get("ended_ns")):
        files.problems.append("run.json has no end: the run did not finish, or is still going.")
    if any(fault.get("began") and not fault.get("ended") for fault in files.faults):
        files.problems.append("nemesis.jsonl: a fault began and has no end.")
