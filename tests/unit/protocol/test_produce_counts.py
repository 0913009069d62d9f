"""Checks that what producers sent is counted by their settings, and the counts reach the trace in time."""

from __future__ import annotations

from typing import Any

from squall.broker.protocol.hot import ProduceIn
from squall.broker.protocol.produce_counts import EVENT, LONGEST_NAME, MOST_SETTINGS, ProducerSettingsCounter
from tests.support.brokers.in_memory import MemoryBroker
from tests.support.disks.batches import batch


class Traced(list[dict[str, Any]]):
    """Trace lines."""

    def __call__(self, event: str, **fields: Any) -> None:
        assert event == EVENT
        self.append(fields)


def request(*, acks: int = -1, transactional_id: str | None = None, **fields: Any) -> ProduceIn:
    return ProduceIn(transactional_id, acks, 1000, [(b"t", [(0, batch(**fields))])], 2)


def many(counts: ProducerSettingsCounter, n: int, client_id: str = "c", in_flight: int = 1, **fields: Any) -> None:
    asked = request(**fields)
    for _ in range(n):
        counts.count(client_id, asked, lambda: in_flight, in_flight)


def test_the_first_request_with_new_settings_is_traced_at_once() -> None:
    traced = Traced()
    counts = ProducerSettingsCounter(traced)
    many(counts, 1)
    many(counts, 1, acks=1)
    many(counts, 1, pid=7, seq=0)
    many(counts, 1, transactional_id="t-1", pid=7, seq=0, transactional=True)
    many(counts, 1, codec=4)
    many(counts, 1, client_id="d", acks=0)
    whole = {"client_id": "c", "acks": -1, "idempotent": False, "transactional_id": None, "compression": "none",
             "requests": 1, "in_flight": 1}  # fmt: skip
    assert traced == [
        whole,
        {**whole, "acks": 1},
        {**whole, "idempotent": True},
        {**whole, "idempotent": True, "transactional_id": "t-1"},
        {**whole, "compression": "zstd"},
        {**whole, "client_id": "d", "acks": 0, "in_flight": 0},
    ]


def test_lines_grow_with_the_logarithm_of_the_count_and_lack_at_most_a_fifth_of_it() -> None:
    traced = Traced()
    counts = ProducerSettingsCounter(traced)
    for n in range(1, 10_001):
        many(counts, 1)
        assert n - traced[-1]["requests"] <= max(16, n // 5)
    assert len(traced) < 40
    counts.trace_changed()
    counts.trace_changed()
    assert [line["requests"] for line in traced[-2:]] == [traced[-2]["requests"], 10_000]


def test_more_requests_in_flight_are_traced_before_their_count_is_due() -> None:
    traced = Traced()
    counts = ProducerSettingsCounter(traced)
    for in_flight in (1, 2, 1, 5, 3):
        many(counts, 1, in_flight=in_flight)
    assert [(line["requests"], line["in_flight"]) for line in traced] == [(1, 1), (2, 2), (4, 5)]


def test_no_client_fills_the_trace_with_settings_or_names() -> None:
    traced = Traced()
    counts = ProducerSettingsCounter(traced)
    for n in range(MOST_SETTINGS + 40):
        many(counts, 1, client_id=f"{'x' * 5_000 if n == 0 else ''}{n}")
    counts.trace_changed()
    assert len(traced[0]["client_id"]) == LONGEST_NAME + 3
    assert len(traced) <= MOST_SETTINGS + 5
    assert traced[-1] == {"others": True, "requests": 40, "in_flight": 1}


def test_a_request_without_a_batch_that_can_be_read_is_not_counted() -> None:
    traced = Traced()
    counts = ProducerSettingsCounter(traced)
    for records in (None, memoryview(b""), batch()[:60]):
        counts.count("c", ProduceIn(None, 1, 0, [(b"t", [(0, records)])], 2), lambda: 1, 1)
    assert traced == []


def test_a_broker_counts_what_waits_for_replicas_as_in_flight() -> None:
    broker = MemoryBroker()
    broker.give()
    conn, other = broker.client(), broker.client()
    conn.client_id = "slow"
    for _ in range(3):
        broker.produce(conn, transactional_id=None)
    broker.produce(other, transactional_id=None, acks=0)
    broker.follower_has(2, 3)
    broker.follower_has(3, 3)
    broker.produce(conn, transactional_id=None)
    broker.produce_api.counts.trace_changed()
    told = {(each["client_id"], each["acks"]): each for each in broker.env.events(EVENT)}
    assert (told["slow", -1]["requests"], told["slow", -1]["in_flight"]) == (4, 3)
    assert (told[None, 0]["requests"], told[None, 0]["in_flight"]) == (1, 0)
