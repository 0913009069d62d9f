"""Rows written by hand: well-known states, and for the right request in each state many that are almost right."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

from squall.broker.protocol.schema import produce
from squall.broker.protocol.schema.consumer_group_heartbeat import ConsumerGroupHeartbeatRequestTopicPartitions
from tests.differential import asks
from tests.differential.bases import MANY, become_member, join, known_to_coordinators, make_topic
from tests.differential.steps import Ask, Batch, Next, Ref, Row, topic_id

READS = (-2, -1, -3, 0)
"""Timestamps for ListOffsets: earliest, latest, largest timestamp, and one that every record is later than."""


@cache
def rows() -> tuple[Row, ...]:
    """All rows written by hand."""
    return (
        *_produce(),
        *_transaction_reads(),
        *_producers(),
        *_pipelined(),
        *_txn_offsets(),
        *_classic(),
        *_consumer(),
        *_offsets(),
    )


# ------------------------------------------------------------------------------------------------------------ produce


def _produce() -> Iterator[Row]:
    """Yield rows of Produce without a producer, by an idempotent one, and inside transactions of protocols V1 and V2;
    also with small errors.
    """
    for version, sequence, epoch in product((3, 9, 12), (-2, -1, 0, 1), (-1, 0, 1)):
        name = f"idempotent-v{version}-{sequence}-{epoch}"
        batch = asks.batch("p", b"a", b"b", sequence=Next(name, 0, sequence), plus=epoch)
        first = asks.send(name, asks.batch("p", b"a", b"b", sequence=0), version=version)
        again = asks.send(name, asks.batch("p", b"c", sequence=Next(name, 0, 0)), version=version)
        yield Row(
            f"{name}", (make_topic(name), asks.init(None, "p"), first, asks.send(name, batch, version=version), again)
        )
    for version, added, txn, right in product((11, 12), (False, True), (False, True), (False, True)):
        name = f"txn-produce-v{version}-{added}-{txn}-{right}"
        own: dict[str, Any] = {"producer": asks.pid("p"), "at": asks.epoch("p")}
        add = (asks.add(name, name, **own),) if added else ()
        batch = asks.batch("p", b"a", sequence=0, txn=txn)
        tid = name if right else f"{name}-other"
        last = asks.end(name, True, version=5 if version == 12 else 4, **own)
        sent = asks.send(name, batch, tid=tid, version=version)
        yield Row(name, (make_topic(name), asks.init(name, "p"), *add, sent, last, *_all_reads(name)))
    odd = {
        "null id": Batch((b"v",), 5, 0, 0), "no records": Batch((b"v",)), "zstd": Batch((b"v",), codec=4),
        "no key": Batch((b"v",), key=None), "large": Batch((b"v" * 2_000_000,)), "epoch -1": Batch((b"v",), 5, -1, 0),
        "sequence -1": Batch((b"v",), 5, 0, -1), "transactional": Batch((b"v",), 5, 0, 0, True),
    }  # fmt: skip
    for (what, batch), version, acks in product(odd.items(), (3, 9, 12), (-1, 1)):
        name = f"produce-{what.replace(' ', '-')}-v{version}-{acks}"
        yield Row(name, (make_topic(name), asks.send(name, batch, version=version, acks=acks), *_all_reads(name)[:4]))
    for version, twice in product((3, 9, 12, 13), ("partition", "topic")):
        name = f"produce-{twice}-twice-v{version}"
        parts = [
            produce.PartitionProduceData(part, Batch((value,))) for part, value in ((0, b"a"), (1, b"b"), (0, b"c"))
        ]
        each = [parts] if twice == "partition" else [[part] for part in parts]
        which: tuple[Any, Any] = (name, bytes(16)) if version < 13 else ("", topic_id("topic"))
        topics = [produce.TopicProduceData(*which, partition_data=some) for some in each]
        sent = Ask(produce.ProduceRequest(None, -1, 30_000, topics), version)
        yield Row(name, (make_topic(name), sent, *_all_reads(name), asks.read(name, committed=False, part=1)))
    yield from _compacted()


def _compacted() -> Iterator[Row]:
    for key in (b"k", None):
        name = f"compacted-{key is None}"
        sent = asks.send(name, Batch((b"v",), key=key))
        yield Row(name, (make_topic(name, cleanup_policy="compact"), sent, *_all_reads(name)))


def _all_reads(topic: str) -> tuple[Ask, ...]:
    """Return Fetch and ListOffsets of the first partition, at both isolation levels."""
    found = [asks.read(topic, committed=committed) for committed in (False, True)]
    found += [asks.offsets(topic, at, committed=committed) for at, committed in product(READS, (False, True))]
    return tuple(found)


# ------------------------------------------------------------------------------------------------------- transactions


def _transaction_reads() -> Iterator[Row]:
    """Yield rows of reads at both isolation levels around open, committed and aborted transactions."""
    for fate, v2, before in product(("open", "committed", "aborted", "fenced"), (False, True), (False, True)):
        name = f"reads-{fate}-{'v2' if v2 else 'v1'}-{before}"
        own: dict[str, Any] = {"producer": asks.pid("p"), "at": asks.epoch("p")}
        steps = [make_topic(name), asks.init(name, "p", setup=True)]
        steps += [asks.send(name, Batch((b"before",)))] if before else []
        steps += [] if v2 else [asks.add(name, name, **own)]
        steps += [asks.send(name, asks.batch("p", b"in", sequence=0, txn=True), tid=name, version=12 if v2 else 11)]
        steps += [asks.send(name, Batch((b"after",))), *_all_reads(name)]
        if fate in ("committed", "aborted"):
            steps += [asks.end(name, fate == "committed", version=5 if v2 else 4, **own)]
        elif fate == "fenced":
            steps += [asks.init(name, "q"), asks.init(name, "q")]
        steps += [*_all_reads(name), asks.producers(name), asks.describe_txn(name)]
        steps += [asks.read(name, committed=True, at=at) for at in (1, 2, 3, 9)]
        yield Row(name, tuple(steps))


def _producers() -> Iterator[Row]:
    """Yield rows of requests to the transaction coordinator with right and wrong ids and epochs, in each state."""
    states = ("empty", "ongoing", "committed", "aborted")
    for state, v2, plus, whose in product(states, (False, True), (-1, 0, 1), ("own", "none", "other")):
        name = f"producer-{state}-{'v2' if v2 else 'v1'}-{plus}-{whose}"
        tid = name if whose != "none" else f"{name}-none"
        claimed = {"producer": asks.pid("p") if whose != "other" else 999_999, "at": asks.epoch("p", plus)}
        setup = _in_state(name, state, v2)
        version = 5 if v2 else 4
        group = f"{name}-g"
        for kind, ask in {
            "commit": asks.end(tid, True, version=version, **claimed),
            "abort": asks.end(tid, False, version=version, **claimed),
            "add": asks.add(tid, name, **claimed),
            "offsets": asks.add_offsets(tid, group, **claimed),
            "init": asks.init(tid, "p", **claimed),
        }.items():
            follow = (ask, asks.describe_txn(name), asks.end(name, True, version=version, **_own()))
            yield Row(f"{name}-{kind}", (*setup, *follow, asks.describe_txn(name)))


def _pipelined() -> Iterator[Row]:
    """Yield rows in which a request follows EndTxn without waiting for its answer, while many markers are under way.

    They are played again if the answers differ: one of the brokers may have written its markers already.
    """
    firsts = ("commit-v1", "abort-v1", "commit-v2", "abort-v2", "init")
    kinds = ("commit", "abort", "add", "offsets", "txn-commit", "produce", "init", "init-anew")
    for first, plus, whose, kind in product(firsts, (-1, 0, 1), ("own", "other"), kinds):
        name = f"pipelined-{first}-{plus}-{whose}-{kind}"
        again = Row(name, _behind_an_end(f"{name}-again", first, plus, whose, kind))
        yield Row(name, _behind_an_end(name, first, plus, whose, kind), again=again)


def _behind_an_end(name: str, first: str, plus: int, whose: str, kind: str) -> tuple[Ask, ...]:
    version, group = 5 if first.endswith("v2") else 4, f"{name}-g"
    steps = [make_topic(name), asks.init(name, "p", setup=True)]
    steps.append(asks.add(name, "many", parts=range(MANY), setup=True, **_own()))
    steps.append(asks.add_offsets(name, group, **_own()))
    if first == "init":
        steps.append(asks.init(name, "q"))
    else:
        steps.append(asks.end(name, first.startswith("commit"), version=version, **_own()))
    how: dict[str, Any] = {"producer": asks.pid("p") if whose == "own" else 999_999, "at": asks.epoch("p", plus)}
    how["pipelined"] = True
    steps.append(_behind(kind, name, version, how))
    return *steps, asks.describe_txn(name), asks.read(name, committed=False)


def _behind(kind: str, name: str, version: int, how: dict[str, Any]) -> Ask:
    """Return a request about the transactional id `name`, of protocol V1 (version 4 of EndTxn) or V2 (version 5)."""
    match kind:
        case "commit" | "abort":
            return asks.end(name, kind == "commit", version=version, **how)
        case "add":
            return asks.add(name, name, **how)
        case "offsets":
            return asks.add_offsets(name, f"{name}-g", **how)
        case "txn-commit":
            return asks.commit_in_txn(name, f"{name}-g", 3, version=version, **how)
        case "produce":
            batch = Batch((b"v",), how["producer"], how["at"], 0, True)
            return asks.send(name, batch, tid=name, version=12 if version == 5 else 11, pipelined=True)
        case "init":
            return asks.init(name, "q", **how)
        case _:
            return asks.init(name, "q", pipelined=True)


def _own(step: str = "p") -> dict[str, Any]:
    return {"producer": asks.pid(step), "at": asks.epoch(step)}


def _in_state(name: str, state: str, v2: bool) -> tuple[Ask, ...]:
    """Return the requests that bring a transactional id into a state without writing to the topic "shared"."""
    steps = [asks.init(name, "p", setup=True)]
    if state != "empty":
        steps.append(asks.add(name, "shared", setup=True, **_own()))
    if state in ("committed", "aborted"):
        how: dict[str, Any] = {"version": 5, "name": "p"} if v2 else {"version": 4}
        steps.append(asks.end(name, state == "committed", setup=True, **_own(), **how))
    return tuple(steps)


def _txn_offsets() -> Iterator[Row]:
    """Yield rows of TxnOffsetCommit in V1 and V2, by members and without one, and of OffsetFetch before and after the
    end.
    """
    for v2, added, commits, member in product(
        (False, True), (False, True), (False, True), ("none", "right", "wrong", "old")
    ):
        name = f"txn-offsets-{'v2' if v2 else 'v1'}-{added}-{commits}-{member}"
        whose: dict[str, Any] = {
            "none": {},
            "right": {"member": Ref("join", "member_id", ""), "generation": Ref("join", "generation_id")},
            "wrong": {"member": "wrong", "generation": 1},
            "old": {"member": Ref("join", "member_id", ""), "generation": Ref("join", "generation_id", plus=-1)},
        }[member]
        steps = [asks.init(name, "p", setup=True), *become_member(name)]
        steps += [asks.add_offsets(name, name, **_own())] if added else []
        steps += [asks.commit_in_txn(name, name, 3, version=5 if v2 else 4, **_own(), **whose)]
        steps += [asks.committed(name, stable=stable) for stable in (False, True)]
        steps += [asks.end(name, commits, version=5 if v2 else 4, **_own()), asks.committed(name, stable=True)]
        yield Row(name, tuple(steps))


# ------------------------------------------------------------------------------------------------------------- groups


def _classic() -> Iterator[Row]:
    """Yield rows of members of a classic group, with right and wrong groups, generations, members and instances."""
    generations, members, instances = (0, -1, 1), ("right", "wrong", ""), (None, "wrong")
    for plus, member, instance, known in product(generations, members, instances, (True, False)):
        name = f"classic-{plus}-{member or 'empty'}-{instance}-{known}"
        who = Ref("join", "member_id", "") if member == "right" else member
        at = Ref("join", "generation_id", plus=plus)
        for kind in ("heartbeat", "sync", "leave", "commit"):
            group = f"{name}-{kind}"
            to = group if known else f"{group}-none"
            ask = {
                "heartbeat": asks.beat(to, at, who, instance),
                "sync": asks.sync(to, at, who, instance),
                "leave": asks.leave(to, who, instance),
                "commit": asks.commit(to, 3, generation=at, member=who, instance=instance),
            }[kind]
            yield Row(f"{name}-{kind}", (*become_member(group), ask, asks.describe_group(group), asks.committed(group)))
    for version in (0, 3, 4, 5, 9):
        name = f"join-v{version}"
        static = join(f"{name}-static", version=max(version, 5), instance="i", name="static")
        again = join(f"{name}-static", version=max(version, 5), instance="i")
        old = asks.beat(f"{name}-static", 1, Ref("static", "member_id", ""), "i")
        member = asks.sync(f"{name}-static", Ref("static", "generation_id"), Ref("static", "member_id", ""), "i")
        yield Row(name, (join(name, version=version, name="m"), join(name, Ref("m", "member_id", ""), version=version)))
        yield Row(f"{name}-static", (static, member, again, old, asks.describe_group(f"{name}-static")))


def _consumer() -> Iterator[Row]:
    """Yield rows of heartbeats to consumer groups (KIP-848) with right and wrong members, epochs and instances."""
    for plus, member, owned, version in product((0, -1, 1), ("m", "wrong", ""), (None, [], [0], [0, 1], [7]), (0, 1)):
        name = (
            f"consumer-{plus}-{member or 'empty'}-{owned}-v{version}".replace("[", "")
            .replace("]", "")
            .replace(", ", "")
        )
        topics = None if owned is None else _owned(owned)
        first = (
            asks.consume(name, "m", 0, topics=["shared"], owned=[], name="m"),
            asks.consume(name, "m", Ref("m", "member_epoch"), topics=[name], timeout_ms=-1, name="m"),
            asks.consume(name, "m", Ref("m", "member_epoch"), owned=[], timeout_ms=-1, name="m"),
        )
        ask = asks.consume(
            name, member, Ref("m", "member_epoch", plus=plus), timeout_ms=-1, owned=topics, version=version
        )
        after = (asks.consume(name, "m", Ref("m", "member_epoch"), timeout_ms=-1), asks.describe_consumers(name))
        yield Row(name, (make_topic(name), known_to_coordinators(name), *first, ask, *after))
    yield from _reconciled()
    first_heartbeats: dict[str, dict[str, Any]] = {
        "no-topics": {"topics": None, "owned": []}, "nothing-owned-null": {"topics": ["shared"], "owned": None},
        "empty-topics": {"topics": [], "owned": []},
        "no-timeout": {"topics": ["shared"], "owned": [], "timeout_ms": -1},
        "regex": {"topics": None, "owned": [], "regex": "sha.*"},
        "bad-regex": {"topics": None, "owned": [], "regex": "("},
        "range": {"topics": ["shared"], "owned": [], "assignor": "range"},
        "no-such-assignor": {"topics": ["shared"], "owned": [], "assignor": "none"},
        "static": {"topics": ["shared"], "owned": [], "instance": "i"},
        "unknown-topic": {"topics": ["none"], "owned": []}, "twice": {"topics": ["shared", "shared"], "owned": []},
    }  # fmt: skip
    for what, how in first_heartbeats.items():
        name = f"consumer-first-{what}"
        steps = (asks.consume(name, "m", 0, name="m", **how), asks.describe_consumers(name), asks.describe_group(name))
        left = (asks.consume(name, "m", -2, timeout_ms=-1, instance="i"), asks.consume(name, "m", -1, timeout_ms=-1))
        yield Row(name, (*steps, *left, asks.describe_consumers(name)))
    for plus, member in product((0, -1, 1), ("m", "wrong", "")):
        name = f"consumer-offsets-{plus}-{member or 'empty'}"
        at = Ref("m", "member_epoch", plus=plus)
        first = (
            asks.consume(name, "m", 0, topics=["none"], owned=[], name="m"),
            asks.consume(name, "m", Ref("m", "member_epoch"), topics=["shared"], timeout_ms=-1, name="m"),
        )
        commits = asks.commit(name, 3, generation=at, member=member)
        yield Row(name, (*first, commits, asks.committed(name, member=member, at=at), asks.committed(name)))


def _reconciled() -> Iterator[Row]:
    """Yield rows of consumers that have not reached their target assignment: one becomes static, one gets a smaller
    target.
    """
    for others, owned in product((0, 1), (None, [0], [0, 1])):
        name = f"consumer-becomes-static-{others}-{'none' if owned is None else len(owned)}"
        own = {"timeout_ms": -1, "owned": None if owned is None else _owned(owned), "name": "m"}
        steps = [make_topic(name), known_to_coordinators(name)]
        steps += [asks.consume(name, who, 0, topics=[name], owned=[], name=who) for who in ("m", "other")[: 1 + others]]
        steps += [asks.consume(name, "m", Ref("m", "member_epoch"), **own)]
        steps += [asks.consume(name, "m", 0, topics=[name], owned=[], instance="i", name="m")]
        again = [
            asks.consume(name, "m", Ref("m", "member_epoch"), **own, instance=instance) for instance in (None, "i")
        ]
        steps += [*again, asks.describe_consumers(name), asks.consume(name, "last", 0, topics=[name], owned=[])]
        yield Row(name, (*steps, *again, asks.describe_consumers(name)))
    for topics in ([], ["shared"]):
        name = f"consumer-gives-up-more-{len(topics)}"
        own = {"timeout_ms": -1, "name": "m"}
        at = Ref("m", "member_epoch")
        steps = [make_topic(name), known_to_coordinators(name)]
        steps += [asks.consume(name, who, 0, topics=[name], owned=[], name=who) for who in ("m", "other")]
        steps += [asks.consume(name, "m", at, **own), asks.consume(name, "m", at, topics=topics, **own)]
        steps += [asks.consume(name, "m", at, owned=_owned(owned), **own) for owned in ([0, 1], [0], [0], [], [])]
        yield Row(name, (*steps, asks.consume(name, "other", Ref("other", "member_epoch"), timeout_ms=-1)))


def _owned(partitions: list[int]) -> list[Any]:
    if not partitions:
        return []
    return [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id("topic"), partitions)]  # type: ignore[arg-type]


def _offsets() -> Iterator[Row]:
    """Yield rows of groups without members: commits, fetches and deletions of offsets in each version."""
    for version in range(2, 10):
        name = f"offsets-v{version}"
        reads = [asks.committed(name, topic=topic, version=max(8, version)) for topic in ("shared", None, "none")]
        deletes = [asks.forget(name), asks.forget(name, "none"), asks.forget(f"{name}-none")]
        wrong = [asks.commit(name, 5, topic="none", version=version), asks.commit(name, 5, part=9, version=version)]
        member = asks.commit(name, 6, generation=1, member="m", version=version)
        steps = (asks.commit(name, 4, version=version), *wrong, member, *reads, *deletes, asks.committed(name))
        yield Row(name, (*steps, asks.describe_group(name)))
