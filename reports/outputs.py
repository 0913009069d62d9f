"""Explains an input record of which an application made two outputs, or none. The applications read records, transform
them, and should write one output of each. For each output, the module shows the process that sent it, the transaction,
and the group membership of the process. Reads the history alone. Pure but for reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from squall.checkers.anomalies.eos_duplicate import ANOMALIES as DOUBLED
from squall.checkers.anomalies.eos_loss import ANOMALIES as LOST
from squall.reports.problems import StorySubject, load_begin
from squall.reports.run_files import Json, RunFiles, integer, mapping
from squall.reports.stories import value_text
from squall.reports.story_facts import HISTORY_LIMIT, GroupPosition, json_lines, wires_of

LOSSES = tuple(each.name for each in LOST)
ABOUT = (*(each.name for each in DOUBLED), *LOSSES)
"""Lists the anomalies that this module explains."""
QUESTION = "Which input, output and owner"
STATES = ("acknowledged", "failed", "unknown")
TOLD_AT_MOST = 4
"""Limits the outputs of one input that are described."""
ANSWERED_WITHIN_S = 0.002
"""A recorded response counts as a member's answer only if it arrived at most this long before the answer's entry in the
history.
"""


@dataclass(slots=True)
class _MembershipState:
    """Holds the membership of a process after its latest events."""

    member: str = ""
    generation: int = -1
    group: str = ""
    since: dict[int, float] = field(default_factory=dict)
    """Maps a partition to the time at which the process was assigned it."""
    until: dict[int, float] = field(default_factory=dict)
    """Maps a partition to the time at which the process gave it up, or learned of its loss."""


class _ProcessMembership(NamedTuple):
    """Describes the group membership of a process at some moment. `more` says in words whether it owned the partition
    then.
    """

    process: int
    member: str = ""
    group: str = ""
    generation: int = -1
    more: str = ""


class _FetchedPosition(NamedTuple):
    """Holds the committed position that a member fetched when it asked where to resume."""

    asked: int
    t: int
    offset: int
    """Gives the committed offset; -1 if nothing is committed."""
    owner: _ProcessMembership


@dataclass(slots=True)
class _InputHistory:
    """Collects from the history what happened to one input record of an application that reads, transforms and writes.
    """

    files: RunFiles
    value: int
    part: int = -1
    offset: int = -1
    outputs: list[Json] = field(default_factory=list)
    """Lists the sends of the input's outputs: each invocation, with the sender's membership as the additional key
    `owner`.
    """
    offsets: dict[int, int] = field(default_factory=dict)
    """Maps the value of an output to the offset at which read_committed readers got it."""
    commits: list[Json] = field(default_factory=list)
    """Lists the commits of the input's partition: each invocation, with the sender's membership as the additional key
    `owner`.
    """
    ends: dict[int, Json] = field(default_factory=dict)
    """Maps an operation to its completion."""
    names: dict[int, str] = field(default_factory=dict)
    owners: dict[int, _MembershipState] = field(default_factory=dict)
    begun: dict[int, Json] = field(default_factory=dict)
    """Maps a transaction, by the number of its operation, to the invocation that began it."""
    settings: dict[int, Json] = field(default_factory=dict)
    made: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Maps a process to the (producer id, epoch) that the coordinator gave it."""
    polls: dict[int, int] = field(default_factory=dict)
    asked: dict[int, Json] = field(default_factory=dict)
    """Maps the operation of a request for committed offsets that has no answer yet to the request's invocation."""
    fetched: list[_FetchedPosition] = field(default_factory=list)
    """Lists the committed positions that members fetched, in the order of the answers."""
    named: set[tuple[int, str]] = field(default_factory=set)
    """Holds (process, member id) for each member whose id was written in a sentence; later sentences leave the id out.
    """

    def take(self, line: Json) -> None:
        """Collect what one line of the history says of the input, its outputs and the group members."""
        match line.get("e"):
            case "t":
                self.names[integer(line.get("part"))] = f"{line.get('topic')}-{line.get('index')}"
            case "p":
                self.settings[integer(line.get("p"))] = mapping(line.get("settings"))
            case "i":
                self._invoked(line)
            case "c":
                self._completed(line)
            case "x":
                self._event(line)

    def _invoked(self, line: Json) -> None:
        f, op, process = line.get("f"), integer(line.get("op")), integer(line.get("p"))
        if f == "send" and integer(line.get("src")) == self.value:
            self.outputs.append({**line, "owner": self._owner(process, line.get("t"))})
        elif f == "txn":
            self.begun[op] = line
        elif f in ("poll", "final_read"):
            self.polls[op] = process
        elif f == "fetch_offsets" and line.get("m"):
            self.asked[op] = line
        elif f == "commit" and str(self.part) in mapping(line.get("at")):
            self.commits.append({**line, "owner": self._owner(process, line.get("t"))})

    def _completed(self, line: Json) -> None:
        op = integer(line.get("op"))
        if (process := self.polls.pop(op, None)) is not None:
            self._read(process, line)
        elif (asked := self.asked.pop(op, None)) is not None:
            positions = mapping(line.get("off"))
            if integer(line.get("st")) == 0 and str(self.part) in positions:
                owner = self._owner(integer(asked.get("p")), line.get("t"))
                asked_at, t = integer(asked.get("t")), integer(line.get("t"))
                self.fetched.append(_FetchedPosition(asked_at, t, integer(positions[str(self.part)]), owner))
        # Only the newest ones: a search of all for each line would take too long in a long history.
        elif op in self.begun or any(op == each["op"] for each in (*self.outputs[-64:], *self.commits[-64:])):
            self.ends[op] = line

    def _read(self, process: int, line: Json) -> None:
        values = {integer(each.get("v")) for each in self.outputs}
        committed = self.settings.get(process, {}).get("isolation") in (1, "read_committed")
        for got in line.get("got") or ():
            for offset, value in got[5]:
                if value == self.value:
                    self.part, self.offset = got[0], offset
                elif value in values and committed:
                    self.offsets.setdefault(value, offset)

    def _event(self, line: Json) -> None:
        kind, process = line.get("kind"), integer(line.get("p"))
        if kind == "txn_init":
            self.made[process] = integer(line.get("pid")), integer(line.get("pe"))
        if kind not in ("joined", "assigned", "revoked", "lost"):
            return
        owner, at = self.owners.setdefault(process, _MembershipState()), self.files.seconds(line.get("t")) or 0.0
        owner.group = str(line.get("g"))
        if kind in ("joined", "assigned"):
            owner.member, owner.generation = str(line.get("m")), integer(line.get("gen"))
        for part in (int(each) for each in mapping(line.get("at"))):
            if kind == "assigned":
                owner.since[part] = at
                owner.until.pop(part, None)
            else:
                owner.until[part] = at

    def _owner(self, process: int, t: Any) -> _ProcessMembership:
        """Return the membership of the process as of the latest line of the history that was read. `t` is the time of
        that line.
        """
        owner, at = self.owners.get(process), self.files.seconds(t) or 0.0
        if owner is None:
            return _ProcessMembership(process, more=", which was no member")
        who = _ProcessMembership(process, owner.member, owner.group, owner.generation)
        if self.part not in owner.since:
            return who
        name = self.names.get(self.part, f"partition {self.part}")
        if self.part in owner.until:
            until = f"{owner.until[self.part]:.3f} s ({at:.3f} s then)"
            return who._replace(more=f", which had given {name} up, or lost it, at {until}")
        return who._replace(more=f", the owner of {name} since {owner.since[self.part]:.3f} s")

    def _said(self, who: _ProcessMembership) -> str:
        """Describe a process in words. Only the first description of a member has the member id, because it is long."""
        if not who.group:
            return f"process {who.process}{who.more}"
        known = (who.process, who.member) in self.named
        self.named.add((who.process, who.member))
        member = "" if known else f"member {who.member} of {who.group}, "
        return f"process {who.process} ({member}generation {who.generation}){who.more}"

    # ------------------------------------------------------------------------------------------------------ sentences

    def input(self) -> str:
        """Say at which offset the input is."""
        where = f"offset {self.offset} of {self.names.get(self.part, '?')}" if self.offset >= 0 else "a place unknown"
        return f"The input is {value_text(self.value)} (value {self.value}), at {where}."

    def output(self, number: int, sent: Json) -> str:
        """Describe an output: its offset, its transaction, and the member that sent it. `number` counts the outputs
        from 1.
        """
        op, value = integer(sent.get("op")), integer(sent.get("v"))
        end = self.ends.get(op, {})
        told, seen = integer(end.get("off")), self.offsets.get(value, -1)
        where = f"at offset {seen}"
        if seen < 0:
            acknowledged = f"acknowledged at offset {told}"
            where = f"{acknowledged if told >= 0 else _state(end)}, and read by nobody at read_committed"
        at = self.files.seconds(sent.get("t")) or 0.0
        name = self.names.get(integer(sent.get("part")), "?")
        what = f"Output {number} is {value_text(value)} (value {value}) in {name}, {where}"
        return f"{what}: sent at {at:.3f} s {self._inside(sent)}, by {self._said(sent['owner'])}."

    def committed(self, commit: Json) -> str:
        """Describe a commit in the input's partition: its position, time, outcome, transaction and member."""
        at, position = self.files.seconds(commit.get("t")) or 0.0, mapping(commit.get("at")).get(str(self.part))
        state = _state(self.ends.get(integer(commit.get("op")), {}))
        inside = self._inside(commit)
        by = self._said(commit["owner"])
        return f"Position {position} was committed at {at:.3f} s ({state}) {inside}, by {by}."

    def read_twice(self) -> Iterator[str]:
        """Describe each member that fetched a position at or before the input although a later position had been
        committed, so that it read the input again. Describe that later commit too.
        """
        for told, commit in self.again():
            at = self.files.seconds(told.t) or 0.0
            what = f"to go on from position {told.offset}" if told.offset >= 0 else "of no position"
            broker = self.answered(told)
            asked = f", asked broker {broker}" if broker >= 0 else ""
            yield f"At {at:.3f} s {self._said(told.owner)}{asked}, was told {what}, and so reads the input once more."
            yield self.committed(commit)

    def again(self) -> Iterator[tuple[_FetchedPosition, Json]]:
        """Yield (fetched position, commit) for each time at which a member read the input again. The member fetched a
        committed position at or before the input, although a commit had already set a later one; `commit` is the last
        such commit.
        """
        behind = [(integer(end.get("t")), commit) for commit, end in self._commits_after()]
        for told in self.fetched:
            before = [commit for t, commit in behind if t < told.t]
            if before and told.offset <= self.offset:
                yield told, before[-1]

    def answered(self, fetched: _FetchedPosition) -> int:
        """Return the broker that answered the request for this position; -1 if it is not known. Only a simulation whose
        messages were recorded shows it, and only if exactly one OffsetFetch response fits.
        """
        asked, at = self.files.seconds(fetched.asked), self.files.seconds(fetched.t)
        if asked is None or at is None:
            return -1
        came = [
            wire.source
            for wire in wires_of(self.files, 0.0)
            if (wire.api, wire.kind) == ("OffsetFetch", "response") and wire.source.isdigit()
            and not wire.target.isdigit() and wire.arrives is not None
            and asked <= wire.sent and at - ANSWERED_WITHIN_S <= wire.arrives <= at
        ]  # fmt: skip
        return int(came[0]) if len(came) == 1 else -1

    def positions(self, begin: float) -> Iterator[GroupPosition]:
        """Yield the positions of members that read the input again, for a story. Each commit of a position after the
        input comes once, followed by the older positions that members fetched although it had succeeded. Times are in
        seconds since `begin`.
        """
        name, commits = self.names.get(self.part, f"partition {self.part}"), set()
        for told, commit in self.again():
            newer = integer(mapping(commit["at"]).get(str(self.part)))
            if integer(commit.get("op")) not in commits:
                commits.add(integer(commit.get("op")))
                at = (self.files.seconds(commit.get("t")) or 0.0) - begin
                yield GroupPosition(at, integer(commit.get("p")), name, newer, fetched=False)
            at = (self.files.seconds(told.t) or 0.0) - begin
            yield GroupPosition(at, told.owner.process, name, told.offset, True, self.answered(told), newer)

    def chosen(self, problem: StorySubject) -> list[Json]:
        """Return the outputs that the finding's group made of the input: the group of `problem.process`. If the finding
        is no loss, outputs that no read_committed reader got are left out.
        """
        group = self.group(problem.process)
        found = [each for each in self.outputs if self.group(integer(each.get("p"))) == group]
        return found if problem.name in LOSSES else [e for e in found if integer(e.get("v")) in self.offsets]

    def _commits_after(self) -> Iterator[tuple[Json, Json]]:
        """Yield (invocation, completion) of each commit that certainly succeeded and set a position after the input. In
        a transaction the completion is the transaction's.
        """
        for each in self.commits:
            end = self.ends.get(integer(each.get("op")), {})
            # A position in a transaction counts from the transaction's commit on (KIP-98).
            if "x" in each and integer(end.get("st"), 2) == 0:
                end = self.ends.get(integer(each["x"]), {})
                if end.get("how") != "commit":
                    continue
            behind = integer(mapping(each["at"]).get(str(self.part))) > self.offset >= 0
            if behind and integer(end.get("st"), 2) == 0:
                yield each, end

    def group(self, process: int) -> Any:
        """Return the name of the process's consumer group; None if it has none."""
        return self.settings.get(process, {}).get("group")

    def _inside(self, operation: Json) -> str:
        """Describe the transaction of an operation, or say that the operation was in none."""
        txn = self.begun.get(integer(operation.get("x")))
        if txn is None:
            return "outside of any transaction"
        end, process = self.ends.get(integer(txn.get("op")), {}), integer(txn.get("p"))
        pid, epoch = self.made.get(process, (-1, -1))
        pid, epoch = integer(end.get("pid"), pid), integer(end.get("pe"), epoch)
        st, how = integer(end.get("st"), 2), end.get("how", "none")
        came = f"its {how} succeeded" if st == 0 else "it failed" if st == 1 else "nobody knows how it ended"
        return f"in transaction {txn.get('op')} of {txn.get('x')} (producer id {pid}, epoch {epoch}; {came})"


def _state(end: Json) -> str:
    """Return the state of a completed operation: acknowledged, failed or unknown."""
    return dict(enumerate(STATES)).get(integer(end.get("st")), STATES[-1])


def sentences_of(files: RunFiles, problem: StorySubject) -> list[str]:
    """Describe the input record that a finding about outputs concerns, a sentence each; nothing if the history does not
    show it.
    """
    trail = _trail_of(files, problem)
    return [] if trail is None else list(_sentences(trail, problem))


def outputs_and_positions(files: RunFiles, problem: StorySubject) -> tuple[tuple[int, ...], list[GroupPosition]]:
    """Return (values, positions) for an input that has several outputs: the values of at most TOLD_AT_MOST outputs, and
    the committed and fetched positions that show which members read the input again. Both are empty for any other
    finding.
    """
    trail = _trail_of(files, problem) if problem.name not in LOSSES else None
    if trail is None:
        return (), []
    outputs = [integer(each.get("v")) for each in trail.chosen(problem)[:TOLD_AT_MOST]]
    return tuple(outputs), list(trail.positions(load_begin(files)))


def _trail_of(files: RunFiles, problem: StorySubject) -> _InputHistory | None:
    path = files.path / "history.jsonl"
    try:
        if problem.name not in ABOUT or not problem.values or path.stat().st_size > HISTORY_LIMIT:
            return None
    except OSError:
        return None
    # A loss names the input. All other findings name an output, and its send names the input.
    value = problem.values[0] if problem.name in LOSSES else _input_of(json_lines(path), problem.values[0])
    if value < 0:
        return None
    trail = _InputHistory(files, value)
    for line in json_lines(path):
        trail.take(line)
    return trail


def _sentences(trail: _InputHistory, problem: StorySubject) -> Iterator[str]:
    yield trail.input()
    lost, chosen = problem.name in LOSSES, trail.chosen(problem)
    for number, sent in enumerate(chosen[:TOLD_AT_MOST], 1):
        yield trail.output(number, sent)
    if len(chosen) > TOLD_AT_MOST:
        yield f"{len(chosen) - TOLD_AT_MOST} more were sent."
    if not lost:
        yield from trail.read_twice()
        return
    if not chosen:
        yield "Nobody ever sent an output of it."
    behind = [each for each in trail.commits if integer(each.get("p")) == problem.process]
    behind = [each for each in behind if mapping(each["at"]).get(str(trail.part)) == problem.other]
    for commit in behind[-1:]:
        yield trail.committed(commit)


def _input_of(lines: Iterable[Json], output: int) -> int:
    """Return the value of the input that the send of `output` names as its source; -1 if there is no such send."""
    sends = (line for line in lines if line.get("e") == "i" and line.get("v") == output and "src" in line)
    return integer(next(sends, {}).get("src"))
