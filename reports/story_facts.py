"""Collects the facts of a run directory about one partition, in order of time: stories are written from them.

Every time is in seconds since the load began, as the plan's `at_s`; earlier times are negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from squall.broker.protocol.apis import ApiKey
from squall.checkers.anomalies.anomaly import PROGRAM
from squall.checkers.fault_traits import TAKES_DOWN
from squall.checkers.history.values import AFTER_HEALING
from squall.checkers.sent import ObservedProduceRequests, ProduceRequestSettings
from squall.reports.problems import METADATA, StorySubject, load_begin
from squall.reports.run_files import Json, RunFiles, integer, mapping, number, objects, traits_of
from squall.reports.sent_words import RequestedSettings, acks_text, acks_words, asked_of
from squall.reports.story_reads import THROWN, InvalidPosition, PolledRange

HISTORY_LIMIT = 512 << 20
"""Limits the bytes of a history.jsonl that is read; with a longer history nothing is known of the clients."""
ACKNOWLEDGED, FAILED, UNKNOWN = "acknowledged", "failed", "unknown"
_STATES = (ACKNOWLEDGED, FAILED, UNKNOWN)


@dataclass(slots=True)
class SentRecord:
    """Describes a record as its sender knows it. `offset` is -1 and `done` None if the sender got no answer."""

    value: int
    process: int
    sent: float
    done: float | None = None
    state: str = UNKNOWN
    offset: int = -1
    error: str = ""


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """Describes a record as a reader got it. `epoch` is the leader epoch in the answer, -1 for none."""

    t: float
    process: int
    value: int
    offset: int
    epoch: int
    final: bool


@dataclass(frozen=True, slots=True)
class BrokerTraceLine:
    """Holds a line of a broker's trace: time, broker, name of the event, and its fields."""

    t: float
    node: int
    name: str
    fields: Mapping[str, Any]

    def int_of(self, name: str, otherwise: int = -1) -> int:
        """Return the field of this name if it is a whole number, else `otherwise`."""
        return integer(self.fields.get(name), otherwise)

    def ids(self, name: str) -> tuple[int, ...]:
        """Return the broker ids in the field of this name."""
        listed = self.fields.get(name)
        return tuple(sorted(each for each in listed if isinstance(each, int))) if isinstance(listed, list) else ()


@dataclass(frozen=True, slots=True)
class NodeFaultSpan:
    """Describes a fault on one node. `end` is None if the fault never ended."""

    number: int
    action: str
    node: int
    begin: float
    end: float | None
    words: str
    down: bool
    """Is True if the broker is down until its next incarnation."""


@dataclass(frozen=True, slots=True)
class SimMessage:
    """Describes a simulated message between two hosts. `arrives` is None if the message never arrived."""

    sent: float
    arrives: float | None
    source: str
    target: str
    api: str
    kind: str
    note: str


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Describes a group's position in the partition `where` that a member committed, or fetched if `fetched`. An
    `offset` of -1 says that nothing is committed.

    For a fetched position, `broker` is the broker that answered (-1 if it is not known), and `newer` is the position
    that had been committed by then.
    """

    t: float
    process: int
    where: str
    offset: int
    fetched: bool
    broker: int = -1
    newer: int = -1


@dataclass
class PartitionFacts:
    """Holds all known facts about one partition: sends, reads, trace events, faults and messages."""

    problem: StorySubject
    nodes: list[int]
    sends: list[SentRecord] = field(default_factory=list)
    seen: list[SeenRecord] = field(default_factory=list)
    polled: list[PolledRange] = field(default_factory=list)
    invalid_positions: list[InvalidPosition] = field(default_factory=list)
    events: list[BrokerTraceLine] = field(default_factory=list)
    faults: list[NodeFaultSpan] = field(default_factory=list)
    wires: list[SimMessage] = field(default_factory=list)
    slots: dict[int, int] = field(default_factory=dict)
    """Maps a process to the number of its producer in the plan."""
    asked: RequestedSettings = RequestedSettings()
    """Holds the settings that the plan requests of all producers."""
    asked_of: dict[int, RequestedSettings] = field(default_factory=dict)
    """Maps a producer's process to the settings that it is to use, by the plan or by its own settings."""
    programs: set[int] = field(default_factory=set)
    """Holds the processes that are a program under test: their settings are known only from observed requests."""
    fresh: set[int] = field(default_factory=set)
    """Holds the processes of fresh clients: writers that the harness starts after healing."""
    requests: ObservedProduceRequests = ObservedProduceRequests()
    outputs: tuple[int, ...] = ()
    """Lists the values of the output records if the finding is about one input record from which several outputs were
    made; else empty. If it is not empty, the story leaves out unrelated records, even in a small partition.
    """
    positions: list[GroupPosition] = field(default_factory=list)
    """Lists the old positions that group members fetched although a newer one had been committed, so that they read the
    input again. The commit of the newer position is in the list, too, before them.
    """
    final_reads: tuple[float, float] | None = None
    """Gives the times when the final readers began and when the last one ended; None if no final read reached the end.
    """

    @property
    def sent(self) -> tuple[ProduceRequestSettings, ...]:
        """Returns the settings in the observed Produce requests of the processes that sent to the partition."""
        return self.requests.of_processes(dict.fromkeys(each.process for each in self.sends))

    @cached_property
    def known_end(self) -> float:
        """Returns the highest log end that a trace or a final read shows; infinity if no final read reached the end. An
        acknowledged offset beyond it is ignored: a program under test may report any offset.
        """
        if self.final_reads is None:
            return float("inf")
        ends = [max(event.int_of("leo"), event.int_of("from_offset")) for event in self.events]
        ends += [max(poll.hw, poll.last + 1) for poll in self.polled if poll.final]
        return max([*ends, *(seen.offset + 1 for seen in self.seen)], default=0)

    def acks_of(self, process: int) -> int | None:
        """Return the acks that a process sent. If no request was observed and it is a client of Squall's, return the
        acks that it was to use. Return None if they are not known, or if it sent several.
        """
        sent = {each.acks for each in self.requests.of_process(process)}
        if sent:
            return sent.pop() if len(sent) == 1 else None
        return None if process in self.programs else self.asked_of.get(process, self.asked).acks

    def acks_words(self, process: int) -> str:
        """Say which acks a process sent, and also the requested ones if they differ or if no request was observed."""
        asked, sent = self.asked_of.get(process, self.asked), self.requests.of_process(process)
        if sent:
            return acks_words(asked, sent)
        return f"acks={acks_text(asked.acks)}{' asked, not seen' if process in self.programs else ''}"


def facts_of(files: RunFiles, problem: StorySubject) -> PartitionFacts:
    """Read the facts about the problem's partition. Missing or damaged files raise no error and add no facts."""
    return all_facts(files, [problem])[0]


def all_facts(files: RunFiles, problems: Sequence[StorySubject]) -> list[PartitionFacts]:
    """Return the facts of several problems: the history is read once for all of them."""
    begin = load_begin(files)
    found = [_without_clients(files, problem, begin) for problem in problems]
    _read_history(files, found, begin)
    return found


def _without_clients(files: RunFiles, problem: StorySubject, begin: float) -> PartitionFacts:
    """Return all facts about the partition except what clients did, which is in the history."""
    facts = PartitionFacts(problem, files.nodes)
    facts.asked = asked_of(mapping(files.plan.get("workload")))
    facts.requests = files.sent
    facts.events = sorted(_events(files, problem, begin), key=lambda event: event.t)
    starts = [event for event in facts.events if event.name == "node_started"]
    facts.faults = [_until_started(bar, starts) for bar in _faults(files, begin)]
    since, until = files.phase("final reads")
    if since is not None:
        over = (until if until is not None else since) - begin
        # What follows is the harness taking the cluster down.
        facts.events = [event for event in facts.events if event.t <= over]
        if _read_to_the_end(files, problem):
            facts.final_reads = since - begin, over
    facts.wires = list(wires_of(files, begin))
    return facts


def _read_to_the_end(files: RunFiles, problem: StorySubject) -> bool:
    """Return whether a final read reached the end of the partition. In a run that stopped before, it is not known what
    such a read would have found.
    """
    return any(problem.where not in mapping(each.get("missing")) for each in objects(files.run.get("final_reads")))


# ------------------------------------------------------------------------------------------------------------- traces

_OF_NODE = ("node_started", "node_ready", "node_stopping", "node_stopped")
_OF_QUORUM = ("election", "vote", "quorum_election", "quorum_vote", "controller_active", "controller_resigned")
_OF_BROKER = ("broker_fenced", "broker_unfenced", "registration_refused")


def _events(files: RunFiles, problem: StorySubject, begin: float) -> Iterable[BrokerTraceLine]:
    quorum = problem.topic == METADATA
    for node, trace in files.traces.items():
        for line in trace:
            at = files.seconds(line["t"] * 1e9)
            mine = line.get("topic") == problem.topic and line.get("partition") == problem.partition
            wanted = mine or line["e"] in _OF_NODE or (line["e"] in _OF_QUORUM and quorum)
            if at is not None and (wanted or (line["e"] in _OF_BROKER and not quorum)):
                fields = {k: v for k, v in line.items() if k not in ("t", "w", "n", "e")}
                yield BrokerTraceLine(at - begin, node, line["e"], fields)


# ------------------------------------------------------------------------------------------------------------- faults


def _faults(files: RunFiles, begin: float) -> Iterable[NodeFaultSpan]:
    for fault in files.faults:
        since, until = files.seconds(fault.get("began")), files.seconds(fault.get("ended"))
        if since is None:
            continue
        action, said = str(fault.get("action")), mapping(mapping(fault.get("words")).get("nodes"))
        down = TAKES_DOWN in traits_of(fault)
        for node in mapping(fault.get("target")).get("resolved") or ():
            if isinstance(node, int):
                words = str(said.get(str(node)) or f"hit by {action.replace('_', ' ')}")
                end = None if until is None else until - begin
                yield NodeFaultSpan(integer(fault.get("id")), action, node, since - begin, end, words, down)


def _until_started(bar: NodeFaultSpan, starts: list[BrokerTraceLine]) -> NodeFaultSpan:
    """Extend a fault's bar until its node starts again: the node is down until then, even if the fault ends earlier."""
    again = next((each.t for each in starts if each.node == bar.node and each.t > bar.begin), None)
    if not bar.down or again is None or (bar.end is not None and bar.end <= again):
        return bar
    return replace(bar, end=again)


# ------------------------------------------------------------------------------------------------------------ clients


def _read_history(files: RunFiles, found: Sequence[PartitionFacts], begin: float) -> None:
    """Read what clients did from the history into each of `found`: sends, reads, and processes with their settings.
    Facts about the same partition share these lists. Read nothing if the history is missing, or longer than
    HISTORY_LIMIT.
    """
    path = files.path / "history.jsonl"
    dense_ids = {name: dense for dense, name in files.part_names.items()}
    named = [(dense_ids[facts.problem.where], facts) for facts in found if facts.problem.where in dense_ids]
    try:
        if not named or path.stat().st_size > HISTORY_LIMIT:
            return
    except OSError:
        return
    history = _PartitionHistoryReader(files, {part for part, _ in named}, begin)
    for line in json_lines(path):
        history.take(line)
    for part, facts in named:
        facts.sends, facts.seen, facts.slots = history.sends[part], history.seen[part], history.slots
        facts.asked_of, facts.programs, facts.fresh = history.asked, history.programs, history.fresh
        facts.polled, facts.invalid_positions = history.polled[part], history.thrown[part]


class _PartitionHistoryReader:
    """Reads the sends and reads of some partitions from the history, line by line."""

    def __init__(self, files: RunFiles, parts: Iterable[int], begin: float) -> None:
        self._files, self._begin = files, begin
        self.sends: dict[int, list[SentRecord]] = {part: [] for part in parts}
        self.seen: dict[int, list[SeenRecord]] = {part: [] for part in self.sends}
        self.polled: dict[int, list[PolledRange]] = {part: [] for part in self.sends}
        self.thrown: dict[int, list[InvalidPosition]] = {part: [] for part in self.sends}
        self.slots: dict[int, int] = {}
        self.asked: dict[int, RequestedSettings] = {}
        self.programs: set[int] = set()
        self.fresh: set[int] = set()
        self._open: dict[int, SentRecord] = {}
        self._process_of: dict[int, tuple[int, bool, Json]] = {}
        self._final: set[int] = set()
        self._listing: dict[int, tuple[int, int]] = {}

    def take(self, line: Json) -> None:
        """Read one line of the history."""
        kind = line.get("e")
        if kind == "p" and line.get("role") == "final":
            self._final.add(integer(line.get("p")))
        elif kind == "p" and line.get("role") == "reader" and line.get("client") == PROGRAM:
            self.programs.add(integer(line.get("p")))
        elif kind == "p" and line.get("role") == "producer":
            process, settings = integer(line.get("p")), mapping(line.get("settings"))
            if (slot := integer(settings.get("producer"))) >= 0:
                self.slots[process] = slot
            self.asked[process] = asked_of(mapping(self._files.plan.get("workload")), settings)
            if AFTER_HEALING in settings:
                self.fresh.add(process)
            if line.get("client") == PROGRAM:
                self.programs.add(process)
        elif kind == "i":
            self._invoked(line)
        elif kind == "c":
            self._completed(line)
        elif kind == "x" and line.get("kind") in THROWN and integer(line.get("part")) in self.thrown:
            names = ("position", "log_start", "end")
            where = [integer(line.get(name)) for name in names]
            told = InvalidPosition(self._at(line.get("t")), integer(line.get("p")), str(line["kind"]), *where)
            self.thrown[integer(line.get("part"))].append(told)

    def _at(self, ns: Any) -> float:
        at = self._files.seconds(ns)
        return (at if at is not None else 0.0) - self._begin

    def _invoked(self, line: Json) -> None:
        op, process = integer(line.get("op")), integer(line.get("p"))
        if line.get("f") == "send":
            sends = self.sends.get(integer(line.get("part")))
            if sends is not None:
                sent = SentRecord(integer(line.get("v")), process, self._at(line.get("t")))
                self._open[op] = sent
                sends.append(sent)
        elif line.get("f") == "list_offsets" and line.get("which") == "latest":
            self._listing[op] = process, integer(line.get("part"))
        elif line.get("f") in ("poll", "final_read"):
            final = line.get("f") == "final_read" or process in self._final
            self._process_of[op] = process, final, mapping(line.get("at"))

    def _completed(self, line: Json) -> None:
        op = integer(line.get("op"))
        sent = self._open.pop(op, None)
        if sent is not None:
            state = line.get("st")
            sent.done = self._at(line.get("t"))
            sent.state = _STATES[state] if state in (0, 1, 2) else UNKNOWN
            sent.offset = integer(line.get("off"))
            sent.error = str(line.get("err") or "")
        process, part = self._listing.pop(op, (-1, -1))
        if part in self.polled:
            told = PolledRange(
                self._at(line.get("t")), process, op, -1, -1, -1, 0, -1, -1, False, integer(line.get("off"))
            )
            self.polled[part].append(told)
        for got in line.get("got") or ():
            if isinstance(got, list) and len(got) >= 6 and (seen := self.seen.get(integer(got[0]))) is not None:
                self._read(op, self._at(line.get("t")), got, seen)

    def _read(self, op: int, at: float, got: list[Any], seen: list[SeenRecord]) -> None:
        process, final, positions = self._process_of.get(op, (-1, False, {}))
        epoch = integer(got[6]) if len(got) > 6 else -1
        pairs = [pair for pair in got[5] if isinstance(pair, list) and len(pair) == 2]
        for pair in pairs:
            seen.append(SeenRecord(at, process, integer(pair[1]), integer(pair[0]), epoch, final))
        offsets = [integer(pair[0]) for pair in pairs]
        first, last, start = min(offsets, default=-1), max(offsets, default=-1), integer(positions.get(str(got[0])))
        marks = integer(got[2]), integer(got[3])
        self.polled[got[0]].append(PolledRange(at, process, op, start, first, last, len(pairs), *marks, final))


def json_lines(path: Path) -> Iterable[Json]:
    """Yield the objects of a JSONL file, without its other lines; nothing if the file cannot be read."""
    try:
        with path.open("rb") as lines:
            for raw in lines:
                try:
                    value = msgspec.json.decode(raw)
                except (ValueError, RecursionError):
                    continue
                if isinstance(value, dict):
                    yield value
    except OSError:
        return


def wires_of(files: RunFiles, begin: float) -> Iterable[SimMessage]:
    """Yield the messages between simulated hosts, from messages.jsonl if there is one. Times are monotonic seconds as
    in traces, and times of arrival are estimates.
    """
    for line in json_lines(files.path / "messages.jsonl"):
        sent = number(line.get("t_sent"))
        at = files.seconds(sent * 1e9) if sent is not None else None
        arrives = number(line.get("t_arrives"))
        lost = str(line.get("note")).startswith("drop")
        there = files.seconds(arrives * 1e9) if arrives is not None and not lost else None
        if at is not None:
            yield SimMessage(
                at - begin,
                None if there is None else there - begin,
                _host(line.get("source")),
                _host(line.get("target")),
                _api(line.get("api")),
                str(line.get("kind")),
                str(line.get("note") or ""),
            )


def _host(value: Any) -> str:
    """Return a broker's id as text, whatever form the host has; any other host unchanged."""
    return str(value).removeprefix("broker-")


def _api(value: Any) -> str:
    known = isinstance(value, int) and value in ApiKey.__members__.values()
    return ApiKey(value).name.title().replace("_", "") if known else str(value)
