"""Runs a plain producer beside the transactional ones: idempotent, without transactions, on a topic of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from squall.workloads.transactions.operations import SEND, MicroOp, PlannedTransaction, steps_of

if TYPE_CHECKING:
    from squall.workloads.agenda import RecordSchedule
    from squall.workloads.client.settings import ClientSettings, ProducerSettings
    from squall.workloads.scenario import ScenarioEnvironment

TOPIC = "transactions-plain-0"
PRODUCER = -1
"""Identifies the plain producer, which has no transactions, in the field `producer` of operations. Transactional
producers are numbered from 0.
"""
PLAIN = "plain"
"""Marks, in the field `end` of an operation, a record of the plain producer: one send outside of any transaction."""
LINGER_MS = 50


def drawn(rng: Random, rate: int, size: int, begin_s: float, end_s: float) -> Iterator[PlannedTransaction]:
    """Draw the records of the plain producer, which has no transactions: `rate` records per second of `size` bytes,
    between `begin_s` and `end_s`. Yield each as a `PlannedTransaction` with one send.
    """
    at_s = begin_s
    while (at_s := at_s + rng.uniform(0.2, 1.8) / rate) < end_s:
        yield PlannedTransaction(round(at_s, 4), PRODUCER, str(MicroOp(SEND, 0)), size, PLAIN)


def wrong(operation: PlannedTransaction, is_there: bool) -> str:
    """Return why this is no valid operation of the plain producer; empty if it is valid. `is_there` says whether the
    load has a plain producer, one without transactions.
    """
    if not is_there:
        return "there is no plain producer: workload.plain_rate is 0"
    try:
        steps = steps_of(operation.steps)
    except ValueError as problem:
        return f"steps: {problem}"
    if operation.producer != PRODUCER or steps != (MicroOp(SEND, 0),):
        return f"end {PLAIN!r}: producer {PRODUCER} and the one step 'send 0' belong to it"
    return ""


async def append(
    around: ScenarioEnvironment,
    topic: str,
    number: int,
    rate: int,
    size: int,
    producer: ProducerSettings,
    client: ClientSettings,
) -> None:
    """Send the records of the plain producer, which has no transactions, to the only partition of `topic` until
    `around.stop`. `number` is the client's number among all producers.
    """
    from squall.workloads.agenda import FixedRecordSchedule, PlannedRecord, RandomRecordSchedule
    from squall.workloads.sender import TICK_S, ProducerLoop, SenderSettings

    env = around.own("producer-plain")
    began, agenda = env.mono(), None
    if around.operations is not None:
        records = [
            PlannedRecord(each.at_s, number, topic, 0, each.bytes) for each in around.operations if each.end == PLAIN
        ]
        agenda = FixedRecordSchedule(records, number, began)
        size = max([size, *(each.bytes for each in records)])
    due: RecordSchedule = agenda or RandomRecordSchedule(env, [(topic, 0)], (size, size), 1 / rate, TICK_S)
    settings = SenderSettings(replace(producer, linger_ms=LINGER_MS), client, [topic], size)
    await ProducerLoop(env, around, settings, number, due).run(around.stop)
