"""Client libraries that are not ours, as producers and readers of a workload: what they must be able to do.

Whoever starts them is the harness's (`squall.chaos.drivers`: each in a process of its own); what they did is recorded
here, in the same history as our own client's.
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
    """Sends single records for a workload: `squall.workloads.client.producer.Producer` is one, so is a library's."""

    @property
    def retired(self) -> str:
        """Why it takes no more records; empty while it takes some."""

    def takes(self, size: int) -> bool:
        """Return whether a record of this size finds room now."""

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
        """Hand a record over. `on_outcome` is called once."""

    def retire(self, why: str) -> None:
        """Take no more records."""

    async def finish(self) -> None:
        """Until every record has its outcome."""

    def close(self) -> None:
        """End it."""


class TransactionalSender(Protocol):
    """Sends records in transactions, with a transactional id: Squall's own client
    (`squall.workloads.transactions.own.OwnTransactionalProducer`) or a library.

    Records are handed over between `begin` and `end`, each after `enlist` of its partition. Who is `retired`, or whose
    `end` is not ok, is never used again.
    """

    @property
    def id(self) -> str:
        """Return its transactional id."""

    @property
    def timeout_ms(self) -> int:
        """Return the ms after which the coordinator aborts a transaction of it."""

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """Its producer id and epoch as they are now; -1 where a library does not tell."""

    @property
    def retired(self) -> str:
        """Why it takes no more records; empty while it takes some."""

    @property
    def unanswered(self) -> int:
        """Requests for the last end that were sent and never answered; -1 where a library does not tell."""

    async def init(self) -> ProducerIdAndEpoch:
        """Take over the transactional id, which fences its earlier producers. Raises TransactionRequestFailed."""

    async def begin(self) -> None:
        """A transaction begins. Raises TransactionRequestFailed."""

    async def enlist(self, place: Place) -> None:
        """Add this partition to the transaction, if the application has to do that. Raises TransactionRequestFailed."""

    def send(
        self,
        place: Place,
        key: bytes | None,
        value: bytes,
        timestamp_ms: int,
        on_outcome: Callable[[Outcome], None],
        /,
    ) -> None:
        """Hand a record over. `on_outcome` is called once."""

    async def flushed(self) -> None:
        """Until every record has its outcome."""

    async def end(self, *, commit: bool) -> EndTxnResult:
        """Commit or abort the transaction. No records are under way."""

    def close(self) -> None:
        """End it without a word: what is open stays open."""


class PolledPartition(NamedTuple):
    """Holds what a poll returned of one partition."""

    place: Place
    position: int
    """After it."""
    records: Sequence[tuple[int, int]]
    """(offset, value), -1 where the payload did not verify."""
    bad: Sequence[tuple[int, str]]
    """(offset, why)."""


class ReaderAssigned(NamedTuple):
    """A reader was given its partitions, at these positions."""

    at: Mapping[Place, int]


class PolledRecords(NamedTuple):
    """A poll that brought something. Times are the run's monotonic clock."""

    began_ns: int
    at: Mapping[Place, int]
    parts: Sequence[PolledPartition]


class ReaderPositionReset(NamedTuple):
    """A position that had become impossible was given up for another one."""

    place: Place
    position: int
    why: str


class PollError(NamedTuple):
    """A poll that brought an error."""

    why: str


class SelfPollingReader(Protocol):
    """A reader that polls by itself."""

    async def next(self) -> ReaderAssigned | PolledRecords | ReaderPositionReset | PollError | None:
        """Return its next event. None once it has ended because `finish` was called; raises WorkloadFailed if it ended
        by itself.
        """

    def finish(self) -> None:
        """Have it end."""


class ConsumingTransactionalSender(TransactionalSender, Protocol):
    """A library's transactional producer, with a consumer beside it in the same process."""

    async def poll(self) -> Sequence[ReaderAssigned | PolledRecords | ReaderPositionReset | PollError]:
        """One poll, and what else its consumer did for it. Never raises for what a cluster does."""


class TransactorTask(NamedTuple):
    """Configures a transactional producer, and what its polls read."""

    transactional_id: str
    timeout_ms: int
    places: Sequence[Place]
    isolation: int
    beginning: Beginning


class MemberIdentified(NamedTuple):
    """A member's poll is over, and it is this one now."""

    who: Member


class AssignmentReceived(NamedTuple):
    """A member was told what is its own now."""

    who: Member
    owned: Sequence[Place]


class CommittedOffsets(NamedTuple):
    """A member asked where its group stands."""

    who: Member
    began_ns: int
    stable: bool
    """It waits for pending offsets of transactions."""
    places: Sequence[Place]
    offsets: Mapping[Place, int]
    """-1: nothing is committed."""
    error: str
    """Why nothing was told; empty where it was."""


class PartitionsAssigned(NamedTuple):
    """A member reads these from now on."""

    who: Member
    at: Mapping[Place, int]
    reset: Sequence[Place]
    """Of these nothing was committed."""


class PartitionsRevoked(NamedTuple):
    """A member gives these up, and stood there."""

    who: Member
    at: Mapping[Place, int]


class PartitionsLost(NamedTuple):
    """A member learnt that these are not its own any more."""

    who: Member
    at: Mapping[Place, int]


class OffsetCommitBegan(NamedTuple):
    """A member that commits by itself is about to ask for this."""

    who: Member
    id: int
    """Its own number of this commit."""
    at: Mapping[Place, int]


class OffsetCommitEnded(NamedTuple):
    """Its commit was acknowledged; with an error nobody knows what came of it."""

    id: int
    error: str


class MemberLeft(NamedTuple):
    """A membership is over for good."""

    why: str


OfMember = (
    MemberIdentified | AssignmentReceived | CommittedOffsets | PartitionsAssigned | PartitionsRevoked | PartitionsLost
    | OffsetCommitBegan | OffsetCommitEnded | MemberLeft | ReaderAssigned | PolledRecords | ReaderPositionReset
    | PollError
)  # fmt: skip
"""What a library's member does, and what its library tells it."""


class MemberListener(Protocol):
    """Receives what a member of a group does."""

    def heard(self, said: OfMember) -> None:
        """It did this, or was told this."""

    def giving(self, who: Member, at: Mapping[Place, int]) -> Mapping[Place, int]:
        """It is to give these up, where it stands there: what it shall commit first."""

    def kept(self, end: CommitOutcome) -> None:
        """That commit has ended so."""


class ProgramOutput(NamedTuple):
    """A record that a program is to write, and who is told what came of it."""

    key: str
    value: bytes
    on_outcome: Callable[[Outcome], None]


class ProgramListener(MemberListener, Protocol):
    """Receives what a member does that polls and commits by itself."""

    def has(self, place: Place) -> bool:
        """Return whether the run has this partition."""

    def output(self, place: Place, source: int) -> ProgramOutput | None:
        """It makes an output there of the input with that value. None where the run has no such partition."""


class LibraryConsumer(Protocol):
    """A library's member of a group. Asked for one thing after the other; how its callbacks come is the library's."""

    @property
    def ended(self) -> bool:
        """Its process is gone."""

    async def poll(self) -> Sequence[PolledRecords]:
        """Return what one poll brought. The listener has heard all of it before."""

    async def commit(self, who: Member, offsets: Mapping[Place, int]) -> CommitOutcome:
        """Commit as this member. FAIL where it is another one."""

    async def rewind(self) -> None:
        """Go back to where the group stands, at the next poll."""

    async def leave(self) -> None:
        """Close the consumer: it gives everything up, and goes."""

    def halt(self, *, still: bool) -> None:
        """The whole process stands still, or goes on."""

    def kill(self) -> None:
        """Kill the process at once."""


class MemberTask(NamedTuple):
    """Configures a member of a group."""

    settings: MemberSettings
    isolation: int


class TransactionalMember(TransactionalSender, Protocol):
    """The producer of a process that is a member of a group, too. Without a transactional id it only sends."""

    async def offsets(self, who: Member, at: Mapping[Place, int]) -> CommitOutcome:
        """Commit as this member in the transaction that is under way. FAIL where it is another one."""


class InstanceTask(NamedTuple):
    """Configures a process that reads as a member of a group, and writes."""

    settings: MemberSettings
    isolation: int
    transactional_id: str
    """Empty: it has no transactions."""
    timeout_ms: int


class MemberProcess(NamedTuple):
    """Such a process."""

    member: LibraryConsumer
    producer: TransactionalMember


class LibraryClientFactory(Protocol):
    """Drives one library."""

    client: str
    """Its name, for the history."""
    version: str

    def about(self) -> Mapping[str, object]:
        """Settings of its producers, by our names, as the library really has them: what was promised follows from
        them.
        """

    async def producer(self, nursery: trio.Nursery, client_id: str, flush: Callable[[], None]) -> WorkloadProducer:
        """A fresh one, ready. Its requests are to have this client id. `flush` is called before anything leaves, and
        after outcomes have come.
        """

    async def transactor(
        self, nursery: trio.Nursery, task: TransactorTask, flush: Callable[[], None]
    ) -> ConsumingTransactionalSender:
        """A fresh one, not initialised. `flush`: as of `producer`."""

    async def reader(self, nursery: trio.Nursery, places: Sequence[Place], isolation: int) -> SelfPollingReader:
        """A fresh one, that begins at the log's start."""

    async def member(
        self, nursery: trio.Nursery, task: MemberTask, hearing: MemberListener, flush: Callable[[], None]
    ) -> LibraryConsumer:
        """A fresh one, that has subscribed. `flush`: as of `producer`."""

    async def instance(
        self, nursery: trio.Nursery, task: InstanceTask, hearing: MemberListener, flush: Callable[[], None]
    ) -> MemberProcess:
        """A fresh one, that has subscribed and is not initialised. `flush`: as of `producer`."""


class ClientZone(NamedTuple):
    """Clients that have links of their own to the brokers: how they reach the cluster, and by which library."""

    name: str
    """For the history."""
    bootstrap: Sequence[Address]
    driver: LibraryClientFactory | None = None
    """None: our own client."""
    cluster_id: str = ""
    """Of the cluster that they are to reach; empty where it is not known."""


class ReaderTask(NamedTuple):
    """Assigns one of the workload's readers its partitions."""

    number: int
    places: Sequence[Place]
    isolation: int
    zone: str


async def read_by(
    driver: LibraryClientFactory,
    recorder: Recorder,
    counters: LoadCounters,
    task: ReaderTask,
    readers: LiveReaders,
) -> None:
    """One of the workload's readers is this library's: record what it did, until it may end."""
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
    """Return the positions of a reader after this event, for the partitions that it was about."""
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
    """One thing that a reader did, as the history has it. `txn`: the transaction that its polls are part of."""
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
