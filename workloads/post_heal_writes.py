"""Writes one record to every partition after healing and convergence, acknowledged by all in-sync replicas.

The load ends before healing, so only these writes show whether the cluster accepts writes again. The writer uses
acks=all and idempotence even if the workload uses acks=1 or 0. It is a process of the history like any producer: final
readers must find its acknowledged records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

import trio

from squall.broker.env import Env
from squall.checkers.history.values import AFTER_HEALING
from squall.workloads import payload
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Address, Place
from squall.workloads.client.connection import VERSION
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.producer import Producer
from squall.workloads.client.settings import ClientSettings, ProducerSettings
from squall.workloads.recorder import Recorder
from squall.workloads.scenario import POST_HEAL_BYTES

ATTEMPTS = 3
"""Divides the time limit of the writes: each attempt to write to all partitions lasts at most a third of the limit, and
has a fresh client and producer. If attempts fail early, more than three of them fit.
"""
REQUEST_TIMEOUT_S = 3.0
PAUSE_S = 0.2
NO_ANSWER = "no answer"


@dataclass(slots=True)
class _PostHealWriter:
    env: Env
    bootstrap: Sequence[Address]
    recorder: Recorder
    lacking: dict[Place, str]
    """Maps each partition that has acknowledged nothing yet to its last error; `no answer` before the first one."""
    attempt_s: float
    zone: str
    offsets: dict[Place, int] = field(default_factory=dict)
    """Maps a partition to the offset of the acknowledged record, if the leader reported one."""

    async def attempt(self) -> None:
        """Write with a fresh producer to every partition that has acknowledged nothing yet."""
        request_s = min(REQUEST_TIMEOUT_S, self.attempt_s)
        shared = ClientSettings(client_id="squall-afterwards", request_timeout_ms=max(1, int(request_s * 1000)))
        settings = ProducerSettings(linger_ms=0, delivery_timeout_ms=max(1, int(self.attempt_s * 1000)))
        about = {**asdict(settings), "request_timeout_ms": shared.request_timeout_ms, AFTER_HEALING: True}
        flush = self.recorder.flush
        async with trio.open_nursery() as nursery:
            process = self.recorder.process("producer", VERSION, about, zone=self.zone)
            client = Client(self.env, self.bootstrap, shared)
            client.track(sorted({topic for topic, _ in self.lacking}))
            await nursery.start(client.run)
            producer = Producer(client, settings, before_send=flush, after_outcomes=flush)
            await nursery.start(producer.run)
            for sequence, place in enumerate(list(self.lacking)):
                if not producer.retired:
                    self._send(producer, process, sequence, place)
            producer.retire("nothing more to send")
            await producer.finish()
            producer.close()
            client.close()

    def _send(self, producer: Producer, process: int, sequence: int, place: Place) -> None:
        key = f"{process}-{sequence}"
        value = payload.value_of(process, sequence)
        sent_ms = self.env.wall_ms()
        content, digest = payload.make(value, key.encode(), (), POST_HEAL_BYTES, sent_ms)
        op = self.recorder.invoke_send(process, self.recorder.partitions[place], value, key, digest, POST_HEAL_BYTES)
        producer.send(*place, key.encode(), content, [], sent_ms, partial(self._ended, op, place))

    def _ended(self, op: int, place: Place, outcome: Outcome) -> None:
        if outcome.status is OperationStatus.OK:
            self.recorder.send_ok(op, outcome.offset, outcome.timestamp_ms, outcome.tries)
            self.lacking.pop(place, None)
            if outcome.offset >= 0:
                self.offsets[place] = outcome.offset
        else:
            self.recorder.send_not_ok(op, outcome.status, outcome.error)
            self.lacking[place] = outcome.error


@dataclass(frozen=True, slots=True)
class PostHealWrites:
    """Says which partitions acknowledged a record after healing, and which did not."""

    offsets: Mapping[Place, int]
    """Maps a partition to the offset of its acknowledged record, which readers have to pass."""
    lacking: Mapping[Place, str]
    """Maps each partition that acknowledged nothing to its last error."""


async def write_afterwards(
    env: Env, bootstrap: Sequence[Address], places: Sequence[Place], recorder: Recorder, limit_s: float, zone: str = ""
) -> PostHealWrites:
    """Write one record to every partition after healing, again to those that acknowledged none, for at most `limit_s`
    seconds. Return the acknowledged offsets, and the partitions that acknowledged none.

    The function never raises for the cluster's errors. A record in flight at the limit has no outcome in the history:
    it may or may not have been appended.
    """
    writing = _PostHealWriter(env, bootstrap, recorder, dict.fromkeys(places, NO_ANSWER), limit_s / ATTEMPTS, zone)
    with env.timeout(limit_s):
        while writing.lacking:
            await writing.attempt()
            if writing.lacking:
                await env.sleep(PAUSE_S)
    recorder.flush()
    return PostHealWrites(writing.offsets, writing.lacking)
