"""Defines what a driver's process asks of a client library. One module for each library implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from squall.workloads.payload import NOT_KNOWN

OK, FAIL, INFO = 0, 1, 2
"""Values of `squall.workloads.client.outcomes.Status`."""

Answer = Callable[[int, int, int, int, str], None]
"""Operation, status, offset (-1: unknown), timestamp (-1: unknown), error. Any thread may call it."""

Place = tuple[str, int]


class DriverConfig(NamedTuple):
    """Configures one driver's process: the library, its role and its settings."""

    library: str
    role: str
    """producer, reader, transactor, member, or instance: a member that is a producer as well."""
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
    """Where a transactor's polls begin: start, middle or end."""
    transactional_id: str = ""
    transaction_timeout_ms: int = 60_000
    group: str = ""
    """Of a member, as all that follows."""
    topics: Sequence[str] = ()
    group_protocol: str = "classic"
    assignor: str = "range"
    """Of the members in a classic group, of the coordinator in a consumer group."""
    instance: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000


class RecordSender(Protocol):
    """Hands records over to a library. Each is answered once: FAIL only if nothing of it can have left the process."""

    def send(self, op: int, topic: str, partition: int, key: bytes | None, value: bytes, timestamp_ms: int) -> None:
        """Hand a record over. Wait for room if there is none."""

    def pump(self) -> None:
        """Let answers through that have come."""


class ProducerAdapter(RecordSender, Protocol):
    """Drives a library's producer."""

    def finish(self, within_s: float) -> None:
        """Wait until every record has been answered, or the time is over."""


class ReadRecord(NamedTuple):
    """One that was read."""

    place: Place
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int = NOT_KNOWN
    """The sender set it; NOT_KNOWN if the leader did (LogAppendTime)."""

    @classmethod
    def of(cls, place: Place, record: Any) -> ReadRecord:
        """One as aiokafka and kafka-python return it: timestamp type 0 is CreateTime."""
        sent_ms = NOT_KNOWN if record.timestamp_type else record.timestamp
        return cls(place, record.offset, record.key, record.value, record.headers, sent_ms)


class OffsetOutOfRange(Exception):
    """Positions that the cluster does not have: past its end, or before its start."""

    def __init__(self, places: Sequence[Place], why: str) -> None:
        super().__init__(why)
        self.places = tuple(places)


class ConsumerAdapter(Protocol):
    """Drives a library's consumer with assigned partitions."""

    def bounds(self, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        """Return first offset and end of these. Partitions for which they cannot be found just now are left out."""

    def assign(self, positions: dict[Place, int]) -> None:
        """Read these from these offsets."""

    def seek(self, place: Place, position: int) -> None:
        """Continue at another offset."""

    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        """Return the records that have arrived. Raises Impossible, or another Exception of the library's for an error
        after which it can be polled again.
        """

    def close(self) -> None:
        """End it."""


class ClientLibrary(Protocol):
    """A module that drives a library."""

    version: str

    def producer(self, order: DriverConfig, answer: Answer) -> ProducerAdapter:
        """Return a producer, connected as far as the library connects before the first record."""

    def consumer(self, order: DriverConfig) -> ConsumerAdapter:
        """Return a consumer without partitions."""


CLIENTS = {"confluent": "confluent_kafka", "aiokafka": "aiokafka", "kafka-python": "kafka"}
"""Client -> the package that it is imported as."""
DISTRIBUTIONS = {"confluent": "confluent-kafka", "aiokafka": "aiokafka", "kafka-python": "kafka-python"}
"""Client -> what pip calls it."""


def load(client: str) -> Any:
    """The module that drives this library (`ClientLibrary`)."""
    from importlib import import_module

    return import_module(f"squall.chaos.drivers.with_{client.replace('-', '_')}")
