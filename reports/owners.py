"""Shows the two group members that owned one partition at once: the generation of each, when it was assigned the
partition, and when it gave the partition up or learned of its loss. It reads the history alone. Pure but for reading.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from squall.checkers import nemesis_log
from squall.checkers.anomalies.dual_ownership import ANOMALIES
from squall.checkers.history.conversion import read_faults
from squall.reports.problems import StorySubject
from squall.reports.run_files import Json, RunFiles, integer, mapping
from squall.reports.story_facts import HISTORY_LIMIT, json_lines

ABOUT = tuple(each.name for each in ANOMALIES)
"""Lists the anomalies that this module explains."""
QUESTION = "Which members owned it"
CRASHED = "crashed"
"""Is the `how` of an ownership that ended because the process died."""


@dataclass(slots=True)
class OwnershipSpan:
    """Describes one ownership of the partition by a process. Times are in ns of the history; a time is -1 if its event
    did not happen.
    """

    process: int
    member: str
    generation: int
    group: str
    position: int
    joined: int
    """Gives the time at which the process learned its generation."""
    assigned_at: int
    """Gives the time at which the process learned that it owns the partition."""
    ended: int = -1
    how: str = ""
    proved: int = -1
    """Is when the process sent its latest request that proves its ownership: a commit that the coordinator
    acknowledged, or a heartbeat that was answered without an error while no fault kept brokers apart
    (`PartitionOwnership.proved`).
    """
    last_generation: int = -1
    """Is the latest generation that assigned the partition to the process during the ownership."""
    last_assigned_at: int = -1
    """Is when the process first learned that `last_generation` assigns the partition to it."""


@dataclass(slots=True)
class PartitionOwnershipReader:
    """Reads from the history when each of `processes` owned the partition `part`."""

    processes: Container[int]
    part: int
    apart: Sequence[tuple[int, int]] = ()
    """Lists (begin, end), in ns, of times in which a fault may have kept a broker from learning what other brokers
    decided (`squall.checkers.nemesis_log.apart`). A heartbeat that was sent in such a time proves no ownership.
    """
    found: list[OwnershipSpan] = field(default_factory=list)
    joined: dict[int, int] = field(default_factory=dict)
    """Maps a process to the time at which it last learned a generation."""
    granted: dict[tuple[int, int], tuple[int, bool]] = field(default_factory=dict)
    """Maps (process, generation) to (time, assigned). `assigned` says whether the generation assigns the partition to
    the process; `time` is when the process first learned of that assignment.
    """
    commits: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Maps the operation of a commit to (process, time of the request, generation)."""

    def take(self, line: Json) -> None:
        """Collect what one line of the history says of the partition's owners."""
        process, t, kind = integer(line.get("p")), integer(line.get("t")), line.get("kind")
        if line.get("e") == "c":
            sender, sent, generation = self.commits.pop(integer(line.get("op")), (-1, -1, -1))
            _, assigns = self.granted.get((sender, generation), (-1, True))
            for hold in self._of(sender) if assigns and integer(line.get("st")) == 0 else ():
                hold.proved = max(hold.proved, sent if sent >= hold.assigned_at else -1)
        elif process not in self.processes:
            return
        elif line.get("e") == "i" and line.get("f") == "commit" and integer(line.get("gen")) >= 0 and line.get("at"):
            self.commits[integer(line.get("op"))] = process, t, integer(line.get("gen"))
        elif line.get("e") == "x":
            self._event(process, t, str(kind), line)

    def _event(self, process: int, t: int, kind: str, line: Json) -> None:
        if kind == "joined":
            self.joined[process] = t
            generation, assigns = integer(line.get("gen")), self.part in (line.get("parts") or ())
            if assigns:
                for hold in self._of(process):
                    if hold.last_generation != generation:
                        hold.last_generation, hold.last_assigned_at = generation, t
            if not self.granted.get((process, generation), (-1, False))[1]:
                self.granted[process, generation] = t, assigns
        elif kind == "assigned" and str(self.part) in mapping(line.get("at")):
            who = process, str(line.get("m") or ""), integer(line.get("gen")), str(line.get("g"))
            position = integer(mapping(line.get("at")).get(str(self.part)))
            self._end(process, t, "was assigned it anew")
            generation = integer(line.get("gen"))
            since, assigns = self.granted.get((process, generation), (t, False))
            hold = OwnershipSpan(*who, position, self.joined.get(process, -1), t)
            hold.last_generation, hold.last_assigned_at = generation, since if assigns else t
            self.found.append(hold)
        elif kind == "revoked" and self.part in (line.get("parts") or ()):
            self._end(process, t, "gave it up", integer(line.get("beat")))
        elif kind == "lost" and self.part in (line.get("parts") or ()):
            how = CRASHED if line.get("why") == "crash" else f"learnt that it had lost it ({line.get('why')})"
            self._end(process, t, how, integer(line.get("beat")))
        elif kind in ("left", "crash_client"):
            self._end(process, t, "left its group" if kind == "left" else CRASHED)

    def _of(self, process: int) -> Iterator[OwnershipSpan]:
        return (hold for hold in self.found if hold.process == process and hold.ended < 0)

    def _end(self, process: int, t: int, how: str, beat: int = -1) -> None:
        counts = not any(begin <= beat <= end for begin, end in self.apart)
        for hold in self._of(process):
            hold.ended, hold.how = t, how
            hold.proved = max(hold.proved, beat if counts and beat >= hold.assigned_at else -1)


def sentences_of(files: RunFiles, problem: StorySubject) -> list[str]:
    """Describe the two members that owned the partition at once, a sentence each; nothing if the history does not show
    them.
    """
    path = files.path / "history.jsonl"
    try:
        if problem.name not in ABOUT or path.stat().st_size > HISTORY_LIMIT:
            return []
    except OSError:
        return []
    part = next((part for part, name in files.part_names.items() if name == problem.where), -1)
    reader = PartitionOwnershipReader(
        (problem.other, problem.process), part, nemesis_log.apart(read_faults(files.path)[0])
    )
    for line in json_lines(path):
        reader.take(line)
    pair = _pair(reader.found, problem)
    return [] if pair is None else list(_sentences(files, problem.where, *pair))


def _pair(holds: Iterable[OwnershipSpan], problem: StorySubject) -> tuple[OwnershipSpan, OwnershipSpan] | None:
    """Return the first (earlier ownership by the process `problem.other`, later ownership by `problem.process`) that
    fits the finding; None if none does. The later one begins at an offset that the finding names. In addition, the
    coordinator accepted requests of both processes after the later ownership had begun, or one generation assigned the
    partition to both.
    """
    of = {process: [hold for hold in holds if hold.process == process] for process in (problem.other, problem.process)}
    for later in of[problem.process]:
        for earlier in of[problem.other]:
            begun = earlier.assigned_at <= later.assigned_at and later.position in problem.offsets
            if begun and (_proved(earlier, later) or _shared(earlier, later) >= 0):
                return earlier, later
    return None


def _proved(earlier: OwnershipSpan, later: OwnershipSpan) -> bool:
    # The earlier owner got the partition back after the later one had ended: its proof is of the second ownership.
    is_back = earlier.assigned_at < later.assigned_at <= later.ended < earlier.last_assigned_at <= earlier.proved
    return min(earlier.proved, later.proved) >= later.assigned_at and not is_back


def _shared(earlier: OwnershipSpan, later: OwnershipSpan) -> int:
    """Return the generation that assigned the partition to both processes; -1 if there is none. Only the latest
    generation of each ownership counts, and the ownerships must overlap.
    """
    owned = earlier.ended < 0 or earlier.ended > later.assigned_at
    return later.last_generation if owned and earlier.last_generation == later.last_generation else -1


def _sentences(files: RunFiles, name: str, first: OwnershipSpan, second: OwnershipSpan) -> Iterator[str]:
    def at(ns: int) -> str:
        return f"{files.seconds(ns) or 0.0:.3f} s"

    def since(hold: OwnershipSpan) -> str:
        generation = f"generation or member epoch {hold.generation}"
        heard = f", which it was told of at {at(hold.joined)}," if hold.joined >= 0 else ""
        who = f"Process {hold.process} (member {hold.member or 'without an id'} of {hold.group})"
        owned = f"{who} owned {name} in {generation}{heard} from {at(hold.assigned_at)} on"
        return f"{owned}, and began at position {hold.position}."

    def until(hold: OwnershipSpan) -> str:
        if hold.ended < 0:
            return f"Process {hold.process} never gave it up, and was never told of its loss."
        return f"Process {hold.process} {hold.how} at {at(hold.ended)}."

    yield f"{since(first)} {until(first)}"
    yield f"{since(second)} {until(second)}"
    if not _proved(first, second):
        yield f"Generation or member epoch {_shared(first, second)} assigned it to both, which no generation may do."
        return
    yield (
        f"After {at(second.assigned_at)}, when both owned it, the coordinator accepted requests of both as members: "
        f"one that process {first.process} sent at {at(first.proved)}, and one that process {second.process} sent at "
        f"{at(second.proved)}."
    )
