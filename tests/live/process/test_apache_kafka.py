"""Apache Kafka in the process runtime: faults take effect. It is skipped without Java and Kafka's jars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from squall.chaos.faults.nemesis import Nemesis
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.runs.observer import ClusterObserver
from squall.chaos.runs.target_facts import ask_cluster
from squall.chaos.runtimes.kafka.runtime import KafkaRuntime
from squall.chaos.runtimes.layout import addresses
from squall.chaos.toolchain.kafka import apache_kafka, kafka_is_here, kafka_lacks
from squall.chaos.toolchain.lacks import one_line
from squall.chaos.toolchain.lookout import FETCH
from squall.checkers import kafka_log
from squall.workloads.client.new_topic import NewTopic
from tests.support.lacks import without
from tests.support.patience import slowed

LEADER = "leader:t-0"


def how_to_get_it() -> str:
    """Return the commands that get everything these tests lack."""
    line = one_line(kafka_lacks())
    return f"as root: {line}; then: {FETCH}" if line else FETCH


pytestmark = [
    pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", how_to_get_it())),
    pytest.mark.night("Apache Kafka is fetched for it"),
]


async def test_faults_land_on_kafka_and_a_leader_cut_off_from_its_peers_leads_no_more(tmp_path: Path) -> None:
    settings = slowed(FAST_FAILOVER)
    runtime = KafkaRuntime(tmp_path / "run", kafka=apache_kafka(lambda line: None), settings=settings)
    faults = [
        make_fault(0, 0, 5, "partition", LEADER, {"shape": "isolate", "manner": "drop"}),
        make_fault(1, 8, 1, "pause", LEADER, {}),
        make_fault(2, 11, 5, "stop", LEADER, {}),
        make_fault(3, 30, 2, "latency", "node:1", {"latency_ms": 50, "jitter_ms": 5}),
        make_fault(4, 34, 2, "leadership", "node:1", {"how": "preferred"}),
    ]
    told: list[dict[str, Any]] = []
    led: set[int] = set()
    try:
        await runtime.start()
        env = runtime.env("harness")
        servers = addresses(runtime.bootstrap("CLIENT"))
        target = await ask_cluster(servers, settings)
        assert (target.lacks, target.unknown_settings, target.other_settings) == ([], [], {})
        observer = ClusterObserver(env, servers, runtime.nodes, ask_quorum=True)
        nemesis = Nemesis(runtime, faults, 1, env=env, cluster=observer, record=told.append)

        async def watch() -> None:
            while True:
                led.add((await observer.view()).leaders.get("t-0", -1))
                await trio.sleep(0.2)

        async with trio.open_nursery() as nursery:
            await nursery.start(observer.client.run)
            await observer.create_topics([NewTopic("t", 1, 3, {"min.insync.replicas": "2"})], 60)
            nursery.start_soon(watch)
            await nemesis.play()
            nursery.cancel_scope.cancel()
    finally:
        await runtime.stop()
    assert [(p.fault.action, p.error) for p in nemesis.played if not p.landed] == []
    assert len(led - {-1}) > 1, "an isolated leader whose links are really cut is replaced"
    (back,) = nemesis.played[2].evidence["up"]
    assert back["seen_in"] == "broker.log"
    assert back["broker_epoch"] > 0
    said = [_said(runtime.log_path(node), node) for node in runtime.nodes]
    kafka_log.drop_uncommitted_elections(said)
    assert kafka_log.missing_loggers(said) == [], "reports find every line that they need in the logs of this version"
    events = [event for each in said for event in each.events if event.get("topic") == "t"]
    assert led - {-1} <= {event["n"] for event in events if event["e"] == "became_leader"}
    elected = {(event["epoch"], event["leader"]) for event in events if event["e"] == "leader_elected"}
    took_over = {(event["epoch"], event["n"]) for event in events if event["e"] == "became_leader" and event["epoch"]}
    assert took_over <= elected
    assert all(event["isr"] for event in events if event["e"] == "became_leader")


def _said(log: Path, node: int) -> kafka_log.BrokerLogEvents:
    with log.open() as lines:
        return kafka_log.read_log(lines, node, lambda ms: ms / 1000)
