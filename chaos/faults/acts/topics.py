"""Changes topics while they are in use, as an administrator does: creates, deletes and recreates them, adds partitions,
alters settings, deletes records.

If the verdict depends on a request, the history records the request before it is sent. A request is repeated until it
is accepted, for up to `PATIENCE_S` after the fault's planned end: another fault may block the controller or the leader
for a while.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random

import trio

from squall.broker.protocol.timestamps import EARLIEST, LATEST
from squall.broker.protocol.wire import ZERO_UUID
from squall.chaos.errors import HarnessError
from squall.chaos.faults.context import FaultContext, FaultExecution
from squall.chaos.faults.proofs import changed_topics
from squall.chaos.faults.targets import UnresolvedTargetError
from squall.chaos.runtimes.contract import NodeState
from squall.workloads.churn_records import SETTINGS as CLIENT_SETTINGS
from squall.workloads.churn_records import write_to
from squall.workloads.client import admin, topics
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import VERSION, RequestFailed, UnsupportedApi
from squall.workloads.client.new_topic import NewTopic
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.client.settings import ConsumerSettings
from squall.workloads.control import AdminLog, ClientHandle
from squall.workloads.counters import LoadCounters
from squall.workloads.reader import RecordedReader

AGAIN_S, PATIENCE_S = 0.5, 30.0
"""Give the pause before a refused request is sent again, and how long after the fault's planned end this is still done,
both in s.
"""
ASK_MS = 1_000
PARTITIONS = 2
"""Gives the number of partitions of a topic that is created, deleted and created again."""
# A repeated request gets the second error of MADE or GONE if an earlier one was carried out but not answered.
MADE = ("", "TOPIC_ALREADY_EXISTS")
GONE = ("", "UNKNOWN_TOPIC_ID")
GROWN = ("", "INVALID_PARTITIONS")
"""Lists the errors of CreatePartitions that count as success. A repeated request gets INVALID_PARTITIONS if the earlier
request was carried out but not answered.
"""
SETTINGS = {"min_isr": "min.insync.replicas", "retention": "retention.ms", "segment": "segment.bytes"}
REMOVES = ("retention",)
"""Lists the settings that let brokers delete records."""

Ask = Callable[[], Awaitable[str]]


async def change(context: FaultContext, p: FaultExecution) -> None:
    """Change topics as the parameter `how` says. Evidence is the requests and the cluster's answers."""
    context.begun(p)
    log = None if context.clients is None else context.clients.admin_log
    if log is None:
        raise UnresolvedTargetError("there is no workload")
    how = str(p.fault.params["how"])
    if how == "churn":
        await _churn(context, p, log)
    elif how == "remake":
        async with _name_lock(log, log.topics[0]):
            await _recreate(context, p, log)
    elif how == "partitions":
        await _grow(context, p, log)
    elif how == "delete_records":
        await _delete_records(context, p, log)
    else:
        await _alter(context, p, log, how)
    await trio.sleep(max(0.0, context.left_s(p)))
    p.ended = context.now_ns()
    p.error = changed_topics(p.evidence, p.fault.params, ()) or None
    p.landed = p.error is None


async def _retry(context: FaultContext, p: FaultExecution, ask: Ask, fine: tuple[str, ...] = ("",)) -> str:
    """Send the request until its error is in `fine` ("" means success), and return this error. Raise HarnessError with
    the last error once the time for retries is over.
    """
    error = ""
    while True:
        try:
            error = await ask()
        except UnsupportedApi as failure:
            raise HarnessError(str(failure)) from None
        except RequestFailed as failure:
            error = str(failure)
        else:
            if error in fine:
                return error
        if context.left_s(p) + PATIENCE_S <= 0:
            raise HarnessError(f"the cluster refused: {error}")
        await trio.sleep(AGAIN_S)


# --------------------------------------------------------------------------------------------- topics and partitions


async def _churn(context: FaultContext, p: FaultExecution, log: AdminLog) -> None:
    """Create a topic, write to it, delete it, and create it again under its name, at least twice. The last topic stays.

    The topic is deleted by its id: a request that a broker held back must not delete the next topic of this name.
    """
    client, like = context.cluster.client, log.topics[0]
    topic = NewTopic(f"passing-{p.fault.id}", PARTITIONS, like.replication_factor, like.configs)
    places = [(topic.name, index) for index in range(PARTITIONS)]
    process, ids = log.recorder.process("admin", VERSION, {}), list[bytes]()
    p.evidence = {"topic": topic.name, "ids": [], "acknowledged": []}

    async def make() -> str:
        return (await admin.create_topics(client, [topic], ASK_MS))[topic.name]

    async def delete() -> str:
        return await admin.delete_topic(client, ids[-1], ASK_MS)

    while True:
        await _retry(context, p, make, MADE)
        # The new topic has the same settings. Without them the verdict would not know whether it has a retention.
        if like.name in log.recorder.settings:
            log.recorder.topic_settings({topic.name: log.recorder.settings[like.name]})
        for place in places:
            _declare(log, topic, place)
        env = context.runtime.env(f"passing-{p.fault.id}-{len(ids)}")
        topic_id, acknowledged = await write_to(env, log.bootstrap, places, log.recorder, ids, PATIENCE_S)
        ids.append(topic_id)
        p.evidence["ids"].append(topic_id.hex())
        p.evidence["acknowledged"].append(acknowledged)
        if topic_id == ZERO_UUID:
            raise HarnessError(f"within {PATIENCE_S:g} s nobody told the id and the leaders of topic {topic.name}")
        if len(ids) > 1 and context.left_s(p) <= 0:
            return
        log.recorder.deletes(process, topic.name)
        log.recorder.flush()
        await _retry(context, p, delete, GONE)
        await trio.sleep(AGAIN_S)


async def _recreate(context: FaultContext, p: FaultExecution, log: AdminLog) -> None:
    """Delete the first topic of the workload, and create it again under its name.

    The topic's clients crash before that, so that the history shows which of the two topics each operation was about.
    The group stays, with its offsets; its next members start once the topic exists again.
    """
    assert context.clients is not None
    client, like, me = context.cluster.client, log.topics[0], p.fault.id
    topic = replace(like, partitions=_count(log, like))
    handles = [*context.clients.producers, *context.clients.readers]
    process, crashed, ids = log.recorder.process("admin", VERSION, {}), list[ClientHandle](), list[bytes]()

    async def delete() -> str:
        return await admin.delete_topic(client, ids[0], ASK_MS)

    async def make() -> str:
        return (await admin.create_topics(client, [topic], ASK_MS))[topic.name]

    async def known() -> str:
        await client.refreshed()
        found = client.view.topic_id(topic.name)
        led = all(client.view.leader(topic.name, index) is not None for index in range(topic.partitions))
        if found in (ZERO_UUID, *ids) or not led:
            return f"topic {topic.name} has no new id, or no leaders"
        ids.append(found)
        return ""

    async def everywhere() -> str:
        # A broker with old metadata would still serve the deleted topic to clients that trust this metadata.
        for node in context.runtime.nodes:
            if context.runtime.state(node) is not NodeState.DOWN:
                [seen] = (await admin.metadata(client, [topic.name], node=node)).topics
                if seen.topic_id != ids[-1]:
                    return f"broker {node} does not know the new topic {topic.name}"
        return ""

    client.track([topic.name])
    await _retry(context, p, known)
    try:
        for handle in handles:
            handle.hold(me)
            if handle.crash(me) is not None:
                crashed.append(handle)
        await _retry(context, p, _at_rest(handles))
        log.recorder.remakes(process, topic.name, ids[0].hex())
        log.recorder.flush()
        await _retry(context, p, delete, GONE)
        await _retry(context, p, make, MADE)
        await _retry(context, p, known)
        await _retry(context, p, everywhere)
    finally:
        for handle in handles:
            # Also after an error: a client without a successor would be missing for the rest of the run.
            handle.replace(me)
            handle.let_go(me)
    p.evidence = {"topic": topic.name, "ids": [each.hex() for each in ids], "acknowledged": [], "crashed": len(crashed)}


def _at_rest(handles: Sequence[ClientHandle]) -> Ask:
    async def ask() -> str:
        await trio.lowlevel.checkpoint()
        busy = [handle.name for handle in handles if not handle.at_rest]
        return f"{', '.join(busy)} did not come to rest" if busy else ""

    return ask


async def _grow(context: FaultContext, p: FaultExecution, log: AdminLog) -> None:
    """Add a partition to a topic of the workload, and write to that partition."""
    client, topic = context.cluster.client, _drawn(context, p, log)
    async with _name_lock(log, topic):
        count = 1 + _count(log, topic)
        await _retry(context, p, lambda: topics.add_partitions(client, topic.name, count, timeout_ms=ASK_MS), GROWN)
        place = topic.name, count - 1
        _declare(log, topic, place)
    env = context.runtime.env(f"passing-{p.fault.id}")
    acknowledged = 0
    while not acknowledged and context.left_s(p) + PATIENCE_S > 0:
        _, acknowledged = await write_to(env, log.bootstrap, [place], log.recorder, (), PATIENCE_S)
        await trio.sleep(0.0 if acknowledged else AGAIN_S)
    p.evidence = {"topic": topic.name, "partitions": count, "acknowledged": [acknowledged]}


def _drawn(context: FaultContext, p: FaultExecution, log: AdminLog) -> NewTopic:
    return context.rng(p, "topic").choice(log.topics)


def _count(log: AdminLog, topic: NewTopic) -> int:
    return sum(name == topic.name for name, _ in log.recorder.partitions)


def _name_lock(log: AdminLog, topic: NewTopic) -> trio.Lock:
    """Return a lock, one for each topic name. A request that names the topic must be sent under this lock: if the topic
    were recreated meanwhile, the request would hit the new topic.
    """
    return log.turns.setdefault((topic.name, ""), trio.Lock())


def _declare(log: AdminLog, topic: NewTopic, place: Place) -> None:
    """Record a new partition in the history."""
    cleanup = topic.configs.get("cleanup.policy", "delete")
    age, size = (int(topic.configs.get(name, "-1")) for name in ("retention.ms", "retention.bytes"))
    log.recorder.partition(*place, cleanup=cleanup, retention_ms=age, retention_bytes=size, added=True)


# ------------------------------------------------------------------------------------------------ settings, records


async def _alter(context: FaultContext, p: FaultExecution, log: AdminLog, how: str) -> None:
    """Alter a setting of one of the workload's topics, and restore the old value when the fault ends. Only one fault at
    a time alters the same setting of a topic; a second fault waits until the first has restored the value.
    """
    client, topic, name = context.cluster.client, _drawn(context, p, log), SETTINGS[how]
    before, now = topic.configs.get(name), str(int(p.fault.params["value"]))
    process = log.recorder.process("admin", VERSION, {})

    async def alter(value: str | None) -> None:
        async def ask() -> str:
            return (await topics.alter_topics(client, {topic.name: {name: value}}))[topic.name]

        async with _name_lock(log, topic):
            parts = [part for place, part in log.recorder.partitions.items() if place[0] == topic.name]
            lasts_ms = -1 if value is None else int(value)
            ops = (
                [_record_request(log, process, how, part, retention_ms=lasts_ms) for part in parts]
                if how in REMOVES
                else []
            )
            # If this gives up, the operations stay open: the brokers may have carried out a request that they did not
            # answer.
            await _retry(context, p, ask)
            for op in ops:
                log.recorder.complete(op, OperationStatus.OK)

    async def seen() -> str:
        value = p.evidence["seen"] = await topics.topic_setting(client, topic.name, name)
        return "" if value == now else f"{name} is {value}"

    async with log.turns.setdefault((topic.name, name), trio.Lock()):
        await alter(now)
        p.evidence = {"topic": topic.name, "setting": name, "before": before, "value": now, "seen": None}
        await _retry(context, p, seen)
        await trio.sleep(max(0.0, context.left_s(p)))
        await alter(before)


async def _delete_records(context: FaultContext, p: FaultExecution, log: AdminLog) -> None:
    """Delete the older records of some partitions of the workload, up to an offset that is committed. At the end, a new
    client asks for the log start offsets.
    """
    rng, process = context.rng(p, "offsets"), log.recorder.process("admin", VERSION, {})
    places = [(topic, index) for topic in log.topics for index in range(topic.partitions)]
    chosen = rng.sample(places, rng.randint(1, len(places)))
    p.evidence = {"deleted": {}}
    parts = {}
    for topic, index in chosen:
        place = topic.name, index
        async with _name_lock(log, topic):
            before, low = await _delete_before(context, p, log, process, place, rng)
            parts[place] = log.recorder.partitions[place]
        p.evidence["deleted"][f"{topic.name}-{index}"] = {"before": before, "low_watermark": low}
    await trio.sleep(max(0.0, context.left_s(p)))
    for place, listed in (await _log_starts(context, p, log, list(parts))).items():
        deleted = p.evidence["deleted"][f"{place[0]}-{place[1]}"]
        deleted["log_start"] = listed.offset
        # Another fault may have made the topic anew: then the history has another partition of that name.
        if log.recorder.partitions[place] != parts[place]:
            deleted["remade"] = True


async def _log_starts(
    context: FaultContext, p: FaultExecution, log: AdminLog, places: Sequence[Place]
) -> dict[Place, admin.ListedOffset]:
    """Return the earliest offsets that a new client gets by ListOffsets. The history records each request and response.
    """
    env = context.runtime.env(f"asking-{p.fault.id}")
    async with trio.open_nursery() as nursery:
        client = Client(env, log.bootstrap, CLIENT_SETTINGS)
        await nursery.start(client.run)
        reader = RecordedReader(env, client, log.recorder, LoadCounters(), role="admin", consumer=ConsumerSettings())
        found = await reader.list_offsets(places, EARLIEST, PATIENCE_S)
        client.close()
        nursery.cancel_scope.cancel()
    return found


async def _delete_before(
    context: FaultContext, p: FaultExecution, log: AdminLog, process: int, place: Place, rng: Random
) -> tuple[int, int]:
    """Delete records of one partition. Return the offset before which they were deleted, and the partition's low
    watermark (the smallest log start offset of all replicas).
    """
    client, share, found = context.cluster.client, rng.choice((0.3, 0.7, 1.0)), (-1, -1)

    async def ask() -> str:
        nonlocal found
        bounds = [
            (await admin.list_offsets(client, [place], which, timeout_s=ASK_MS / 1000))[place]
            for which in (EARLIEST, LATEST)
        ]
        if wrong := bounds[0].error or bounds[1].error:
            return wrong
        before = bounds[0].offset + int(share * (bounds[1].offset - bounds[0].offset))
        # Each attempt is an operation of its own: the brokers may still carry out one that got no answer.
        op = _record_request(log, process, "delete_records", log.recorder.partitions[place], to=before)
        try:
            error, low = await topics.delete_records(client, place, before, timeout_ms=ASK_MS)
        except RequestFailed as failure:
            log.recorder.complete(op, OperationStatus.INFO, failure.why)
            raise
        # The checkers need the leader epoch: only within one epoch is a log start that goes back an offset-regression.
        led = {} if error else {"led": bounds[0].led_epoch}
        log.recorder.complete(op, OperationStatus.INFO if error else OperationStatus.OK, error, **led)
        found = before, low
        return error

    await _retry(context, p, ask)
    return found


def _record_request(log: AdminLog, process: int, what: str, part: int, **more: int) -> int:
    """Record an administrator's request in the history before it is sent, because brokers may carry it out whatever the
    response says. Return the operation's number. process: the administrator's process in the history. what: the kind of
    request. part: the number of the partition in the history. more: values of the request, such as an offset.
    """
    op = log.recorder.invoke(process, "admin", {"what": what, "part": part, **more})
    log.recorder.flush()
    return op
