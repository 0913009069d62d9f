"""Defines the interface that the driver program uses for a client library. Each library has a module that implements
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from squall.workloads.payload import NOT_KNOWN

OK, FAIL, INFO = 0, 1, 2
"""Say whether an operation took effect. OK: it did. FAIL: it did not, and never will. INFO: it may have, or may later.
The numbers are those of `squall.workloads.client.outcomes.OperationStatus`.
"""

OutcomeCallback = Callable[[int, int, int, int, str], None]
"""Takes the outcome of a record: operation id, status (OK, FAIL or INFO), offset (-1: unknown), timestamp in ms (-1:
unknown), error. Any thread may call it.
"""

Place = tuple[str, int]


class DriverConfig(NamedTuple):
    """Configures one driver program: the library, its role and its settings."""

    library: str
    role: str
    """Selects the kind of client that the driver program runs: `producer`, `reader`, `transactor` (a transactional
    producer), `member` (of a group), or `instance` (a group member that also produces).
    """
    bootstrap: str
    acks: int = -1
    idempotence: bool = True
    max_in_flight: int = 5
    linger_ms: int = 5
    batch_size: int = 16384
    codec: str = "none"
    client_id: str = "squall"
    request_timeout_ms: int = 3000
    delivery_timeout_ms: int = 20000
    max_record_bytes: int = 1 << 20
    places: Sequence[Place] = ()
    isolation: int = 0
    poll_pause_ms: int = 20
    beginning: str = "start"
    """Says where a transactional producer that also reads begins to read: start, middle or end of the log."""
    transactional_id: str = ""
    transaction_timeout_ms: int = 60_000
    group: str = ""
    """Names the consumer group. Only members use `group` and the fields below."""
    topics: Sequence[str] = ()
    group_protocol: str = "classic"
    assignor: str = "range"
    """Names the assignor that the members use in a classic group, or that the coordinator uses in a consumer group
    (KIP-848).
    """
    instance: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000


class RecordSender(Protocol):
    """Hands records over to a library. Each record gets one outcome: FAIL only if no byte of it can have left the OS
    process.
    """

    def send(self, op: int, topic: str, partition: int, key: bytes | None, value: bytes, timestamp_ms: int) -> None:
        """Hand a record over, and wait while the library has no room for it. op: the operation's id, which the record's
        outcome repeats.
        """

    def pump(self) -> None:
        """Let the library call back with the outcomes that have arrived."""


class ProducerAdapter(RecordSender, Protocol):
    """Lets the driver program use a library's plain (not transactional) producer: send records, and at the end wait for
    their outcomes.
    """

    def finish(self, within_s: float) -> None:
        """Wait until every record has its outcome, but at most `within_s` seconds."""


class ReadRecord(NamedTuple):
    """Holds a record that a consumer has read."""

    place: Place
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int = NOT_KNOWN
    """Gives the sender's timestamp in ms; NOT_KNOWN if the leader set it (LogAppendTime)."""

    @classmethod
    def of(cls, place: Place, record: Any) -> ReadRecord:
        """Convert a record of aiokafka or kafka-python, in which timestamp type 0 means CreateTime."""
        sent_ms = NOT_KNOWN if record.timestamp_type else record.timestamp
        return cls(place, record.offset, record.key, record.value, record.headers, sent_ms)


class OffsetOutOfRange(Exception):
    """Is raised for positions outside of a partition's log: before its first offset or after its end."""

    def __init__(self, places: Sequence[Place], why: str) -> None:
        super().__init__(why)
        self.places = tuple(places)


class ConsumerAdapter(Protocol):
    """Adapts a library's consumer to the driver program. Its partitions are assigned by hand, not by a group."""

    def bounds(self, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        """Return the first offset and the end offset of each partition. Partitions whose offsets are not available are
        left out.
        """

    def assign(self, positions: dict[Place, int]) -> None:
        """Read these partitions from these offsets, and no others."""

    def seek(self, place: Place, position: int) -> None:
        """Read a partition from another offset on."""

    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        """Return the records that have arrived. Raise OffsetOutOfRange, or the library's own exception for an error
        after which the consumer can be polled again.
        """

    def close(self) -> None:
        """Close the consumer."""


class ClientLibrary(Protocol):
    """Is the interface of the module that adapts one client library."""

    version: str

    def producer(self, config: DriverConfig, answer: OutcomeCallback) -> ProducerAdapter:
        """Return a producer, connected as far as the library connects before the first record."""

    def consumer(self, config: DriverConfig) -> ConsumerAdapter:
        """Return a consumer to which no partition is assigned yet."""


CLIENTS = {"confluent": "confluent_kafka", "aiokafka": "aiokafka", "kafka-python": "kafka"}
"""Maps a client to the package that is imported."""
DISTRIBUTIONS = {"confluent": "confluent-kafka", "aiokafka": "aiokafka", "kafka-python": "kafka-python"}
"""Maps a client to the distribution that pip installs."""


def load(client: str) -> Any:
    """Return the module that adapts a library (a `ClientLibrary`)."""
    from importlib import import_module

    return import_module(f"squall.chaos.drivers.with_{client.replace('-', '_')}")
