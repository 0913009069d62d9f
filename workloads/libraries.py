"""Defines what client libraries must do as producers, readers and group members of a workload, and records what they
do.

The harness starts each library in an OS process of its own, a driver program (`squall.chaos.drivers`). This module
records the library's operations in the same history as those of Squall's own client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import trio

from squall.workloads.client.cluster import Address, Place
from squall.workloads.client.groups.membership import MemberSettings
from squall.workloads.client.groups.offsets import CommitOutcome
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.transactions import EndTxnResult, ProducerIdAndEpoch
from squall.workloads.counters import LoadCounters
from squall.workloads.group_notes import MemberIdentity as Member
from squall.workloads.live_readers import LiveReaders
from squall.workloads.recorder import CorruptRecord, PartitionPoll, ReadOutcome, Recorder
from squall.workloads.start_positions import Beginning


class WorkloadProducer(Protocol):
    """Sends single records for a workload, with Squall's own `squall.workloads.client.producer.Producer` or with a
    library.
    """

    @property
    def retired(self) -> str:
        """Says why the producer accepts no more records; empty while it accepts records."""

    def takes(self, size: int) -> bool:
        """Return whether the producer's buffer has room for a record of this size now."""

    def send(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: list[tuple[str, bytes | None]],
        timestamp_ms: int,
        on_outcome: Callable[[Outcome], None],
        /,
    ) -> None:
        """Send a record. `on_outcome` is called once, with the outcome: OK, FAIL or INFO (unknown)."""

    def retire(self, why: str) -> None:
        """Accept no more records, for the reason `why`."""

    async def finish(self) -> None:
        """Wait until every record has its outcome."""

    def close(self) -> None:
        """Stop the producer for good. Callers first wait for `finish`."""


class TransactionalSender(Protocol):
    """Sends records in transactions, with a transactional id: Squall's own client
    (`squall.workloads.transactions.own.OwnTransactionalProducer`) or a library.

    Records are sent between `begin` and `end`, each after `enlist` of its partition. A sender that is `retired`, or
    whose `end` did not succeed, is never used again.
    """

    @property
    def id(self) -> str:
        """Returns the producer's transactional id."""

    @property
    def timeout_ms(self) -> int:
        """Returns the transaction time-out in ms, after which the coordinator aborts a transaction of this producer."""

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """Returns the current producer id and epoch; -1 if a library does not report them."""

    @property
    def retired(self) -> str:
        """Says why the producer accepts no more records; empty while it accepts records."""

    @property
    def unanswered(self) -> int:
        """Counts the unanswered requests of the latest commit or abort; -1 if a library does not report the number."""

    async def init(self) -> ProducerIdAndEpoch:
        """Initialise the transactional id, which fences its earlier producers. Raises TransactionRequestFailed."""

    async def begin(self) -> None:
        """Begin a transaction. Raises TransactionRequestFailed."""

    async def enlist(self, place: Place) -> None:
        """Add this partition to the transaction, unless the library does so itself. Raises TransactionRequestFailed."""

    def send(
        self,
        place: Place,
        key: bytes | None,
        value: bytes,
        timestamp_ms: int,
        on_outcome: Callable[[Outcome], None],
        /,
    ) -> None:
        """Send a record. `on_outcome` is called once, with the outcome: OK, FAIL or INFO (unknown)."""

    async def flushed(self) -> None:
        """Wait until every record has its outcome."""

    async def end(self, *, commit: bool) -> EndTxnResult:
        """Commit or abort the transaction, and return the result. Callers first wait for `flushed`."""

    def close(self) -> None:
        """Close the producer without ending its transaction: an open transaction stays open."""


class PolledPartition(NamedTuple):
    """Holds the records and the new position of one partition after a poll."""

    place: Place
    position: int
    """Gives the position after the poll."""
    records: Sequence[tuple[int, int]]
    """Lists (offset, value); the value is -1 if the payload did not verify."""
    bad: Sequence[tuple[int, str]]
    """Lists (offset, reason) of records whose payload did not verify."""


class ReaderAssigned(NamedTuple):
    """Reports that a reader was assigned its partitions at these offsets."""

    at: Mapping[Place, int]


class PolledRecords(NamedTuple):
    """Reports a poll that returned records. Times are the run's monotonic clock."""

    began_ns: int
    at: Mapping[Place, int]
    parts: Sequence[PolledPartition]


class ReaderPositionReset(NamedTuple):
    """Reports that a reader's position was out of range and was replaced by another one."""

    place: Place
    position: int
    why: str


class PollError(NamedTuple):
    """Reports a poll that returned an error."""

    why: str


class SelfPollingReader(Protocol):
    """Reads partitions with a library that polls by itself, and yields the events of its polls."""

    async def next(self) -> ReaderAssigned | PolledRecords | ReaderPositionReset | PollError | None:
        """Return the reader's next event, or None once the reader has ended because `finish` was called. Raise
        HarnessError (`squall.chaos.errors`) if the reader ended by itself.
        """

    def finish(self) -> None:
        """Ask the reader to end."""


class ConsumingTransactionalSender(TransactionalSender, Protocol):
    """Sends records in transactions with a library, and polls with a consumer in the same OS process."""

    async def poll(self) -> Sequence[ReaderAssigned | PolledRecords | ReaderPositionReset | PollError]:
        """Poll once, and return the events of the poll and of the consumer's resets. Never raises for the cluster's
        errors.
        """


class TransactorConfig(NamedTuple):
    """Configures a transactional producer and the partitions that its consumer polls."""

    transactional_id: str
    timeout_ms: int
    places: Sequence[Place]
    isolation: int
    beginning: Beginning


class MemberIdentified(NamedTuple):
    """Reports a member's id and generation after a poll."""

    who: Member


class AssignmentReceived(NamedTuple):
    """Reports that a member received its assignment: all partitions that it owns now."""

    who: Member
    owned: Sequence[Place]


class CommittedOffsets(NamedTuple):
    """Reports the answer to a member's request for the committed offsets of its group."""

    who: Member
    began_ns: int
    stable: bool
    """Is True if the request requires stable offsets (KIP-447), without pending ones of transactions."""
    places: Sequence[Place]
    offsets: Mapping[Place, int]
    """Maps each partition to its committed offset; -1 if nothing is committed."""
    error: str
    """Says why there are no offsets; empty if there are."""


class PartitionsAssigned(NamedTuple):
    """Reports that a member reads these partitions from now on, beginning at these offsets."""

    who: Member
    at: Mapping[Place, int]
    reset: Sequence[Place]
    """Lists the partitions without a committed offset, whose position comes from auto.offset.reset."""


class PartitionsRevoked(NamedTuple):
    """Reports that a member gives up these partitions, with its position in each."""

    who: Member
    at: Mapping[Place, int]


class PartitionsLost(NamedTuple):
    """Reports that a member learned that it does not own these partitions any more, with its position in each."""

    who: Member
    at: Mapping[Place, int]


class OffsetCommitBegan(NamedTuple):
    """Reports that a user's program, which decides by itself when to commit, is about to commit these offsets."""

    who: Member
    id: int
    """Numbers the commit among the commits of its member."""
    at: Mapping[Place, int]


class OffsetCommitEnded(NamedTuple):
    """Reports the end of a commit. If `error` is empty, the commit succeeded; otherwise it may or may not have taken
    effect.
    """

    id: int
    error: str


class MemberLeft(NamedTuple):
    """Reports that a membership has ended for good, and why."""

    why: str


LibraryMemberEvent = (
    MemberIdentified | AssignmentReceived | CommittedOffsets | PartitionsAssigned | PartitionsRevoked | PartitionsLost
    | OffsetCommitBegan | OffsetCommitEnded | MemberLeft | ReaderAssigned | PolledRecords | ReaderPositionReset
    | PollError
)  # fmt: skip
"""Lists the events that a library's group member reports: its polls and commits, and its rebalance callbacks."""


class MemberListener(Protocol):
    """Receives the events of a group member that a library runs."""

    def heard(self, said: LibraryMemberEvent) -> None:
        """Record one event of the member."""

    def offsets_to_commit(self, who: Member, at: Mapping[Place, int]) -> Mapping[Place, int]:
        """Return the offsets to commit before the member `who` gives up these partitions. `at` holds its positions."""

    def commit_ended(self, end: CommitOutcome) -> None:
        """Record the result of the commit of the offsets that `offsets_to_commit` returned."""


class ProgramOutput(NamedTuple):
    """Holds a record that a user's program is to write, and the callback for its outcome."""

    key: str
    value: bytes
    on_outcome: Callable[[Outcome], None]


class ProgramListener(MemberListener, Protocol):
    """Receives the events of a user's program that is a group member, and that polls and commits by itself."""

    def has(self, place: Place) -> bool:
        """Return whether a partition that the program has named exists in this run."""

    def output(self, place: Place, source: int) -> ProgramOutput | None:
        """Record that the program is about to write to `place`, for the input with value `source`, and return the
        record to write. Return None if the run has no such partition.
        """


class LibraryConsumer(Protocol):
    """Controls a group member that a library runs in its driver program. The caller makes one call at a time; the
    library's callbacks may come during any call.
    """

    @property
    def ended(self) -> bool:
        """Is True if the member's OS process has ended."""

    async def poll(self) -> Sequence[PolledRecords]:
        """Poll once and return the records. By then, the listener has received all events of this poll."""

    async def commit(self, who: Member, offsets: Mapping[Place, int]) -> CommitOutcome:
        """Commit offsets as the member `who`. The result is FAIL if the consumer has another member id or generation by
        now.
        """

    async def rewind(self) -> None:
        """Seek to the group's committed offsets at the next poll."""

    async def leave(self) -> None:
        """Close the consumer: it gives up its partitions and leaves the group."""

    def halt(self, *, still: bool) -> None:
        """Stop the member's whole OS process if `still`, or let it continue."""

    def kill(self) -> None:
        """Kill the member's OS process at once."""


class MemberConfig(NamedTuple):
    """Holds the settings with which a library starts a group member."""

    settings: MemberSettings
    isolation: int


class TransactionalMember(TransactionalSender, Protocol):
    """Sends an application's output records, from the OS process in which its group member polls the inputs. Without a
    transactional id it uses no transactions.
    """

    async def offsets(self, who: Member, at: Mapping[Place, int]) -> CommitOutcome:
        """Commit offsets as the member `who` in the open transaction. The result is FAIL if the consumer has another
        member id or generation by now.
        """


class InstanceConfig(NamedTuple):
    """Configures an application in one OS process that reads as a group member and writes an output for each input."""

    settings: MemberSettings
    isolation: int
    transactional_id: str
    """Holds the transactional id; empty if the process has no transactions."""
    timeout_ms: int


class MemberProcess(NamedTuple):
    """Holds the consumer and the producer of one OS process that reads as a group member and writes."""

    member: LibraryConsumer
    producer: TransactionalMember


class LibraryClientFactory(Protocol):
    """Makes the clients of one library: producers, readers and group members."""

    client: str
    """Names the library in the history."""
    version: str

    def about(self) -> Mapping[str, object]:
        """Return those producer settings whose real value in the library may differ from the plan's. The history gets
        them, because checkers derive from the real values what was promised.
        """

    async def producer(self, nursery: trio.Nursery, client_id: str, flush: Callable[[], None]) -> WorkloadProducer:
        """Start a fresh producer that is ready to send, with this client id. `flush` writes the gathered lines of the
        history to its file; the producer calls it before any byte leaves, and after outcomes have come.
        """

    async def transactor(
        self, nursery: trio.Nursery, task: TransactorConfig, flush: Callable[[], None]
    ) -> ConsumingTransactionalSender:
        """Start a fresh transactional producer, not initialised yet. The producer calls `flush` before it sends: that
        writes the history to its file.
        """

    async def reader(self, nursery: trio.Nursery, places: Sequence[Place], isolation: int) -> SelfPollingReader:
        """Start a fresh reader that begins at the log's start."""

    async def member(
        self, nursery: trio.Nursery, task: MemberConfig, hearing: MemberListener, flush: Callable[[], None]
    ) -> LibraryConsumer:
        """Start a fresh group member as `task` describes it, and subscribe it. `hearing` receives its events. The
        member calls `flush` before it commits: that writes the history to its file.
        """

    async def instance(
        self, nursery: trio.Nursery, task: InstanceConfig, hearing: MemberListener, flush: Callable[[], None]
    ) -> MemberProcess:
        """Start a fresh OS process as `task` describes it: a subscribed consumer and an uninitialised producer.
        `hearing` receives the consumer's events. Both clients call `flush` before they send: that writes the history.
        """


class ClientZone(NamedTuple):
    """Describes a zone: clients with network links of their own to the brokers. It has their bootstrap addresses and
    their client library.
    """

    name: str
    """Names the zone in the history."""
    bootstrap: Sequence[Address]
    driver: LibraryClientFactory | None = None
    """Makes the zone's clients; None for Squall's own client."""
    cluster_id: str = ""
    """Holds the id of the cluster that the clients must reach; empty if the id is not known."""


class ReaderConfig(NamedTuple):
    """Says which partitions one of the workload's readers reads, at which isolation level and in which client zone."""

    number: int
    places: Sequence[Place]
    isolation: int
    zone: str


async def read_by(
    driver: LibraryClientFactory,
    recorder: Recorder,
    counters: LoadCounters,
    task: ReaderConfig,
    readers: LiveReaders,
) -> None:
    """Run a workload's reader with the library of `driver`, and record its events until `readers` lets it end."""
    about = {"isolation": task.isolation, "reader": task.number}
    process = recorder.process("reader", driver.version, about, client=driver.client, zone=task.zone)
    readers.begins(process, driver.client, task.places)

    async def end(reader: SelfPollingReader) -> None:
        await readers.may_end.wait()
        reader.finish()

    async with trio.open_nursery() as nursery:
        reader = await driver.reader(nursery, task.places, task.isolation)
        nursery.start_soon(end, reader)
        while (said := await reader.next()) is not None:
            record(said, recorder, counters, process)
            readers.moved(process, _positions(said))
            recorder.flush()


def _positions(said: ReaderAssigned | PolledRecords | ReaderPositionReset | PollError) -> Mapping[Place, int]:
    """Return a reader's new positions after this event; empty after an error."""
    match said:
        case ReaderAssigned(at):
            return at
        case ReaderPositionReset(place, position, _):
            return {place: position}
        case PolledRecords(_, _, parts):
            return {each.place: each.position for each in parts}
    return {}


def record(
    said: ReaderAssigned | PolledRecords | ReaderPositionReset | PollError,
    recorder: Recorder,
    counters: LoadCounters,
    process: int,
    txn: int = -1,
) -> None:
    """Write one event of a reader to the history. `txn` is the transaction that its polls are part of, -1 for none."""
    part = recorder.partitions
    match said:
        case ReaderAssigned(at):
            op = recorder.invoke(process, "assign", {"at": {part[place]: position for place, position in at.items()}})
            recorder.complete(op, OperationStatus.OK)
        case ReaderPositionReset(place, position, why):
            recorder.event("seek_after_error", p=process, part=part[place], why=why)
            op = recorder.invoke(process, "seek", {"at": {part[place]: position}})
            recorder.complete(op, OperationStatus.OK)
        case PollError(why):
            counters.read_errors += 1
            recorder.event("poll_errors", p=process, errors=[[-1, why]])
        case PolledRecords(began_ns, at, parts):
            # What a library knows of the log's bounds is of another moment than the poll: it is not recorded.
            got = [PartitionPoll(part[each.place], each.position, -1, -1, -1, each.records) for each in parts]
            bad = [CorruptRecord(part[each.place], offset, why) for each in parts for offset, why in each.bad]
            counters.read += sum(len(each.records) for each in parts)
            counters.bad += len(bad)
            where = {part[place]: position for place, position in at.items()}
            recorder.read(process, "poll", began_ns, where, ReadOutcome(got=got, bad=bad), txn)
