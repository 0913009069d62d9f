"""Our broker in the process runtime, and `squall cluster up` with a foreign client."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from squall.chaos.errors import PreconditionError
from squall.chaos.faults.nemesis import Nemesis
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.runs.observer import ClusterObserver
from squall.chaos.runtimes.contract import Link, NodeState
from squall.chaos.runtimes.layout import addresses
from squall.chaos.runtimes.process.program import BROKER
from squall.chaos.runtimes.process.runtime import ProcessRuntime
from squall.chaos.runtimes.real.processes.ports import free_ports, is_free
from squall.chaos.runtimes.real.processes.registry import claimed_ports
from tests.live.hurt_links import answers
from tests.support.patience import scaled, slowed

ROOT = Path(__file__).resolve().parents[3]
MESSAGES = 300


async def test_three_brokers_come_up_are_hurt_and_heal(tmp_path: Path) -> None:
    # A killed broker's session must expire before the next incarnation may register: 9 s by default.
    settings = slowed({"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"})
    runtime = ProcessRuntime(tmp_path / "run", settings=settings)
    try:
        await runtime.start()
        for link in runtime.links():
            assert await answers(runtime, link), link
        await runtime.kill(1)
        assert (await runtime.start_node(1))["incarnation"] == 2
        assert (await runtime.stop_node(2))["controlled"] is True
        await runtime.pause(3)
        assert not (await runtime.probe(Link("CLIENT", 3), timeout_s=scaled(0.2))).ok
        healed = await runtime.heal()
        assert (healed["resumed"], healed["started"], healed["failed"]) == ([3], [2], [])
        assert {runtime.state(node) for node in runtime.nodes} == {NodeState.RUNNING}
        assert runtime.exits() == ()
    finally:
        await runtime.stop()


async def test_a_controller_resigns_by_request_and_another_follows_it(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path / "run", settings=slowed(FAST_FAILOVER))
    told: list[dict[str, Any]] = []
    try:
        await runtime.start()
        env = runtime.env("harness")
        observer = ClusterObserver(env, addresses(runtime.bootstrap("CLIENT")), runtime.nodes)
        fault = make_fault(0, 0, scaled(5), "leadership", "controller", {"how": "resign"})
        async with trio.open_nursery() as nursery:
            await nursery.start(observer.client.run)
            await Nemesis(runtime, [fault], 1, env=env, cluster=observer, record=told.append).play()
            nursery.cancel_scope.cancel()
        assert {runtime.state(node) for node in runtime.nodes} == {NodeState.RUNNING}
    finally:
        await runtime.stop()
    seen = told[-1]["evidence"]
    assert seen["before"]["controller"] in runtime.nodes
    assert seen["after"]["epoch"] > seen["before"]["epoch"]


@pytest.mark.gate
async def test_a_setting_that_no_broker_knows_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="num.partitons.*num.partitions"):
        await ProcessRuntime(tmp_path / "run", proxied=False, settings={"num.partitons": "3"}).start()
    assert not (tmp_path / "run/nodes").exists()


@pytest.mark.gate
def test_a_file_with_mistakes_is_refused_as_the_page_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs/broker.md").read_text()
    typed = r"\$ printf '%s\\n' (.*) > bad.properties\n\$ ./squall (broker .*?) +# exit code 3\n"
    shown = re.search(rf"```\n{typed}(.*?\n)```", page, re.DOTALL)
    assert shown is not None
    (tmp_path / "bad.properties").write_text("".join(f"{line}\n" for line in shown[1].split()))
    command = [sys.executable, "-P", "-m", *shown[2].split()]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", shown[3])


def test_nodes_whose_controller_has_a_listener_of_its_own_are_one_cluster(tmp_path: Path) -> None:
    """As in Kafka's sample files: a node that is broker and controller, and a broker that knows only the voter."""
    first, control, second = free_ports(3, claimed_ports(), Random(1))
    of_both = {
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "share.coordinator.state.topic.min.isr": "1",
    }
    files = {
        1: {
            "process.roles": "broker,controller",
            "controller.quorum.bootstrap.servers": f"localhost:{control}",
            "listeners": f"PLAINTEXT://:{first},CONTROLLER://:{control}",
        },
        2: {
            "process.roles": "broker",
            "controller.quorum.voters": f"1@127.0.0.1:{control}",
            "listeners": f"PLAINTEXT://:{second}",
        },
    }
    nodes = []
    try:
        for node, own in files.items():
            settings = {"node.id": str(node), "log.dirs": str(tmp_path / str(node)), **of_both, **own}
            config = tmp_path / f"{node}.properties"
            config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            nodes.append(
                subprocess.Popen([*BROKER, "--config", str(config)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
            )
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{first}"})
        until = time.monotonic() + scaled(60)
        while len(admin.list_topics(timeout=scaled(30)).brokers) < 2:
            assert time.monotonic() < until
        for made in admin.create_topics([NewTopic("both", 1, 2)]).values():
            made.result(scaled(30))
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{second}", "acks": "all"})
        producer.produce("both", b"written")
        assert producer.flush(scaled(30)) == 0
    finally:
        for popen in nodes:
            popen.terminate()
        said = [popen.communicate()[1] for popen in nodes]
    assert [popen.returncode for popen in nodes] == [0, 0]
    assert all(
        "ignored, because there are no share groups: share.coordinator.state.topic.min.isr" in each for each in said
    )


@contextmanager
def cluster_up(*arguments: str) -> Iterator[str]:
    """Run `squall cluster up` until the end of the block, and yield the bootstrap servers that it prints. Ctrl-C ends
    it.
    """
    command = [sys.executable, "-P", "-m", "squall.chaos", "cluster", "up", *arguments]
    popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert popen.stdout is not None
    try:
        lines = []
        for line in popen.stdout:
            lines.append(line)
            if line.startswith("bootstrap.servers="):
                yield line.partition("=")[2].strip()
                break
        else:
            pytest.fail("".join(lines))
    finally:
        popen.send_signal(signal.SIGINT)
        with popen:
            rest = popen.stdout.read()
    assert rest.endswith("stopped\n")
    assert popen.returncode == 0


def test_a_development_cluster_has_everything_again_when_started_on_its_data(tmp_path: Path) -> None:
    port = next(port for port in range(19_092, 30_000, 3) if all(is_free(port + at) for at in range(3)))
    arguments = ("-n", "3", "--data", str(tmp_path / "cluster"), "--port", str(port))
    sent = {f"m{at}".encode() for at in range(MESSAGES)}
    with cluster_up(*arguments) as bootstrap:
        assert bootstrap == ",".join(f"127.0.0.1:{port + at}" for at in range(3))
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic("kept", 3, 3)]).values():
            made.result(30)
        errors = []
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for value in sent:
            producer.produce("kept", value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        assert errors == [None] * MESSAGES
    with cluster_up(*arguments) as bootstrap:
        assert read_all(bootstrap, MESSAGES) == sent


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_development_cluster_of_few_brokers_serves_groups_and_transactions(nodes: int) -> None:
    port = next(port for port in range(19_092, 30_000, 2) if all(is_free(port + at) for at in range(nodes)))
    with cluster_up("-n", str(nodes), "--port", str(port)) as bootstrap:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
        producer.init_transactions(scaled(30))
        producer.begin_transaction()
        producer.produce("few", b"written")
        producer.commit_transaction(scaled(30))
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["few"])
        [message] = consumer.consume(1, timeout=scaled(30))
        assert message.value() == b"written"
        [committed] = consumer.commit(message, asynchronous=False)
        assert (committed.offset, committed.error) == (1, None)
        consumer.close()


@pytest.mark.gate
def test_a_development_cluster_says_which_setting_wants_more_brokers_than_there_are() -> None:
    # Its default port may be in use: somebody has a cluster up.
    (port,) = free_ports(1, (), Random())
    command = [sys.executable, "-P", "-m", "squall.chaos", "cluster", "up", "-n", "1", "--port", str(port)]
    settings = ["--set", "offsets.topic.replication.factor=3", "--set", "num.partitions=no number"]
    ended = subprocess.run([*command, *settings], capture_output=True, text=True, cwd=ROOT, timeout=scaled(30))
    said, refused = ended.stderr.splitlines()
    assert said.startswith("offsets.topic.replication.factor is 3, and the cluster has 1 broker, so no group finds")
    assert refused.startswith("squall: num.partitions=no number")


def read_all(bootstrap: str, count: int) -> set[bytes]:
    """The first `count` values of the topic's three partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("kept", partition, 0) for partition in range(3)])
    values: set[bytes] = set()
    while len(values) < count:
        messages = consumer.consume(count, timeout=30)
        assert messages, f"only {len(values)} of {count}"
        values |= {message.value() for message in messages if message.error() is None}
    consumer.close()
    return values
