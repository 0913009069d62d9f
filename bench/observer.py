"""Observes a failover from outside, in the same way for every cluster, by asking the surviving brokers.

Two clients ask in turn: one by Metadata for the brokers and the partition's leader, one by DescribeQuorum for the
active controller. Meanwhile Squall's own client writes.
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

POLL_INTERVAL_S = 0.02
WRITE_INTERVAL_S = 0.01
"""Gives the pause between two records of Squall's client."""


class FailoverObserver(threading.Thread):
    """Observes a failover from `start` to `finish`, in a thread of its own. All its times are those of
    `time.monotonic()`.
    """

    def __init__(self, brokers: Sequence[Address], survivors: Sequence[Address], topic: str, victim: int) -> None:
        """Prepare to observe. `survivors`: the brokers that will not die. `victim`: the leader of partition 0, which
        will.
        """
        super().__init__(daemon=True)
        self._brokers, self._survivors, self._topic, self._victim = brokers, survivors, topic, victim
        self._over = threading.Event()
        self.ready = threading.Event()
        """Is set once Squall's client got its first acknowledgement."""
        self.steps: dict[str, float] = {}
        """Maps each step of the failover to the time when it was first seen; steps that were not seen are missing.
        "fenced": Metadata does not list the victim any more. "leader": another node leads the partition. "controller":
        another node is the active controller.
        """
        self.acknowledged: list[float] = []
        self.failed = 0

    def finish(self) -> None:
        """End the observation. `steps`, `acknowledged` and `failed` keep what was observed."""
        self._over.set()
        self.join()

    def run(self) -> None:
        """Run the observer in its thread until `finish` is called."""
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
                await trio.sleep(POLL_INTERVAL_S)
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
            await trio.sleep(POLL_INTERVAL_S)

    async def _look_at_controller(self, client: Client) -> None:
        while True:
            with suppress(RequestFailed, UnsupportedApi, MalformedFrame):
                if (await admin.describe_quorum(client)).leader_id not in (self._victim, -1):
                    self._seen("controller")
            await trio.sleep(POLL_INTERVAL_S)

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
                await trio.sleep(WRITE_INTERVAL_S)
