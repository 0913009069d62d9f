"""Checks what the driver of confluent-kafka makes of delivery reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from squall.chaos.drivers import with_confluent
from squall.chaos.drivers.library import OK, DriverConfig, ReadRecord
from squall.workloads.payload import NOT_KNOWN


def config() -> DriverConfig:
    return DriverConfig(
        library="confluent", role="producer", bootstrap="127.0.0.1:1", acks=-1, idempotence=True, max_in_flight=5,
        linger_ms=5, batch_size=16384, codec="none", request_timeout_ms=1000, delivery_timeout_ms=2000,
        max_record_bytes=1024,
    )  # fmt: skip


@pytest.mark.parametrize(("reported", "told"), [(7, 7), (0, 0), (None, -1)])
def test_a_record_that_a_broker_had_already_is_stored_at_an_unknown_offset(reported: int | None, told: int) -> None:
    answers: list[tuple[Any, ...]] = []
    producer = with_confluent.producer(config(), lambda *answer: answers.append(answer))
    producer._done(3, None, SimpleNamespace(offset=lambda: reported, timestamp=lambda: (1, 99)))
    assert answers == [(3, OK, told, 99, "")]


@pytest.mark.parametrize(("kind", "known"), [(1, 99), (2, NOT_KNOWN), (0, NOT_KNOWN)])
def test_only_timestamps_that_senders_set_are_reported(kind: int, known: int) -> None:
    about = {"offset": 3, "key": b"k", "value": b"v", "headers": None, "timestamp": (kind, 99)}
    message = SimpleNamespace(**{name: lambda value=value: value for name, value in about.items()})
    assert with_confluent.read_record(("t", 0), message) == (("t", 0), 3, b"k", b"v", (), known)
    row = SimpleNamespace(offset=3, key=b"k", value=b"v", headers=(), timestamp=99, timestamp_type=kind - 1)
    assert ReadRecord.of(("t", 0), row).timestamp_ms == known
