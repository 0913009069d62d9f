"""Derives which broker led each partition, when, and from which offset on: that explains why an acknowledged record is
gone.

A record that a leader acknowledged can be truncated only after a leader of a later epoch is elected whose log did not
hold the record (KIP-101, KIP-320). Mostly that epoch then starts at or below the record's offset. But after two unclean
elections the later leader's log may be longer, and hold other records there: then its trace says which epochs its log
has.
The later leader may have been elected before the record was acknowledged, because a leader that is cut off continues
until it hears of its successor.

Our brokers report leaderships in their traces, Apache Kafka in its log, and foreign clusters when they are polled.
"""

# Leaders that a trace shows only after the last final read explain nothing: brokers that stop at a run's end hand
# their partitions over.

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from squall.checkers import kafka_log
from squall.checkers.fault_traits import TAKES_DOWN
from squall.checkers.history.tables import ObservedPartition, PartitionFinalRead, RecordedFault, RecordRow

EVER = (1 << 62) - 1
"""Is a time after all others, and an offset above all others."""
ANYWHERE = EVER - 1
"""Replaces an offset that is not known: it is above the start of every epoch, so any of them may explain the loss."""
TRACE, POLLED = "trace.jsonl", "polled.jsonl"
EPOCHS = "epochs"
"""Is the key of run.json that a cluster without traces has: it maps the name of a partition to [[epoch, start offset],
...], as its leader answered OffsetForLeaderEpoch when the run ended. The last entry is the leader's own epoch.
"""
UNAWARE_NS = 60_000_000_000
"""Is how long, in ns, a leader may have continued to acknowledge records after a poll showed its successor, in a
cluster without traces.
"""
_LEADS, _FOLLOWS, _ELECTED = "became_leader", "became_follower", "leader_elected"
_STARTED, _READY, _STOPPED, _LAST = "node_started", "node_ready", "node_stopped", "last_line"
_NODE = (_STARTED, _READY, _STOPPED)
_EVENT_MARKS = (b'"became_', b'"node_', b'"leader_elected"')
REASONS = 3
"""Limits how many sentences on incomplete traces and unreported leaders `Leaderships.unknown` has."""


class LeaderTerm(NamedTuple):
    """Describes the term in which one broker led a partition in one epoch. Times are in ns on the run's clock, both
    ends included.
    """

    part: int
    epoch: int
    start: int
    """Is the first offset of the epoch: the leader's log end offset when its term began."""
    since: int
    until: int
    """Is when the broker certainly led no more; EVER if nothing says so."""
    cut: int = EVER
    """Is the lowest offset from which on the log of a later leader lacks records of this epoch: records that this
    leader acknowledged at or above it may be lost; EVER if there is no later epoch. Without knowledge of that log it is
    the start of the later epoch.
    """
    alone: int = -1
    """Is when the terms of all earlier epochs had ended: from then on, no earlier leader could acknowledge; -1 if there
    was no earlier epoch.
    """
    kept_until: int = -1
    """Is the latest send time among records below the start of every later epoch (`cut`) that only this leader can have
    acknowledged; -1 if there is none. Records that this leader acknowledged before then are below `cut`, too.
    """
    cut_since: int = EVER
    """Is the earliest acknowledgement time among records at or above the lowest start offset of a later epoch (`cut`)
    that this leader may have acknowledged; EVER if there is none. Records that were sent later to this leader are at or
    above `cut`, too.
    """

    def may_have_acknowledged(self, off: int, t0: int, t1: int) -> bool:
        """Return whether this leader may have acknowledged a record at `off` that was sent at `t0` and acknowledged at
        `t1`.
        """
        return self.start <= off and self.since <= t1 and t0 <= self.until

    def explains_without_offset(self, t0: int, t1: int) -> bool | None:
        """Return whether a record, which this leader acknowledged without an offset, was at or above the lowest start
        offset of a later epoch (`cut`): then that epoch explains its loss. None if that is not known. `t0` and `t1` are
        when the record was sent and acknowledged.

        Other records of this leader show where the record was (`kept_until`, `cut_since`): below those that were sent
        after it was acknowledged, and above those that were acknowledged before it was sent.
        """
        if t1 < self.kept_until:
            return False
        return True if self.cut_since < t0 else None


@dataclass(frozen=True, slots=True)
class Leaderships:
    """Holds the leader terms of a run. By default nothing is known of them."""

    rows: tuple[LeaderTerm, ...] = ()
    """Holds the leader terms of the history's partitions, by partition and epoch."""
    unknown: str = "no broker's trace or log tells who led"
    """Says why some terms may be missing; empty if all are known."""
    moved: bool = False
    """Is True if some partition, coordinators' partitions included, had more than one leader epoch."""

    def cut_of(self, part: int, off: int, t0: int, t1: int) -> int:
        """Return the lowest start offset of the later leader epochs that may have truncated this record; EVER if there
        is none.

        Such an epoch starts at or below the record, and is later than that of a leader that may have acknowledged the
        record. The record has the offset `off`, was sent at `t0` and acknowledged at `t1`; -1 for `off` or `t1` if it
        is not known.
        """
        place, done = off if off >= 0 else ANYWHERE, t1 if t1 >= 0 else EVER
        may_have = (each for each in self.rows if each.part == part and each.may_have_acknowledged(place, t0, done))
        return min((each.cut for each in may_have if each.cut <= place), default=EVER)

    def explain_without_offset(self, part: int, t0: int, t1: int) -> bool | None:
        """Return whether a later epoch truncated a record of `part` that was sent at `t0` and acknowledged at `t1`
        without an offset; None if not known.
        """
        may_have = (each for each in self.rows if each.part == part and each.cut < EVER)
        said = {
            each.explains_without_offset(t0, t1) for each in may_have if each.may_have_acknowledged(ANYWHERE, t0, t1)
        }
        return True if True in said else None if None in said else False

    def bounded_by(self, acknowledged: Collection[RecordRow]) -> Leaderships:
        """Return the leaderships with `LeaderTerm.kept_until` and `LeaderTerm.cut_since` computed from sends that were
        acknowledged with an offset. These two times show whether a later epoch may have truncated sends that were
        acknowledged without an offset.
        """
        return replace(self, rows=tuple(_bounded(row, acknowledged) for row in self.rows))

    def changed(self, part: int) -> bool:
        """Return whether a partition had more than one leader epoch."""
        return any(each.part == part and each.cut < EVER for each in self.rows)


def _bounded(row: LeaderTerm, acknowledged: Iterable[RecordRow]) -> LeaderTerm:
    if row.cut == EVER:
        return row
    its = [
        each for each in acknowledged if each.part == row.part and row.may_have_acknowledged(each.off, each.t0, each.t1)
    ]
    # Before all earlier terms have ended, an acknowledgement may be an earlier leader's.
    return row._replace(
        kept_until=max((each.t0 for each in its if each.off < row.cut and each.t0 > row.alone), default=-1),
        cut_since=min((each.t1 for each in its if each.off >= row.cut), default=EVER),
    )


def last_read(finals: Iterable[PartitionFinalRead]) -> int:
    """Return when the last final read ended, in ns; EVER if there was none. Later acts of leaders cannot have changed
    what final reads returned.
    """
    return max((each.t1 for each in finals), default=EVER)


def of_events(
    nodes: Mapping[Any, Iterable[Mapping[str, Any]]],
    partitions: Sequence[ObservedPartition],
    until: int = EVER,
    brokers: Collection[int] = (),
    down: Collection[int] = (),
) -> Leaderships:
    """Return the leaderships that the events of brokers show. `nodes` maps each broker, by id or name, to its events in
    order, which come from a trace or from `kafka_log`.

    These events count: `node_started` and `node_stopped`; `became_leader` with `topic`, `partition`, `epoch` and `leo`
    (the log end offset); and `became_follower` and `leader_elected` with the `leader`. `t` is in seconds on the run's
    clock, and `i` is the incarnation. A broker's last event must come from the last line of its trace, because its time
    shows how far the trace reaches.

    Terms that began after `until` are left out, because brokers that stop at the end of a run hand their partitions
    over. `brokers` holds the ids of all brokers, whose traces should be complete; empty if they are not known. `down`
    holds the ids of the brokers that may have been down at `until`.
    """
    led: dict[str, list[_Term]] = {}
    reported = {_id(node): list(events) for node, events in nodes.items()}
    for events in reported.values():
        for name, row in _of_node(events):
            if row.since <= until:
                led.setdefault(name, []).append(row)
    # A trace that exists but does not mention a partition does not prove that no other broker led it.
    silent = sorted(each.name for each in partitions if not each.deleted and each.name not in led)
    why = [f"no trace or log names a leader of {', '.join(silent)}"] if silent else []
    if brokers:
        names = {each.name for each in partitions if not each.deleted}
        why += [
            *_incomplete_traces(reported, until, brokers, down),
            *_unreported_leaders(reported, names, until, down),
        ][:REASONS]
    return _assembled(led, partitions, "; ".join(why))


def _id(node: Any) -> int:
    """Return a broker's id, from the id itself or from the broker's name in traces; -1 if it has no digits at its end.
    """
    digits = re.search(r"\d+$", str(node))
    return int(digits[0]) if digits else -1


def down_at(until: int, faults: Iterable[RecordedFault], info: Mapping[str, Any]) -> frozenset[int]:
    """Return the brokers that may have been down at `until` ns: by a fault, or because they ended and were not started
    again. `info` is run.json, which reports the brokers that ended (`node_exits`) and were started again (`heal`).
    """
    heal = info.get("heal") or {}
    started = set(heal.get("started", ()))
    ended = {exit_["node"] for exit_ in info.get("node_exits", ()) if exit_["node"] not in started}
    by_fault = {
        node
        for fault in faults
        if TAKES_DOWN in fault.traits and fault.began >= 0 and not 0 <= fault.ended <= until
        for node in fault.resolved
    }
    return frozenset(by_fault | ended | set(heal.get("failed", ())))


def _incomplete_traces(
    reported: Mapping[int, Sequence[Mapping[str, Any]]], until: int, brokers: Collection[int], down: Collection[int]
) -> Iterator[str]:
    """Yield a sentence for each broker of `brokers` whose trace or log is missing, lacks its begin, or ends before
    `until`, the end of the final reads in ns. A trace may end earlier if the broker stopped, or may have been down at
    `until` (`down`).
    """
    for node in sorted(brokers):
        events = reported.get(node, ())
        if not events:
            yield f"there is no trace or log of broker {node}"
        elif events[0]["e"] != _STARTED:
            yield f"the trace or log of broker {node} lacks its begin"
        elif until < EVER and events[-1]["t"] * 1e9 < until and events[-1]["e"] != _STOPPED and node not in down:
            yield f"the trace or log of broker {node} ends before the final reads do"


def _unreported_leaders(
    reported: Mapping[int, Sequence[Mapping[str, Any]]], names: Collection[str], until: int, down: Collection[int]
) -> Iterator[str]:
    """Yield a sentence for each leader that followers and controllers name, but that does not report its own term."""
    named: dict[tuple[str, int, int], float] = {}
    began: dict[str, dict[int, float]] = {}
    for event in (event for events in reported.values() for event in events):
        if (name := _place(event)) in names and event["t"] * 1e9 <= until:
            epoch, at = event["epoch"], event["t"]
            of_name = began.setdefault(name, {})
            of_name[epoch] = min(at, of_name.get(epoch, at))
            if event["e"] != _LEADS and event.get("leader", -1) >= 0:
                place = name, epoch, event["leader"]
                named[place] = min(at, named.get(place, at))
    for (name, epoch, leader), at in sorted(named.items()):
        own = [event for event in reported.get(leader, ()) if event["e"] in _NODE or _place(event) == name]
        if not any(event["e"] == _LEADS and event["epoch"] == epoch for event in own):
            before_end = [event for event in own if event["t"] * 1e9 <= until]
            next_at = min((each for other, each in began[name].items() if other > epoch), default=at)
            if not _may_not_have_led(before_end, at, next_at, may_end=leader in down):
                yield f"no trace or log has broker {leader} begin to lead {name} in epoch {epoch}, as others do"


def _may_not_have_led(own: Iterable[Mapping[str, Any]], at: float, next_at: float, *, may_end: bool) -> bool:
    """Return whether a broker that was elected for an epoch, and reports nothing of it, may never have led in it.

    `own` holds the broker's events of the partition, and its starts and stops. `at` and `next_at` are when other
    brokers first knew of the epoch, and of the next one. If `own` has no event after `at`, the result is `may_end`:
    whether the broker may have been down at the end of the run.

    The broker may have stopped, or lost its last trace lines in a crash. It may have been starting: then it takes up
    only the newest epoch. Or it heard of epochs so late that this one was over by then.
    """
    ready = False
    for event in own:
        if event["e"] in (_LEADS, _FOLLOWS) and event["t"] >= at:
            # It took up a role only later: the epoch may have come and gone before the broker heard of it.
            return not ready or event["t"] - next_at >= next_at - at
        if event["e"] in (_STARTED, _STOPPED) and event["t"] >= at:
            return True
        if event["e"] in _NODE:
            ready = event["e"] == _READY
    return may_end


class _Term(NamedTuple):
    """Describes a leader's term as its broker reports it, like `LeaderTerm`."""

    epoch: int
    start: int
    since: int
    until: int
    log: tuple[tuple[int, int], ...] = ()
    """Lists (epoch, start offset) of the epochs in the log of a leader that was elected uncleanly, as of the begin of
    its term; empty for others, and if it is not known.
    """

    def lacks(self, earlier: _Term) -> int:
        """Return the offset from which on this leader's log lacks the records of an earlier epoch: all of them, or
        those from the begin of the next epoch in its log on. If this leader began below the earlier epoch, it wrote to
        the offsets from its begin on.
        """
        behind = [start for epoch, start in self.log if earlier.epoch < epoch < self.epoch]
        if not self.log or earlier.epoch < self.log[0][0]:
            # What the log had of earlier epochs may have been deleted.
            return self.start
        has = any(epoch == earlier.epoch for epoch, _ in self.log)
        return min(behind, default=self.start) if has else min(earlier.start, self.start)


def _place(event: Mapping[str, Any]) -> str:
    return f"{event['topic']}-{event['partition']}" if event["e"] in (_LEADS, _FOLLOWS, _ELECTED) else ""


def _of_node(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, _Term]]:
    """Yield (name of the partition, term) for each term of one broker. The term's `until` is EVER if no event shows it.
    """
    leads: dict[str, _Term] = {}
    incarnation: Any = None

    def end(names: Iterable[str], at: int) -> Iterator[tuple[str, _Term]]:
        for name in list(names):
            if (row := leads.pop(name, None)) is not None:
                yield name, row._replace(until=at)

    for event in events:
        kind, at = event["e"], round(event["t"] * 1e9)
        # A killed broker writes no last line: its next incarnation ends its terms.
        if event.get("i", incarnation) != incarnation or kind in (_STARTED, _STOPPED):
            incarnation = event.get("i", incarnation)
            yield from end(leads, at)
        if kind in (_LEADS, _FOLLOWS):
            name = _place(event)
            yield from end([name], at)
            if kind == _LEADS:
                # Only after an unclean election: a leader from the ISR has all that was committed, or its log is wrong.
                epochs = event.get("epochs", ()) if event.get("recovering") is True else ()
                log = tuple((epoch, start) for epoch, start in epochs)
                leads[name] = _Term(event["epoch"], event["leo"], at, EVER, log)
    yield from end(leads, EVER)


def _assembled(
    led: Mapping[str, Iterable[_Term]], partitions: Sequence[ObservedPartition], unknown: str
) -> Leaderships:
    of_name: dict[str, list[ObservedPartition]] = {}
    for each in partitions:
        of_name.setdefault(each.name, []).append(each)
    rows, moved = [], False
    for name, found in led.items():
        for part, known in _by_topic(sorted(found), of_name.get(name, ())):
            moved |= len({term.epoch for term in known}) > 1
            for term in known if part >= 0 else ():
                cut = min((later.lacks(term) for later in known if later.epoch > term.epoch), default=EVER)
                alone = max((other.until for other in known if other.epoch < term.epoch), default=-1)
                rows.append(LeaderTerm(part, *term[:4], cut, alone))
    return Leaderships(tuple(sorted(rows)), unknown, moved)


def _by_topic(known: list[_Term], partitions: Sequence[ObservedPartition]) -> Iterator[tuple[int, list[_Term]]]:
    """Yield (partition id, its leader terms) for all partitions of one name. `known` holds all terms under that name.
    Several partitions have the same name if a topic was
    deleted and created again; the new topic's epochs begin at 0, so the terms are split at the deletion. The id -1 is
    used for a partition that the history does not know.
    """
    after = -1
    for each in partitions:
        until = each.deleted_t if each.deleted else EVER
        yield each.part, [row for row in known if after < row.since <= until]
        after = until
    if not partitions:
        yield -1, known


def of_answers(
    polled: Iterable[Mapping[str, Any]],
    epochs: Mapping[str, Sequence[Sequence[int]]],
    partitions: Sequence[ObservedPartition],
) -> Leaderships:
    """Return the leaderships that a polled cluster reported: polled.jsonl shows when each epoch was first seen, and
    `epochs` shows where it starts. `epochs` maps the name of a partition to [[epoch, start offset], ...] of the epochs
    that left records in the log.
    """
    seen: dict[str, dict[int, int]] = {}
    for line in polled:
        if line.get("e") == "polled":
            first = seen.setdefault(f"{line['topic']}-{line['partition']}", {})
            first.setdefault(line["epoch"], round(line["t"] * 1e9))
    led = {}
    for name, chain in epochs.items():
        reported = sorted(seen.get(name, {}).items())
        led[name] = [
            # An epoch may begin between two polls: as early as the epoch before it was last seen.
            _Term(
                epoch,
                start,
                max((at for each, at in reported if each < epoch), default=0),
                min((at + UNAWARE_NS for each, at in reported if each > epoch), default=EVER),
            )
            for epoch, start in chain
        ]
    lacking = sorted(each.name for each in partitions if not each.deleted and each.name not in led)
    why = f"no leader told the epochs of {', '.join(lacking)}" if lacking else ""
    found = _assembled(led, partitions, why)
    # An epoch that left no record is in no leader's answer, but a poll may have seen it.
    return found if found.moved else Leaderships(found.rows, why, any(len(each) > 1 for each in seen.values()))


# ------------------------------------------------------------------------------------------------------- run directory


def read(
    run_dir: Path,
    partitions: Sequence[ObservedPartition],
    clock: tuple[int, int],
    info: Mapping[str, Any],
    finals: Iterable[PartitionFinalRead],
    brokers: Collection[int] = (),
    faults: Iterable[RecordedFault] = (),
) -> Leaderships:
    """Return the leaderships of a run directory, up to the end of the last of the final reads `finals`. Raises nothing:
    if files cannot be read, `Leaderships.unknown` says so.

    `clock` is the (wall ms, monotonic ns) of the history's header, -1 if unknown. `info` is run.json. `brokers` holds
    the ids of all brokers, whose traces should be complete; empty if they are not known. `faults` shows which brokers
    may have been down at the end.
    """
    until = last_read(finals)
    try:
        return _read(run_dir, partitions, clock, info, until, brokers, down_at(until, faults, info))
    except (OSError, ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return Leaderships(unknown=f"who led cannot be read: {type(error).__name__}: {error}")


def _read(
    run_dir: Path,
    partitions: Sequence[ObservedPartition],
    clock: tuple[int, int],
    info: Mapping[str, Any],
    until: int,
    brokers: Collection[int],
    down: Collection[int],
) -> Leaderships:
    nodes = {int(each.name): each for each in (run_dir / "nodes").glob("*") if each.name.isdigit()}
    traces = {node: path / TRACE for node, path in nodes.items() if (path / TRACE).exists()}
    if traces:
        found = of_events({node: _events(path) for node, path in traces.items()}, partitions, until, brokers, down)
        return _without(found, [f"nodes/{node}/{TRACE}" for node in _others(nodes, traces, brokers)])
    reported = kafka_log.read_logs(run_dir, *clock) if clock[0] >= 0 else {}
    if any(said.events for said in reported.values()):
        ended = {node: [*said.events, {"t": said.last_t, "e": _LAST}] for node, said in reported.items()}
        found = of_events(ended, partitions, until, brokers, down)
        missing = [f"nodes/{node}/broker.log" for node in _others(nodes, reported, brokers)]
        silent = [f"a line of {kafka_log.ROLES} in a broker's log"]
        return _without(found, missing or ([] if _has_roles(reported.values()) else silent))
    if (run_dir / POLLED).exists() and isinstance(info.get(EPOCHS), Mapping):
        return of_answers(_objects(run_dir / POLLED), info[EPOCHS], partitions)
    return Leaderships()


def _others(nodes: Iterable[int], reported: Collection[int], brokers: Collection[int]) -> list[int]:
    """Return the brokers that have a folder in the run directory but no trace, and that the plan does not name."""
    return sorted(node for node in nodes if node not in reported and node not in brokers)


def _has_roles(reported: Iterable[kafka_log.BrokerLogEvents]) -> bool:
    return any(kafka_log.ROLES in said.loggers for said in reported)


def _without(found: Leaderships, missing: Sequence[str]) -> Leaderships:
    why = "; ".join(filter(None, [f"there is no {', '.join(missing)}" if missing else "", found.unknown]))
    return Leaderships(found.rows, why, found.moved)


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    return _objects(path, lambda line: any(each in line for each in _EVENT_MARKS))


def _objects(path: Path, wanted: Callable[[bytes], bool] = lambda _: True) -> Iterator[Mapping[str, Any]]:
    """Yield each line of a file for which `wanted` returns True, parsed. The last complete line is always yielded,
    because its time shows how far a trace reaches. A broker that was killed leaves a torn last line, which is left out.
    """
    with path.open("rb") as lines:
        last = b""
        for line in lines:
            if line.endswith(b"\n"):
                if wanted(line):
                    yield json.loads(line)
                last = b"" if wanted(line) else line
        # The last complete line, whatever it says: it shows until when the trace goes.
        if last:
            yield json.loads(last)
