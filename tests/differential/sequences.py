"""Rows of random requests, to reach states of transactions, producers and groups that need more than one request.

A row depends on its seed alone. Its ids, epochs, generations and sequence numbers are relative to earlier answers, so
that both brokers get the same row.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from squall.broker.protocol.schema.consumer_group_heartbeat import ConsumerGroupHeartbeatRequestTopicPartitions
from tests.differential import asks
from tests.differential.bases import join, known_to_coordinators, make_topic
from tests.differential.steps import Ask, Next, Ref, Row, topic_id

LENGTHS = (10, 30)
"""Least and largest number of requests."""
OFF_BY = (0, 0, 0, 0, 0, 0, 0, -1, 1)
"""What is added to a correct epoch, generation or sequence number: one of these is drawn."""

Draw = Callable[[random.Random, str], list[Ask]]


def sequence(seed: int) -> Row:
    """Return the random row of a seed."""
    rng = random.Random(f"differential {seed}")
    name = f"seq{seed}"
    family = rng.choice((_transactions, _transactions, _idempotence, _classic, _consumer))
    steps = [make_topic(name)]
    if family is _consumer:
        steps.append(known_to_coordinators(name))
    if family is _transactions:
        steps += [asks.init(f"{name}-{number}", f"p{number}") for number in range(2)]
    length = rng.randint(*LENGTHS)
    while len(steps) < length:
        steps += family(rng, name)
    return Row(f"sequence {seed} ({family.__name__[1:]})", tuple(steps), seed)


# ------------------------------------------------------------------------------------------------------- transactions


def _transactions(rng: random.Random, name: str) -> list[Ask]:
    number = rng.randrange(2)
    tid, step, part = f"{name}-{number}", f"p{number}", rng.randrange(2)
    own = {"producer": asks.pid(step), "at": asks.epoch(step, rng.choice(OFF_BY))}
    commits, committed, v2 = rng.random() < 0.6, rng.random() < 0.5, rng.random() < 0.5
    group = f"{name}-g"
    kinds: list[tuple[int, Callable[[], list[Ask]]]] = [
        (4, lambda: [_batch(rng, name, tid, step, part, 12 if v2 else 11)]),
        (3, lambda: [asks.add(tid, name, part=part, **own)]),
        (1, lambda: [asks.add_offsets(tid, group, **own)]),
        (1, lambda: [asks.commit_in_txn(tid, group, rng.randint(0, 9), topic=name, version=5 if v2 else 4, **own)]),
        (4, lambda: [asks.end(tid, commits, version=5 if v2 else 4, name=step if v2 else "", **own)]),
        (2, lambda: [asks.init(tid, step)]),
        (2, lambda: [asks.init(tid, step, **own)]),
        (2, lambda: [asks.read(name, committed=committed, part=part)]),
        (2, lambda: [asks.offsets(name, rng.choice((-1, -2, -3, 0)), committed=committed, part=part)]),
        (1, lambda: [asks.describe_txn(tid)]),
        (1, lambda: [asks.producers(name, part)]),
        (1, lambda: [asks.committed(group, topic=name, stable=rng.random() < 0.5)]),
        (1, lambda: [asks.add(f"{name}-other", name, **own)]),
    ]
    return _drawn(rng, kinds)


def _batch(rng: random.Random, name: str, tid: str, step: str, part: int, version: int) -> Ask:
    values = (b"v",) * rng.randint(1, 3)
    sequence = Next(name, part, rng.choice(OFF_BY))
    batch = asks.batch(step, *values, sequence=sequence, txn=rng.random() < 0.95, plus=rng.choice(OFF_BY))
    return asks.send(name, batch, tid=tid, part=part, version=version)


def _idempotence(rng: random.Random, name: str) -> list[Ask]:
    step, part = f"p{rng.randrange(2)}", rng.randrange(2)
    kinds: list[tuple[int, Callable[[], list[Ask]]]] = [
        (6, lambda: [_idempotent(rng, name, step, part)]),
        (1, lambda: [asks.init(None, step)]),
        (1, lambda: [asks.init(None, step, producer=asks.pid(step), at=asks.epoch(step, rng.choice(OFF_BY)))]),
        (1, lambda: [asks.read(name, committed=rng.random() < 0.5, part=part)]),
        (1, lambda: [asks.producers(name, part)]),
        (1, lambda: [asks.offsets(name, rng.choice((-1, -2, -3, 0)), committed=False, part=part)]),
    ]
    return _drawn(rng, kinds)


def _idempotent(rng: random.Random, name: str, step: str, part: int) -> Ask:
    values = (b"v",) * rng.randint(1, 3)
    sequence = Next(name, part, rng.choice((0, 0, 0, 0, 1, -1, -2, -3)))
    batch = asks.batch(step, *values, sequence=sequence, plus=rng.choice(OFF_BY))
    return asks.send(name, batch, part=part, version=rng.choice((3, 9, 12)))


# ------------------------------------------------------------------------------------------------------------- groups


def _classic(rng: random.Random, name: str) -> list[Ask]:
    group, step = name, f"m{rng.randrange(2)}"
    member = Ref(step, "member_id", "") if rng.random() < 0.9 else "unknown"
    generation = Ref(step, "generation_id", plus=rng.choice(OFF_BY))
    instance = "i" if rng.random() < 0.15 else None
    kinds: list[tuple[int, Callable[[], list[Ask]]]] = [
        (
            3,
            lambda: [join(group, member, instance=instance, name=step), asks.sync(group, generation, member, instance)],
        ),
        (1, lambda: [join(group, instance="i", name=step)]),
        (1, lambda: [join(group, name=step)]),
        (2, lambda: [asks.sync(group, generation, member, instance)]),
        (3, lambda: [asks.beat(group, generation, member, instance)]),
        (1, lambda: [asks.leave(group, member, instance)]),
        (1, lambda: [asks.leave(group, "", "i")]),
        (3, lambda: _offsets_of_members(rng, name, generation, member, instance)),
        (2, lambda: [asks.describe_group(group)]),
    ]
    return _drawn(rng, kinds)


def _consumer(rng: random.Random, name: str) -> list[Ask]:
    group, step = name, f"m{rng.randrange(2)}"
    member: Any = step if rng.random() < 0.9 else "unknown"
    at = Ref(step, "member_epoch", 0, rng.choice(OFF_BY))
    first: dict[str, Any] = {"topics": [name], "owned": []}
    kinds: list[tuple[int, Callable[[], list[Ask]]]] = [
        (3, lambda: [asks.consume(group, step, 0, name=step, **first)]),
        (5, lambda: [asks.consume(group, member, at, timeout_ms=-1, name=step)]),
        (2, lambda: [asks.consume(group, member, at, timeout_ms=-1, owned=_owned(rng, name), name=step)]),
        (1, lambda: [asks.consume(group, member, -1, timeout_ms=-1)]),
        (1, lambda: [asks.consume(group, member, at, topics=[name, "shared"], name=step)]),
        (1, lambda: [asks.consume(group, member, rng.choice((0, -1, -2)), instance="i", **first)]),
        (1, lambda: [asks.consume(group, "static", rng.choice((0, -1, -2)), instance="i", **first)]),
        (3, lambda: _offsets_of_members(rng, name, at, member, None)),
        (2, lambda: [asks.describe_consumers(group)]),
    ]
    return _drawn(rng, kinds)


def _owned(rng: random.Random, name: str) -> list[Any]:
    parts = rng.choice(([0], [1], [0, 1]))
    return [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id("topic"), parts)]  # type: ignore[arg-type]


def _offsets_of_members(rng: random.Random, name: str, at: Any, member: Any, instance: str | None) -> list[Ask]:
    return [
        rng.choice(
            (
                asks.commit(name, rng.randint(0, 9), topic=name, generation=at, member=member, instance=instance),
                asks.commit(name, rng.randint(0, 9), topic=name),
                asks.committed(name, topic=name),
                asks.committed(name, topic=None),
                asks.committed(name, topic=name, member=member, at=at),
                asks.forget(name, name),
            )
        )
    ]


def _drawn(rng: random.Random, kinds: list[tuple[int, Callable[[], list[Ask]]]]) -> list[Ask]:
    weights, makes = zip(*kinds, strict=True)
    [make] = rng.choices(makes, weights)
    return list(make())
