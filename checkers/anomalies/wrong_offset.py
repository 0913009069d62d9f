"""wrong-offset: a record that is not where it was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

from checkers.anomalies.anomaly import FINAL, READS, Anomaly, Check, Family, Need, Seen
from checkers.anomalies.logs import Log, logs_of, witness
from checkers.findings import Witness

ANOMALIES = (
    Anomaly(
        "wrong-offset",
        Family.DATA,
        "the acknowledged offset is not where the value is found",
        source="Kafka protocol, ProduceResponse.base_offset",
        other="where it was found",
        needs=(Need.ACKS, Need.READS),
        meaning="records stand at another offset than was acknowledged",
        meaning_of_one="record stands at another offset than was acknowledged",
    ),
)


def find(seen: Seen) -> Iterator[Witness]:
    """In each partition."""
    for log in seen.view(logs_of):
        yield from _of(log)


def _of(log: Log) -> Iterator[Witness]:
    """Acknowledged at one offset, found at others only. What final reads found outweighs what others did.

    What stood below `judged_from` may have been removed, as configured: a copy elsewhere then proves nothing.
    """
    for value in log.values.values():
        places, evidence = (value.final_at, FINAL) if value.final_at else (value.read_at, READS)
        if value.acked_at >= log.partition.judged_from and places and value.acked_at not in places:
            yield witness("wrong-offset", value, value.acked_at, min(places), evidence)


CHECK = Check(__name__, ANOMALIES, find)
