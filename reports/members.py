"""Shows what group members did that led to a finding. It reads the history alone. Pure but for reading.

For `commit-ahead`, a record that the group skipped, it shows which member committed which position, what it had
processed by then, how it lost the partition, and which member resumed at that position. For `revoked-read`, a record
that a member got or processed after it had released the partition, it shows when the member owned the partition, and
which member owned it next. For `stuck-consumer`, a group that makes no progress, it shows the last record that the
group processed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from squall.checkers.anomalies import commit_ahead, revoked_read, stuck
from squall.checkers.anomalies.anomaly import PROGRAM
from squall.checkers.history.tables import FAIL, OK
from squall.reports.fault_words import fault_of
from squall.reports.owners import CRASHED, OwnershipSpan, PartitionOwnershipReader
from squall.reports.problems import StorySubject, load_begin
from squall.reports.run_files import Json, RunFiles, integer, mapping
from squall.reports.stories import StoryLine
from squall.reports.story_facts import HISTORY_LIMIT, json_lines

AHEAD, REVOKED = (each.ANOMALIES[0].name for each in (commit_ahead, revoked_read))
ABOUT = (AHEAD, REVOKED, stuck.CONSUMER)
"""Lists the anomalies that this module explains."""


class MemberEvent(NamedTuple):
    """Describes an action of a process on the partition, at `t` in ns of the history. `grave` is True if the action may
    be the cause of the finding.
    """

    t: int
    process: int
    kind: str
    text: str
    label: tuple[str, ...]
    grave: bool = False


class CommittedPosition(NamedTuple):
    """Describes a process's request to commit this position at `t`, in ns of the history."""

    op: int
    process: int
    t: int
    offset: int


class MemberRead(NamedTuple):
    """Holds the offsets of the partition that a poll returned, or that a program reported as processed."""

    op: int
    process: int
    t: int
    offsets: tuple[int, ...]


@dataclass(slots=True)
class _PartitionHistory:
    """Collects the owners, commits and reads of one partition from the history."""

    holds: PartitionOwnershipReader
    commits: list[CommittedPosition] = field(default_factory=list)
    reads: list[MemberRead] = field(default_factory=list)


@dataclass(slots=True)
class _MemberHistoryReader:
    """Reads from the history what the members of all groups did in some partitions."""

    parts: dict[int, _PartitionHistory]
    groups: dict[int, str] = field(default_factory=dict)
    """Maps the process of each member to the name of its consumer group."""
    programs: set[int] = field(default_factory=set)
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Maps the operation of a commit to the time (ns) and status (OK, FAIL or INFO) of its completion; (-1, -1) while
    it has none.
    """
    _asked: dict[int, int] = field(default_factory=dict)
    """Maps the operation of a poll that has no answer yet to the polling process."""

    def take(self, line: Json) -> None:
        """Collect what one line of the history says of the members."""
        kind, process, op = line.get("e"), integer(line.get("p")), integer(line.get("op"))
        if kind == "p" and (group := mapping(line.get("settings")).get("group")):
            self.groups[process] = str(group)
            if line.get("client") == PROGRAM:
                self.programs.add(process)
        elif kind == "i" and line.get("f") == "commit":
            self.ends[op] = -1, -1
            for part, offset in mapping(line.get("at")).items():
                if part.isdigit() and int(part) in self.parts:
                    commit = CommittedPosition(op, process, integer(line.get("t")), integer(offset))
                    self.parts[int(part)].commits.append(commit)
        elif kind == "i" and line.get("f") == "poll" and process in self.groups:
            self._asked[op] = process
        elif kind == "c" and op in self.ends:
            self.ends[op] = integer(line.get("t")), integer(line.get("st"))
        elif kind == "c" and op in self._asked:
            self._got(op, self._asked.pop(op), line)
        for partition in self.parts.values():
            partition.holds.take(line)

    def _got(self, op: int, process: int, line: Json) -> None:
        for got in line.get("got") or ():
            if isinstance(got, list) and len(got) >= 6 and (partition := self.parts.get(integer(got[0]))) is not None:
                offsets = tuple(integer(pair[0]) for pair in got[5] if isinstance(pair, list) and len(pair) == 2)
                if offsets:
                    partition.reads.append(MemberRead(op, process, integer(line.get("t")), offsets))


@dataclass(frozen=True, slots=True)
class GroupMemberActions:
    """Shows what the members of one group did that led to a finding. The meaning of the fields depends on the anomaly.

    For a skipped record (`commit-ahead`), they are as described below. For `revoked-read`, `hold` is the ownership that
    the reader had given up, `next` the next owner, and `read` the read in question. For `stuck-consumer`, `hold` is the
    last owner, and `processed` the last record that the group processed.
    """

    files: RunFiles
    problem: StorySubject
    group: str
    hold: OwnershipSpan | None
    """Is the ownership of the member that committed a position beyond the skipped record, when it committed."""
    next: OwnershipSpan | None
    """Is the ownership of the member that resumed beyond the skipped record."""
    commit: CommittedPosition | None = None
    ended: tuple[int, int] = (-1, -1)
    """Gives the time (ns) and status (OK, FAIL or INFO) of the completion of `commit`; (-1, -1) if it has none."""
    processed: MemberRead | None = None
    """Is the last read by the committing member before the commit: the latest records that it had got or reported as
    processed. None if there is none.
    """
    got: tuple[MemberRead, ...] = ()
    """Lists the reads of the skipped record by members of the group."""
    read: MemberRead | None = None
    programs: frozenset[int] = frozenset()

    @property
    def alone(self) -> bool:
        """Is True if members alone caused the finding, so that the brokers' actions do not matter. Either a member read
        after it had released the partition, or it committed a position beyond the record although it had not read that
        far.
        """
        if self.read is not None:
            return True
        return self.commit is not None and (self.processed is None or max(self.processed.offsets) < self.offset)

    @property
    def makes_no_progress(self) -> bool:
        """Is True if the finding says that a group makes no progress (`stuck-consumer`)."""
        return self.problem.name == stuck.CONSUMER

    @property
    def ended_by_itself(self) -> bool:
        """Is True if the process of the committing member is a program under test and ended without a fault that hit
        it.
        """
        hold = self.hold
        if hold is None or hold.how != CRASHED or hold.process not in self.programs:
            return False
        # Without that moment nothing shows whether the harness itself had ended the process.
        known = self.files.phase("final reads")[0] is not None
        return known and not self.lasted(hold) and not fault_of(self.files, hold.process, hold.ended)

    def lasted(self, hold: OwnershipSpan) -> bool:
        """Return whether the member owned the partition until the final reads began, when the harness lets all readers
        end. Without final reads, return whether it owned the partition until the history's end.
        """
        over = self.files.phase("final reads")[0]
        return hold.ended < 0 or (over is not None and (self.files.seconds(hold.ended) or 0.0) >= over)

    @property
    def offset(self) -> int:
        """Returns the offset of the record that the finding is about; -1 if it names none."""
        return self.problem.offsets[0] if self.problem.offsets else -1

    def actions(self) -> list[MemberEvent]:
        """Return all actions of the members, in order of time."""
        if self.makes_no_progress:
            return list(self._of_last())
        found = [*self._of_commit(), *self._of_hold(), *self._of_next(), *self._of_reads()]
        return sorted(dict.fromkeys(found), key=lambda each: each.t)

    def _got(self, process: int, what: str) -> str:
        return f"reported {what} as processed" if process in self.programs else f"got {what}"

    def _label(self, process: int, offset: int) -> tuple[str, str]:
        return "processed" if process in self.programs else "got", f"offset {offset}"

    def processed_text(self) -> str:
        """Say what the committing member had processed, to follow the words "it had"."""
        assert self.commit is not None
        if self.processed is None:
            return self._got(self.commit.process, f"nothing of {self.problem.where}")
        last = max(self.processed.offsets)
        if last < self.offset:
            return self._got(self.commit.process, f"nothing beyond offset {last}")
        return f"{self._got(self.commit.process, f'offset {last}')}, but not offset {self.offset}"

    def how_ended(self, hold: OwnershipSpan) -> str:
        """Say how a member lost a partition, with the fault if one crashed it."""
        if hold is self.hold and self.ended_by_itself:
            return "ended by itself (no fault hit it)"
        fault = fault_of(self.files, hold.process, hold.ended) if hold.how == CRASHED else ""
        return f"{hold.how}{f' ({fault})' if fault else ''}"

    def _of_commit(self) -> Iterator[MemberEvent]:
        if self.commit is None:
            return
        op, process, t, offset = self.commit
        if self.processed is not None:
            last = max(self.processed.offsets)
            text = f"process {process} {self._got(process, f'offset {last}')}"
            yield MemberEvent(self.processed.t, process, "read", text, self._label(process, last))
        asked = f"process {process} committed position {offset} of {self.problem.where} (operation {op})"
        text = f"{asked}, and had {self.processed_text()}"
        yield MemberEvent(t, process, "position", text, (f"commits position {offset}",), grave=True)
        if self.ended[1] == OK:
            text = f"the coordinator acknowledged position {offset} to process {process}"
            yield MemberEvent(self.ended[0], process, "told", text, (f"position {offset}", "acknowledged"))

    def _of_last(self) -> Iterator[MemberEvent]:
        if self.processed is not None:
            _, process, t, offsets = self.processed
            text = f"process {process} {self._got(process, f'offset {max(offsets)}')}, the last that {self.group} did"
            yield MemberEvent(t, process, "read", text, self._label(process, max(offsets)), grave=True)

    def _of_hold(self) -> Iterator[MemberEvent]:
        if self.hold is None:
            return
        yield _begins(self.hold, self.problem.where)
        if not self.lasted(self.hold):
            text = f"process {self.hold.process} {self.how_ended(self.hold)}"
            label = ("crashes",) if self.hold.how == CRASHED else ("no longer owns", self.problem.where)
            yield MemberEvent(self.hold.ended, self.hold.process, "ends", text, label, grave=True)

    def _of_next(self) -> Iterator[MemberEvent]:
        if self.next is not None:
            yield _begins(self.next, self.problem.where)._replace(grave=self.problem.name == AHEAD)

    def _of_reads(self) -> Iterator[MemberEvent]:
        for read in (self.read,) if self.read is not None else self.got:
            text = f"process {read.process} {self._got(read.process, f'offset {self.offset}')} (operation {read.op})"
            yield MemberEvent(
                read.t, read.process, "read", text, self._label(read.process, self.offset), grave=self.read is not None
            )


def _begins(hold: OwnershipSpan, where: str) -> MemberEvent:
    text = f"process {hold.process} began to read {where} at position {hold.position}"
    return MemberEvent(hold.assigned_at, hold.process, "begins", text, ("begins at", f"position {hold.position}"))


def members_of(files: RunFiles, problems: Sequence[StorySubject]) -> list[GroupMemberActions | None]:
    """Return the actions of members that led to each of these findings; None if the history does not show them, or if
    the finding is about something else. The history is read once for all of them.
    """
    dense = {name: part for part, name in files.part_names.items()}
    wanted = {dense[each.where] for each in problems if each.name in ABOUT and each.where in dense}
    reader = _read(files, wanted)
    if reader is None:
        return [None] * len(problems)
    made = {AHEAD: _skipped_record, REVOKED: _read_after_release, stuck.CONSUMER: _stuck_group}
    return [
        made[each.name](files, each, reader, reader.parts[dense[each.where]])
        if each.name in ABOUT and dense.get(each.where) in wanted
        else None
        for each in problems
    ]


def processed_by_programs(files: RunFiles) -> int | None:
    """Count the records that programs under test reported as processed, each record once; None if the history does not
    tell.
    """
    reader = _read(files, files.part_names)
    if reader is None:
        return None
    by_part = ((each for each in at.reads if each.process in reader.programs) for at in reader.parts.values())
    return sum(len({offset for read in reads for offset in read.offsets}) for reads in by_part)


def _read(files: RunFiles, parts: Collection[int]) -> _MemberHistoryReader | None:
    """Read the history of these partitions; return None for no partitions, or if the history is missing or too long."""
    path = files.path / "history.jsonl"
    try:
        if not parts or path.stat().st_size > HISTORY_LIMIT:
            return None
    except OSError:
        return None
    groups: dict[int, str] = {}
    reader = _MemberHistoryReader(
        {part: _PartitionHistory(PartitionOwnershipReader(groups, part)) for part in parts}, groups
    )
    for line in json_lines(path):
        reader.take(line)
    return reader


def _skipped_record(
    files: RunFiles, problem: StorySubject, reader: _MemberHistoryReader, at: _PartitionHistory
) -> GroupMemberActions | None:
    """Return the actions that led to a skipped record; None if the history does not show them. A member committed the
    position `problem.other`, which is after the record, and later the process `problem.process` resumed there.
    `squall.checkers.anomalies.commit_ahead` uses the same rule.
    """
    group, offset = reader.groups.get(problem.process, ""), problem.offsets[0] if problem.offsets else -1
    found = (hold for hold in at.holds.found if (hold.process, hold.position) == (problem.process, problem.other))
    resumed = min(found, key=lambda hold: hold.assigned_at, default=None)
    if resumed is None:
        return None
    known = [each for each in at.commits if each.offset == problem.other and each.t <= resumed.assigned_at]
    # A commit of unknown outcome may have set the position, too.
    known = [each for each in known if reader.groups.get(each.process) == group and reader.ends[each.op][1] != FAIL]
    got = tuple(each for each in at.reads if offset in each.offsets and reader.groups.get(each.process) == group)
    commit = max(known, key=lambda each: each.t, default=None)
    if commit is None:
        return GroupMemberActions(files, problem, group, None, resumed, got=got, programs=frozenset(reader.programs))
    own = [hold for hold in at.holds.found if hold.process == commit.process and hold is not resumed]
    # A member may commit after it has lost the partition. Then any ownership of its process counts.
    held = [hold for hold in own if hold.ended < 0 or hold.ended >= commit.t] or own
    hold = min(
        (each for each in held if each.assigned_at <= resumed.assigned_at),
        key=lambda each: each.assigned_at,
        default=None,
    )
    reads = [each for each in at.reads if each.process == commit.process and each.t <= commit.t]
    processed = max(reads, key=lambda each: each.t, default=None)
    ended = reader.ends[commit.op]
    return GroupMemberActions(
        files, problem, group, hold, resumed, commit, ended, processed, got, programs=frozenset(reader.programs)
    )


def _read_after_release(
    files: RunFiles, problem: StorySubject, reader: _MemberHistoryReader, at: _PartitionHistory
) -> GroupMemberActions | None:
    """Return the actions that led to a read after a release; None if the history does not show them. The release is the
    end of the reader's latest ownership that ended before the read.
    """
    read = next((each for each in at.reads if each.op == problem.op), None)
    if read is None:
        return None
    before = [hold for hold in at.holds.found if hold.process == read.process and 0 <= hold.ended < read.t]
    hold = max(before, key=lambda each: each.ended, default=None)
    if hold is None:
        return None
    after = (each for each in at.holds.found if each.assigned_at >= hold.ended and each.process != read.process)
    owner = min(after, key=lambda each: each.assigned_at, default=None)
    group = reader.groups.get(read.process, "")
    return GroupMemberActions(files, problem, group, hold, owner, read=read, programs=frozenset(reader.programs))


def _stuck_group(
    files: RunFiles, problem: StorySubject, reader: _MemberHistoryReader, at: _PartitionHistory
) -> GroupMemberActions | None:
    """Return what a group without progress did last: its last ownership of the partition and its last processed record,
    by any member. It does not single out one member, because the harness observes the progress of the whole group.
    """
    if problem.process not in reader.groups:
        return None
    group = reader.groups[problem.process]
    reads = [each for each in at.reads if reader.groups.get(each.process) == group]
    hold = max(
        (each for each in at.holds.found if each.group == group), key=lambda each: each.assigned_at, default=None
    )
    processed = max(reads, key=lambda each: each.t, default=None)
    return GroupMemberActions(
        files, problem, group, hold, None, processed=processed, programs=frozenset(reader.programs)
    )


# --------------------------------------------------------------------------------------------------------------- words


def lines_of(files: RunFiles, problems: Sequence[StorySubject]) -> list[list[StoryLine]]:
    """Return, for each finding, the lines of its story that say what group members did. Times are in seconds on the
    page's time axis. A finding has no lines if the history does not show these actions. It has none either if brokers
    may have caused it, unless it is a group without progress.

    For a read after a release, the release is marked as the cause (`grave`), and the read is not.
    """
    return [
        [
            StoryLine(
                files.seconds(each.t) or 0.0,
                sentence(each),
                each.grave and (each.kind != "read" or found.makes_no_progress),
            )
            for each in found.actions()
        ]
        if found is not None and (found.alone or found.makes_no_progress)
        else []
        for found in members_of(files, problems)
    ]


def answers_of(found: GroupMemberActions) -> Iterator[tuple[str, str]]:
    """Yield (question, answer) about the finding, for example ("Who resumed", "Process 4 at 3.100 s, at position 70:
    ...").
    """
    if found.makes_no_progress:
        told = " ".join(map(sentence, found.actions()))
        yield "What the group read last", told or f"No member of {found.group} reported or got a record of it."
        told = "No member owned it, as far as is known." if found.hold is None else _owned(found, found.hold)
        yield "Which member owned it last", told
        return
    if found.read is not None:
        yield from _of_a_read(found, found.read)
        return
    at, resumed = _clock(found.files), found.next
    assert resumed is not None
    if found.commit is None:
        told = f"The history has no commit of position {found.problem.other} of {found.problem.where}."
        yield "Who committed the position", told
    else:
        yield from _of_a_commit(found, found.commit)
    told = f"Process {resumed.process} at {at(resumed.assigned_at)}, at position {resumed.position}"
    yield "Who resumed", f"{told}: offset {found.offset} is before it."
    later = [f"process {each.process} at {at(each.t)}" for each in found.got]
    verb = "reported it as processed" if resumed.process in found.programs else "got it"
    told = f"Only later: {', '.join(later)}." if later else f"No member of {found.group} {verb}."
    yield "Which member got the record", told


def _of_a_commit(found: GroupMemberActions, commit: CommittedPosition) -> Iterator[tuple[str, str]]:
    at, hold, who = _clock(found.files), found.hold, f"Process {commit.process}"
    answered = f"acknowledged at {at(found.ended[0])}" if found.ended[1] == OK else "its outcome is not known"
    told = f"{who} committed position {commit.offset} of {found.problem.where} at {at(commit.t)}"
    yield "Who committed the position", f"{told} (operation {commit.op}; {answered})."
    when = f" (the last at {at(found.processed.t)})" if found.processed is not None else ""
    yield "What it had processed by then", f"{who} had {found.processed_text()}{when}."
    how = "owned the partition at no time that is known" if hold is None else "never gave it up"
    if hold is not None and not found.lasted(hold):
        how = f"{found.how_ended(hold)} at {at(hold.ended)}"
    yield "How its ownership ended", f"{who} {how}."


def _of_a_read(found: GroupMemberActions, read: MemberRead) -> Iterator[tuple[str, str]]:
    assert found.hold is not None
    at = _clock(found.files)
    yield "Who processed it", f"Process {read.process} did, at {at(read.t)} (operation {read.op})."
    yield "When it owned the partition", _owned(found, found.hold)
    after = "No other member owned it later." if found.next is None else _owned(found, found.next)
    yield "Who owned it afterwards", after


def _owned(found: GroupMemberActions, hold: OwnershipSpan) -> str:
    at = _clock(found.files)
    until = "to the end of the run" if found.lasted(hold) else f"until it {found.how_ended(hold)} at {at(hold.ended)}"
    return f"Process {hold.process} owned it from {at(hold.assigned_at)} (position {hold.position}) {until}."


def _clock(files: RunFiles) -> Callable[[int], str]:
    begin = load_begin(files)
    return lambda ns: f"{(files.seconds(ns) or 0.0) - begin:.3f} s"


def sentence(did: MemberEvent) -> str:
    """Describe a process's action in a sentence."""
    return f"{did.text[:1].upper()}{did.text[1:]}."
