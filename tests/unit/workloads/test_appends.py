"""The workload and the final reads end to end over a scripted cluster, judged by what the history says."""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from pydantic import ValidationError
from trio.testing import MockClock

from squall.broker.protocol.apis import ApiKey
from squall.chaos.draws import rng_for
from squall.checkers.history.tables import FAIL, INFO, OK, POLL, SEND
from squall.workloads.agenda import BURST_S, in_burst
from squall.workloads.appends import AppendsLoad
from squall.workloads.counters import LoadCounters
from squall.workloads.final_reads import BOTH_ISOLATIONS
from squall.workloads.libraries import ClientZone
from squall.workloads.recorder import Recorder
from squall.workloads.scenario import Scenario, WorkloadFailed
from squall.workloads.topics import make_topics
from tests.support.clusters.driven import DrivenCluster
from tests.support.clusters.fake_cluster import Break, Withhold

SETTINGS = AppendsLoad(
    topics=2,
    partitions=2,
    producers=3,
    readers=3,
    rate=50,
    max_bytes=300,
    request_timeout_ms=1000,
    delivery_timeout_ms=2000,
)


class Run(DrivenCluster):
    """A cluster under this workload."""

    def __init__(self, path: Path, settings: Scenario = SETTINGS) -> None:
        super().__init__(path / "history.jsonl", settings)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]


async def test_a_quiet_run_is_recorded_whole(tmp_path: Path, clock: MockClock) -> None:
    run = Run(tmp_path)
    await run.play(5)
    history = run.history()
    sends = [record for record in history.records.rows() if record.kind == SEND]
    assert len(sends) == run.counters.sent == pytest.approx(250, rel=0.05)
    assert all(record.st == OK for record in sends)
    stored = sum(part.end for part in run.cluster.partitions.values())
    assert stored == len(sends)
    assert len(history.finals) == 2 * len(BOTH_ISOLATIONS) * 4
    assert all(final.complete for final in history.finals)
    acknowledged = {(record.part, record.off): record.val for record in sends}
    for final_round in (1, 2):
        read = [r for r in history.records.rows() if r.kind == POLL and r.final == final_round and r.iso == 0]
        assert {(r.part, r.off): r.val for r in read} == acknowledged
        assert len(read) == len(acknowledged)


async def test_every_partition_has_readers_that_follow(tmp_path: Path, clock: MockClock) -> None:
    run = Run(tmp_path)
    await run.play(5, finals=False)
    history = run.history()
    read = Counter(record.part for record in history.records.rows() if record.kind == POLL)
    assert set(read) == {0, 1, 2, 3}
    assert run.counters.read > 1.5 * run.counters.acked  # two readers for each partition
    assert {record.iso for record in history.records.rows() if record.kind == POLL} == {0, 1}


async def test_clients_are_dealt_over_zones_by_turns(tmp_path: Path, clock: MockClock) -> None:
    run = Run(tmp_path)
    run.zones = [ClientZone("A", run.cluster.bootstrap), ClientZone("B", run.cluster.bootstrap)]
    await run.play(1, finals=False)
    begun = [line for line in run.lines() if line["e"] == "p"]
    zones = {(line["role"], line["settings"].get(line["role"])): line["zone"] for line in begun}
    everybody = [(role, number) for role in ("producer", "reader") for number in range(3)]
    assert zones == {(role, number): "AB"[number % 2] for role, number in everybody}


async def test_empty_polls_are_thinned_out(tmp_path: Path, clock: MockClock) -> None:
    quiet = AppendsLoad(topics=1, partitions=1, producers=1, readers=1, rate=1)
    run = Run(tmp_path, quiet)
    await run.play(9.5, finals=False)
    empty = [entry for line in run.lines() if line["e"] == "c" for entry in line.get("got", []) if not entry[5]]
    assert 8 <= len(empty) <= 20


async def test_an_invocation_is_in_the_file_before_its_record_is_in_a_log(tmp_path: Path, clock: MockClock) -> None:
    run = Run(tmp_path)
    found: list[bool] = []

    def look(seen: Any) -> None:
        if seen.api_key == ApiKey.PRODUCE:
            invoked = run.path.read_bytes().count(b'"f":"send"')
            stored = sum(part.end for part in run.cluster.partitions.values())
            arriving = sum(part.records[60] for topic in seen.message.topic_data for part in topic.partition_data)
            found.append(stored + arriving <= invoked)

    run.cluster.script.append(look)
    await run.play(1, finals=False)
    assert found and all(found)


async def test_a_process_in_doubt_is_replaced_and_never_used_again(tmp_path: Path, clock: MockClock) -> None:
    run = Run(tmp_path)

    async def outage() -> None:
        await trio.sleep(1)
        script = [lambda seen: Withhold() if seen.api_key == ApiKey.PRODUCE else None]
        run.cluster.script = script  # type: ignore[assignment]
        await trio.sleep(5)
        run.cluster.script = []
        for node in run.cluster.node_ids:
            run.cluster.stop(node)
            run.cluster.start(node)

    await run.play(12, outage)
    assert run.counters.info > 0 and run.counters.producers_replaced >= 3
    history = run.history()
    info_at: dict[int, int] = {}
    for record in history.records.rows():
        if record.kind == SEND and record.st == INFO:
            info_at[record.proc] = min(record.t1, info_at.get(record.proc, record.t1))
    assert info_at
    for record in history.records.rows():
        if record.kind == SEND and record.proc in info_at:
            assert record.t0 <= info_at[record.proc]
    assert run.counters.acked > 300
    assert all(final.complete for final in run.finals)


async def test_an_outage_fills_bounded_buffers_and_then_records_are_skipped(
    tmp_path: Path, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall.workloads.appends.scenario.BUFFER_BYTES", 20_000)
    run = Run(tmp_path, AppendsLoad(rate=500, min_bytes=500, max_bytes=500, producers=2))
    most = [0]

    async def outage() -> None:
        await trio.sleep(1)
        run.cluster.script.append(lambda seen: Withhold() if seen.api_key == ApiKey.PRODUCE else None)
        for _ in range(50):
            await trio.sleep(0.1)
            most[0] = max(most[0], run.counters.outstanding)
        run.cluster.script.clear()

    await run.play(8, outage, finals=False)
    assert 20 <= most[0] <= 2 * 20_000 // 500
    assert run.counters.skipped > 500


async def test_what_failed_is_in_no_log(tmp_path: Path, clock: MockClock) -> None:
    run = Run(tmp_path)

    async def stopped() -> None:
        await trio.sleep(1)
        for node in run.cluster.node_ids:
            run.cluster.stop(node)
        await trio.sleep(6)
        for node in run.cluster.node_ids:
            run.cluster.start(node)

    await run.play(10, stopped)
    history = run.history()
    failed = {record.val for record in history.records.rows() if record.kind == SEND and record.st == FAIL}
    read = {record.val for record in history.records.rows() if record.kind == POLL}
    assert failed and not failed & read


async def test_broken_connections_cost_nothing_but_time(tmp_path: Path, clock: MockClock) -> None:
    run = Run(tmp_path)
    # Drawn, not counted: every thirteenth request can be the same partition's Produce again and again.
    draw = random.Random(13)

    def break_some(seen: Any) -> Any:
        return Break(apply=draw.random() < 0.5) if draw.random() < 1 / 13 else None

    run.cluster.script.append(break_some)
    await run.play(5)
    history = run.history()
    assert {record.st for record in history.records.rows() if record.kind == SEND} == {OK}
    assert sum(part.end for part in run.cluster.partitions.values()) == run.counters.acked
    assert all(final.complete for final in run.finals)


async def test_a_final_read_that_does_not_reach_the_end_says_so(tmp_path: Path, clock: MockClock) -> None:
    run = Run(tmp_path)

    async def freeze() -> None:
        await trio.sleep(4.5)
        run.cluster.script.append(lambda seen: Withhold() if seen.api_key == ApiKey.FETCH and seen.node == 1 else None)

    await run.play(5, freeze, timeout_s=10)
    assert not any(final.complete for final in run.finals)
    led_by_1 = {place for place, part in run.cluster.partitions.items() if part.leader == 1}
    for final in run.finals:
        assert set(final.missing) == led_by_1
        assert all(lacks.why == "TIMED_OUT" for lacks in final.missing.values())
    notes = [line for line in run.lines() if line["e"] == "x" and line["kind"] == "final_read_incomplete"]
    assert len(notes) == len(run.finals)
    assert sum(not final.complete for final in run.history().finals) == len(led_by_1) * len(run.finals)


async def test_a_final_read_of_a_partition_without_leader_says_so(tmp_path: Path, clock: MockClock) -> None:
    run = Run(tmp_path)

    async def lose() -> None:
        await trio.sleep(4.9)
        run.cluster.move("appends-0", 0, -1)

    await run.play(5, lose, timeout_s=5)
    lacks = run.finals[0].missing["appends-0", 0]
    assert lacks.position == -1 and lacks.why == "LEADER_NOT_AVAILABLE"
    assert len(run.finals[0].ends) == 3


async def test_topics_that_exist_are_used_and_a_cluster_without_answer_is_an_error(
    tmp_path: Path, clock: MockClock
) -> None:
    run = Run(tmp_path, AppendsLoad())
    recorder = Recorder(run.env, str(run.path), "run-1")
    async with trio.open_nursery() as nursery:
        await nursery.start(run.cluster.run)
        first = await make_topics(run.env, run.cluster.bootstrap, run.scenario, recorder)
        again = await make_topics(run.env, run.cluster.bootstrap, run.scenario, recorder)
        assert first == again and len(first) == 6
        for node in run.cluster.node_ids:
            run.cluster.stop(node)
        with pytest.raises(WorkloadFailed, match="not ready within 5 s"):
            await make_topics(run.env, run.cluster.bootstrap, run.scenario, recorder, 5)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "wrong",
    [
        {"acks": 1},
        {"acks": 2, "idempotence": False},
        {"max_in_flight": 6},
        {"min_bytes": 3000},
        {"rate": 0},
        {"min_isr": 4},
        {"codec": "brotli"},
        {"linger_ms": 200, "delivery_timeout_ms": 100},
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        AppendsLoad(**wrong)


@pytest.mark.parametrize("readers", [1, 2, 3, 5, 9])
def test_each_partition_has_a_reader_and_where_there_are_several_two(readers: int) -> None:
    settings = AppendsLoad(readers=readers)
    count = Counter(place for reader in range(readers) for place in settings.assignment(reader))
    assert set(count) == set(settings.places())
    assert set(count.values()) == {min(2, readers)}


def test_rates_are_per_second_since_the_last_look() -> None:
    counters = LoadCounters()
    assert counters.rates(10.0).sent == 0
    counters.sent, counters.acked = 100, 50
    assert counters.rates(12.0)[:2] == (50.0, 25.0)
    assert counters.rates(13.0).sent == 0
    assert counters.outstanding == 50


def test_bursts_are_as_dense_as_they_should_be_and_the_rest_is_as_without_them() -> None:
    plain = AppendsLoad(rate=10, producers=2).drawn(partial(rng_for, 7), 0.0, 12.0)
    with_bursts = AppendsLoad(rate=10, producers=2, burst=200).drawn(partial(rng_for, 7), 0.0, 12.0)
    assert set(plain) <= set(with_bursts)
    inside = [each for each in with_bursts if in_burst(each.at_s)]
    assert len(inside) == pytest.approx(3 * BURST_S * 200, rel=0.1)
    assert [each.at_s for each in with_bursts] == sorted(each.at_s for each in with_bursts)
