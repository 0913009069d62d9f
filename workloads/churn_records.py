"""Writes a few records to partitions that are created while a load runs: those of a topic that is deleted and created
again, and those that are added to a topic. Final readers look for the acknowledged records if the topic still exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

import trio

from squall.broker.env import Env
from squall.broker.protocol.wire import ZERO_UUID
from squall.workloads import payload
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Address, Place
from squall.workloads.client.connection import VERSION
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.producer import Producer
from squall.workloads.client.settings import ClientSettings, ProducerSettings
from squall.workloads.recorder import Recorder

BYTES = 100
"""Gives the size of each record's value."""
EACH, PAUSE_S = 4, 0.05
"""Each partition gets `EACH` records; `PAUSE_S` seconds lie between two records."""
WRITE_S = 5.0
"""Limits how long one call of `write_to` may take to send its records, in seconds."""
NAMESAKE = "another topic of this name acknowledged it"
SETTINGS = ClientSettings(client_id="squall-passing", request_timeout_ms=2_000)


async def write_to(
    env: Env,
    bootstrap: Sequence[Address],
    places: Sequence[Place],
    recorder: Recorder,
    old: Sequence[bytes],
    wait_s: float,
) -> tuple[bytes, int]:
    """Write a few records to partitions of one topic with acks=all. Return the topic's id, and the number of
    acknowledged records.

    `old` holds the ids of deleted topics of this name. No record is sent before the topic has another id and its
    partitions have leaders. If that takes longer than `wait_s`, the returned id is ZERO_UUID. A record can be
    acknowledged by a lagging broker that still serves a deleted topic: then it is deleted with that topic.
    """
    ((topic, _), *_), written = places, _ChurnRecordSender(recorder)
    settings = ProducerSettings(linger_ms=5, delivery_timeout_ms=int(WRITE_S * 1000))
    async with trio.open_nursery() as nursery:
        client = Client(env, bootstrap, SETTINGS)
        client.track([topic])
        await nursery.start(client.run)
        with env.timeout(wait_s):
            while client.view.topic_id(topic) in (ZERO_UUID, *old) or None in (client.view.leader(*p) for p in places):
                await client.refreshed()
            written.topic_id = client.view.topic_id(topic)
        with env.timeout(WRITE_S if written.topic_id != ZERO_UUID else 0.0):
            process = recorder.process(
                "producer", VERSION, {**asdict(settings), "request_timeout_ms": SETTINGS.request_timeout_ms}
            )
            producer = Producer(client, settings, before_send=recorder.flush, after_outcomes=recorder.flush)
            await nursery.start(producer.run)
            for sequence in range(EACH * len(places)):
                if producer.retired:
                    break
                written.send(env, client, producer, process, sequence, places[sequence % len(places)])
                await env.sleep(PAUSE_S)
            producer.retire("nothing more to send")
            await producer.finish()
            producer.close()
        recorder.flush()
        client.close()
        # After the time limit the producer's task still runs.
        nursery.cancel_scope.cancel()
    return written.topic_id, written.acknowledged


class _ChurnRecordSender:
    """Sends the records of `write_to`, and writes their outcomes into the history. A record without an outcome at the
    time limit never gets one.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.topic_id = ZERO_UUID
        self.acknowledged = 0

    def send(self, env: Env, client: Client, producer: Producer, process: int, sequence: int, place: Place) -> None:
        key, value = f"{process}-{sequence}", payload.value_of(process, sequence)
        sent_ms = env.wall_ms()
        content, digest = payload.make(value, key.encode(), (), BYTES, sent_ms)
        part = self._recorder.partitions[place]
        op = self._recorder.invoke_send(process, part, value, key, digest, BYTES)
        ended = partial(self._ended, op, client, place)
        producer.send(*place, key.encode(), content, [], sent_ms, ended)

    def _ended(self, op: int, client: Client, place: Place, outcome: Outcome) -> None:
        if outcome.status is not OperationStatus.OK:
            self._recorder.send_not_ok(op, outcome.status, outcome.error)
        elif client.view.topic_id(place[0]) != self.topic_id:
            self._recorder.send_not_ok(op, OperationStatus.INFO, NAMESAKE)
        else:
            self._recorder.send_ok(op, outcome.offset, outcome.timestamp_ms, outcome.tries)
            self.acknowledged += 1
