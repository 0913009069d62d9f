"""A table of transaction coordinators' answers: for each state of a transactional id, each request, each producer epoch
and each version.

The same questions are sent to any cluster. `transaction_answers.txt` has the answers of Apache Kafka.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import add_partitions_to_txn as add_wire
from squall.broker.protocol.schema.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from squall.broker.protocol.schema.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from squall.broker.protocol.schema.end_txn import EndTxnRequest, EndTxnResponse
from squall.broker.protocol.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from squall.chaos.plans.parts import FAST_FAILOVER
from squall.workloads.client.admin import coordinators, create_topics, describe_quorum, update_features
from squall.workloads.client.connection import RequestFailed
from squall.workloads.client.new_topic import NewTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from squall.chaos.runtimes.contract import Runtime
    from squall.workloads.client.client import Client

GOLDEN: Final = Path(__file__).with_suffix(".txt")
SETTINGS: Final = {
    **FAST_FAILOVER,
    "broker.session.timeout.ms": "600000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.num.partitions": "3",
}
"""Settings of the cluster: its transactions time out soon. A paused node is removed from the ISRs, but remains the
leader of partitions without other replicas.
"""
LIVE, HELD = "live", "held"
"""Topics: the markers of LIVE are written at once; a partition of HELD is led by the paused node, so its markers wait.
"""
TIMEOUT_MS, SHORT_MS = 60_000, 300
AGAIN: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors that say nothing about the transactional id: the request is sent again."""

STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "Empty": (),
    "Empty, claimed": ("claim",),
    "Ongoing": ("add live",),
    "PrepareCommit V1": ("add held", "commit 4"),
    "PrepareCommit V2": ("add held", "commit 5"),
    "PrepareAbort V1": ("add held", "abort 4"),
    "PrepareAbort V2": ("add held", "abort 5"),
    "PrepareAbort, fenced": ("add held", "init"),
    "PrepareAbort, fenced by itself": ("add held", "claim"),
    "PrepareAbort, timed out": ("short", "add held"),
    "CompleteCommit V1": ("add live", "commit 4"),
    "CompleteCommit V2": ("add live", "commit 5"),
    "CompleteAbort V1": ("add live", "abort 4"),
    "CompleteAbort V2": ("add live", "abort 5"),
    "CompleteAbort, fenced": ("add live", "init"),
    "CompleteAbort, fenced by itself": ("add live", "claim"),
    "CompleteAbort, timed out": ("short", "add live"),
}
"""The steps that bring a transactional id, Empty in epoch 2, into each state."""
EPOCHS: Final = {"current": 0, "last": -1, "older": -2, "newer": 1, "other id": 0}
"""The producer epochs that requests name, as differences from the one in DescribeTransactions. "other id" also names
another producer id.
"""
REQUESTS: Final = (
    *(("InitProducerId", version) for version in (3, 5)),
    *(("AddPartitionsToTxn", version) for version in (1, 3, 5)),
    ("AddPartitionsToTxn verify", 5),
    *(("AddOffsetsToTxn", version) for version in (1, 3)),
    *((end, version) for end in ("EndTxn commit", "EndTxn abort") for version in (1, 4, 5)),
)
LEVELS: Final = (2, 0)
"""Levels of the feature `transaction.version`."""
CONCURRENT: Final = int(ErrorCode.CONCURRENT_TRANSACTIONS)
BATCHED_ADD: Final = 4
"""The first version of AddPartitionsToTxn that only brokers send: to add partitions for a producer of V2, or to verify.
"""
V2_END: Final = 5
"""The first version of EndTxn that increases the producer epoch (transaction protocol V2)."""
OF_V2: Final = (("EndTxn commit", V2_END), ("EndTxn abort", V2_END), ("AddPartitionsToTxn", 5))
"""Requests that are not sent without `transaction.version` 2."""


class Cell(NamedTuple):
    """One question of the table: a state, a request, an epoch and a version."""

    state: str
    api: str
    version: int
    claim: str

    @property
    def row(self) -> str:
        """Return the row of the table with this question's answer."""
        return f"{self.state}: {self.api} {self.version}"


class Known(NamedTuple):
    """A transactional id, as DescribeTransactions describes it."""

    state: str
    producer_id: int
    epoch: int


def cells(level: int, requests: Sequence[tuple[str, int]] = REQUESTS) -> list[Cell]:
    """Return the questions that are possible at a level of `transaction.version`."""
    return [
        Cell(state, api, version, claim)
        for state in STATES
        for api, version in requests
        for claim in (*EPOCHS, *(("none",) if api == "InitProducerId" else ()))
        if level >= 2 or not (state.endswith("V2") or (api, version) in OF_V2)
    ]


def lines(answers: Mapping[Cell, str]) -> list[str]:
    """Return the table as text: a line for each state and request, with equal answers joined."""
    found = []
    for row, asked in groupby(answers, lambda cell: cell.row):
        claims: dict[str, list[str]] = {}
        for cell in asked:
            claims.setdefault(answers[cell], []).append(cell.claim)
        found.append(f"{row}: " + " | ".join(f"{', '.join(names)}: {answer}" for answer, names in claims.items()))
    return found


def page(found: Mapping[int, Sequence[str]]) -> str:
    """Return the text of the file GOLDEN, from the lines at each level."""
    return "".join(f"# transaction.version {level}\n" + "\n".join(told) + "\n\n" for level, told in found.items())


def golden(level: int) -> list[str]:
    """Return Apache Kafka's lines at a level of `transaction.version`."""
    return GOLDEN.read_text().split(f"# transaction.version {level}\n")[1].split("\n\n")[0].splitlines()


def expected(lines_of_kafka: Sequence[str]) -> list[str]:
    """Return the lines that Squall's broker should give if these are Apache Kafka's.

    There is one difference: in Squall a request with an epoch that is not the current one cannot abort an open
    transaction. In Kafka a zombie that comes back aborts its successor's transaction. A user of Kafka loses nothing by
    the difference.
    """
    kafkas = "current, last, older, newer, none: CONCURRENT_TRANSACTIONS, CompleteAbort +1 | other id: "
    ours = "current, none: CONCURRENT_TRANSACTIONS, CompleteAbort +1 | last, older, newer, other id: "
    return [line.replace(kafkas, ours) if line.startswith("Ongoing: Init") else line for line in lines_of_kafka]


class Coordinators:
    """Sends the questions to the transaction coordinators of a cluster in which one node is paused."""

    def __init__(self, client: Client, paused: int, held: int) -> None:
        """`held` is the partition of the topic HELD that the paused node leads."""
        self._client, self._paused, self._held = client, paused, held

    async def set_level(self, level: int) -> None:
        """Set the finalized level of `transaction.version`."""
        error = "not asked"
        while error:
            try:
                error = await update_features(self._client, {"transaction.version": level})
            except RequestFailed:
                await self._client.env.sleep(0.1)

    async def answers(self, wanted: Iterable[Cell], prefix: str = "") -> dict[Cell, str]:
        """Return the answers to these questions. `prefix` begins the names of their transactional ids, which must be
        new.
        """
        wanted = list(wanted)
        found = dict.fromkeys(wanted, "")
        todo = iter(wanted)

        async def ask_some() -> None:
            for cell in todo:
                found[cell] = await self._answer(cell, prefix)

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask_some)
        return found

    async def pipelined_ends(self, name: str, *versions: int) -> list[int]:
        """Send several EndTxn requests over one connection without waiting, while markers are held back, and return
        their errors. Each request ends the transaction after the one before, as a client of its version does.
        """
        name, node = await self._begin(name, ("add held",))
        had = await self._known(node, name)
        while (connection := self._client.connection(node)) is None:
            await self._client.env.sleep(0.05)
        errors: list[int] = []
        done = trio.Event()

        def answered(version: int, body: memoryview | None) -> None:
            assert body is not None
            errors.append(EndTxnResponse.decode(body, 0, version)[0].error_code)
            if len(errors) == len(versions):
                done.set()

        epoch = had.epoch
        for version in versions:
            request = EndTxnRequest(name, had.producer_id, epoch, True)
            epoch += version >= V2_END
            connection.submit(
                request.API_KEY, version, request.encode(version), lambda body, _, v=version: answered(v, body), 10.0
            )
        await done.wait()
        return errors

    async def _answer(self, cell: Cell, prefix: str) -> str:
        """Ask one question. Returns the error or "ok", followed by the epoch in the answer and the state afterwards if
        they differ from those before. Epochs are given as differences.
        """
        name, node = await self._begin(f"{prefix}{cell}", STATES[cell.state])
        state = cell.state.partition(",")[0].split()[0]
        while (had := await self._known(node, name)).state != state:
            await self._client.env.sleep(0.02)
        claim = had.producer_id + (1_000_000 if cell.claim == "other id" else 0), had.epoch + EPOCHS.get(cell.claim, 0)
        if cell.claim == "none":
            claim = -1, -1
        request, response = self._request(cell.api, cell.version, name, claim)
        answer = await self._ask(node, request, response, cell.version)
        error = _error(answer)
        told = ErrorCode(error).name if error else "ok"
        if not error and getattr(answer, "producer_id", -1) >= 0:
            assert answer.producer_id == had.producer_id
            told += f" {answer.producer_epoch - had.epoch:+d}"
        while (now := await self._known(node, name)).state.startswith("Prepare") and not state.startswith("Prepare"):
            await self._client.env.sleep(0.02)
        return told if now == had else f"{told}, {now.state} {now.epoch - had.epoch:+d}"

    async def _begin(self, what: str, steps: Iterable[str]) -> tuple[str, int]:
        """Make a transactional id and take these steps with it. Returns its name and its coordinator, which is not the
        paused node.
        """
        names = [f"{what} {n}" for n in range(10)]
        found: dict[str, int] = {}
        while not (name := next((each for each in names if found.get(each, -1) not in (-1, self._paused)), "")):
            try:
                found = await coordinators(self._client, names)
            except RequestFailed:
                await self._client.env.sleep(0.1)
        node = found[name]
        for step in ("init", "init", "init", *steps):
            await self._take(node, name, *step.split())
        return name, node

    async def _take(self, node: int, name: str, what: str, more: str = "") -> None:
        """Take one step of STATES."""
        nobody, version = Known("", -1, -1), int(more) if more.isdigit() else 3
        had = nobody if what == "init" else await self._known(node, name)
        wanted = {ErrorCode.NONE}
        if what == "add":
            request, response = self._request("AddPartitionsToTxn", version, name, had[1:], more)
        elif what in ("commit", "abort"):
            request, response = self._request(f"EndTxn {what}", version, name, had[1:])
        else:
            claim = had if what == "claim" else nobody
            timeout_ms = SHORT_MS if what == "short" else TIMEOUT_MS
            request, response = InitProducerIdRequest(name, timeout_ms, *claim[1:]), InitProducerIdResponse
            wanted.add(ErrorCode.CONCURRENT_TRANSACTIONS)
        answer = await self._ask(node, request, response, version)
        assert _error(answer) in wanted, ErrorCode(_error(answer)).name

    def _request(self, api: str, version: int, name: str, claim: Sequence[int], topic: str = LIVE) -> tuple[Any, Any]:
        """Return one of REQUESTS with the producer id and epoch in `claim`, and the class of its response."""
        producer_id, epoch = claim
        if api == "InitProducerId":
            return InitProducerIdRequest(name, TIMEOUT_MS, producer_id, epoch), InitProducerIdResponse
        if api == "AddOffsetsToTxn":
            return AddOffsetsToTxnRequest(name, producer_id, epoch, "group"), AddOffsetsToTxnResponse
        if api.startswith("AddPartitionsToTxn"):
            topics = [add_wire.AddPartitionsToTxnTopic(topic, [self._held if topic == HELD else 0])]
            if version < BATCHED_ADD:
                return add_wire.AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=name,
                    v3_and_below_producer_id=producer_id,
                    v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=topics,
                ), add_wire.AddPartitionsToTxnResponse
            of_one = add_wire.AddPartitionsToTxnTransaction(name, producer_id, epoch, api.endswith("verify"), topics)
            return add_wire.AddPartitionsToTxnRequest(transactions=[of_one]), add_wire.AddPartitionsToTxnResponse
        return EndTxnRequest(name, producer_id, epoch, api.endswith("commit")), EndTxnResponse

    async def _known(self, node: int, name: str) -> Known:
        answer = await self._ask(node, DescribeTransactionsRequest([name]), DescribeTransactionsResponse, 0)
        [found] = answer.transaction_states
        return Known(found.transaction_state, found.producer_id, found.producer_epoch)

    async def _ask(self, node: int, request: Any, response: Any, version: int) -> Any:
        while True:
            answer = await self._client.ask_node(node, request, response, version=version)
            if _error(answer) not in AGAIN:
                return answer
            await self._client.env.sleep(0.1)


def _error(answer: Any) -> int:
    if isinstance(answer, add_wire.AddPartitionsToTxnResponse):
        assert not answer.error_code, ErrorCode(answer.error_code).name
        topics = answer.results_by_topic_v3_and_below or answer.results_by_transaction[0].topic_results
        return int(topics[0].results_by_partition[0].partition_error_code)
    if isinstance(answer, DescribeTransactionsResponse):
        return int(answer.transaction_states[0].error_code)
    return int(answer.error_code)


async def coordinators_of(runtime: Runtime, client: Client) -> Coordinators:
    """Prepare a started cluster for the questions: create the topics, and pause a node that is neither the controller
    nor the leader of LIVE. `client` must be running.
    """
    for topic in (NewTopic(LIVE, 1, 3), NewTopic(HELD, 3, 1)):
        while (await create_topics(client, [topic]))[topic.name] not in ("", "TOPIC_ALREADY_EXISTS"):
            await client.env.sleep(0.5)
    client.track([LIVE, HELD])
    leaders: dict[str, dict[int, int]] = {}
    while sum(map(len, leaders.values())) < 4 or any(-1 in each for each in leaders.values()):
        await client.refreshed()
        views = client.view.topics.items()
        leaders = {name: {leader.node_id: n for n, leader in view.leaders.items()} for name, view in views}
    while (await coordinators(client, ["any"]))["any"] < 0:
        await client.env.sleep(0.1)
    busy = {(await describe_quorum(client)).leader_id, *leaders[LIVE]}
    paused = next(node for node in runtime.nodes if node not in busy)
    await runtime.pause(paused)
    return Coordinators(client, paused, leaders[HELD][paused])
