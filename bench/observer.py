"""Observes a failover from outside, the same for every cluster: its steps are seen by asking the brokers that live.

Two questions are asked in turn, each over a client of its own: Metadata (which brokers there are, and which one leads
the partition) and DescribeQuorum (which one is the active controller). Our own client writes beside them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import trio

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.schema.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from squall.broker.real_env import RealEnv
from squall.workloads.client import admin
from squall.workloads.client.accumulator import BufferFull, ProducerRetired
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Address
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.producer import Producer
from squall.workloads.client.settings import ProducerSettings

LOOK_S = 0.02
EVERY_S = 0.01
"""Between two records of our client."""


class FailoverObserver(threading.Thread):
    """Looks from `start` to `finish`. Times are `time.monotonic()`; those of steps that did not come are missing."""

    def __init__(self, brokers: Sequence[Address], survivors: Sequence[Address], topic: str, victim: int) -> None:
        """`survivors`: the brokers that will not die. `victim`: the node that will, the leader of partition 0."""
        super().__init__(daemon=True)
        self._brokers, self._survivors, self._topic, self._victim = brokers, survivors, topic, victim
        self._over = threading.Event()
        self.ready = threading.Event()
        """Set once our client was acknowledged a record."""
        self.steps: dict[str, float] = {}
        """When it was first seen that the victim is "fenced", and that there is another "controller" and "leader"."""
        self.acknowledged: list[float] = []
        self.failed = 0

    def finish(self) -> None:
        """End it. What was seen stays."""
        self._over.set()
        self.join()

    def run(self) -> None:
        """Run the observer in its thread until it is over."""
        trio.run(self._run)

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            clients = [Client(RealEnv("bench"), addresses) for addresses in (self._survivors,) * 2 + (self._brokers,)]
            for client in clients:
                await nursery.start(client.run)
            nursery.start_soon(self._look_at_metadata, clients[0])
            nursery.start_soon(self._look_at_controller, clients[1])
            nursery.start_soon(self._write, clients[2])
            while not self._over.is_set():
                await trio.sleep(LOOK_S)
            nursery.cancel_scope.cancel()

    def _seen(self, step: str) -> None:
        self.steps.setdefault(step, time.monotonic())

    async def _look_at_metadata(self, client: Client) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        while True:
            with suppress(RequestFailed, UnsupportedApi, MalformedFrame):
                answer = await client.ask_once(request, MetadataResponse)
                if self._victim not in [broker.node_id for broker in answer.brokers]:
                    self._seen("fenced")
                if any(p.leader_id not in (self._victim, -1) for topic in answer.topics for p in topic.partitions):
                    self._seen("leader")
            await trio.sleep(LOOK_S)

    async def _look_at_controller(self, client: Client) -> None:
        while True:
            with suppress(RequestFailed, UnsupportedApi, MalformedFrame):
                if (await admin.describe_quorum(client)).leader_id not in (self._victim, -1):
                    self._seen("controller")
            await trio.sleep(LOOK_S)

    async def _write(self, client: Client) -> None:
        client.track([self._topic])
        producer = Producer(client, ProducerSettings(delivery_timeout_ms=60_000))

        def done(outcome: Outcome) -> None:
            if outcome.status is OperationStatus.OK:
                self.acknowledged.append(time.monotonic())
                self.ready.set()
            else:
                self.failed += 1

        async with trio.open_nursery() as nursery:
            await nursery.start(producer.run)
            while True:
                with suppress(BufferFull, ProducerRetired):
                    producer.send(self._topic, 0, None, b"x" * 100, [], client.env.wall_ms(), done)
                await trio.sleep(EVERY_S)
