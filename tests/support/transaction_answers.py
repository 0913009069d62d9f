"""Lists what a coordinator answers about a transactional id in each state, to each request with each epoch, in each
version.

One table is asked of a cluster, whichever broker it runs. `transaction_answers.txt` is Apache Kafka's answers.
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
"""A cluster whose transactions time out soon. A node that is paused leaves the ISRs, and remains the leader of what has
no other replica.
"""
LIVE, HELD = "live", "held"
"""Topics: one whose markers are written at once, and one with a partition that the paused node leads."""
TIMEOUT_MS, SHORT_MS = 60_000, 300
AGAIN: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Errors that say nothing of the transactional id."""

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
"""How a transactional id comes into each state, from Empty in epoch 2."""
EPOCHS: Final = {"current": 0, "last": -1, "older": -2, "newer": 1, "other id": 0}
"""Claims, as differences from the epoch that DescribeTransactions gives. "other id": of another producer id."""
REQUESTS: Final = (
    *(("InitProducerId", version) for version in (3, 5)),
    *(("AddPartitionsToTxn", version) for version in (1, 3, 5)),
    ("AddPartitionsToTxn verify", 5),
    *(("AddOffsetsToTxn", version) for version in (1, 3)),
    *((end, version) for end in ("EndTxn commit", "EndTxn abort") for version in (1, 4, 5)),
)
LEVELS: Final = (2, 0)
"""Of `transaction.version`."""
CONCURRENT: Final = int(ErrorCode.CONCURRENT_TRANSACTIONS)
BATCHED_ADD: Final = 4
"""First version of AddPartitionsToTxn that brokers send: to add for a producer of V2, or to verify."""
V2_END: Final = 5
"""First version of EndTxn of generation V2."""
OF_V2: Final = (("EndTxn commit", V2_END), ("EndTxn abort", V2_END), ("AddPartitionsToTxn", 5))
"""Requests that are not sent without `transaction.version` 2."""


class Cell(NamedTuple):
    """One question of the table."""

    state: str
    api: str
    version: int
    claim: str

    @property
    def row(self) -> str:
        """Return the row that its answer belongs to."""
        return f"{self.state}: {self.api} {self.version}"


class Known(NamedTuple):
    """A transactional id, as DescribeTransactions tells it."""

    state: str
    producer_id: int
    epoch: int


def cells(level: int, requests: Sequence[tuple[str, int]] = REQUESTS) -> list[Cell]:
    """The questions that make sense at a level of `transaction.version`."""
    return [
        Cell(state, api, version, claim)
        for state in STATES
        for api, version in requests
        for claim in (*EPOCHS, *(("none",) if api == "InitProducerId" else ()))
        if level >= 2 or not (state.endswith("V2") or (api, version) in OF_V2)
    ]


def lines(answers: Mapping[Cell, str]) -> list[str]:
    """The table as text: a line for each state and request, equal answers together."""
    found = []
    for row, asked in groupby(answers, lambda cell: cell.row):
        claims: dict[str, list[str]] = {}
        for cell in asked:
            claims.setdefault(answers[cell], []).append(cell.claim)
        found.append(f"{row}: " + " | ".join(f"{', '.join(names)}: {answer}" for answer, names in claims.items()))
    return found


def page(found: Mapping[int, Sequence[str]]) -> str:
    """The text of GOLDEN, from the lines at each level."""
    return "".join(f"# transaction.version {level}\n" + "\n".join(told) + "\n\n" for level, told in found.items())


def golden(level: int) -> list[str]:
    """Apache Kafka's lines at a level of `transaction.version`."""
    return GOLDEN.read_text().split(f"# transaction.version {level}\n")[1].split("\n\n")[0].splitlines()


def expected(lines_of_kafka: Sequence[str]) -> list[str]:
    """Return what Squall answers if Apache Kafka answers these lines.

    One difference: a claim of an epoch that is not the current one cannot abort an open transaction. With Kafka a
    zombie that comes back aborts what its successor does. A user of Kafka loses nothing by it.
    """
    kafkas = "current, last, older, newer, none: CONCURRENT_TRANSACTIONS, CompleteAbort +1 | other id: "
    ours = "current, none: CONCURRENT_TRANSACTIONS, CompleteAbort +1 | last, older, newer, other id: "
    return [line.replace(kafkas, ours) if line.startswith("Ongoing: Init") else line for line in lines_of_kafka]


class Coordinators:
    """Asks the transaction coordinators of one cluster, of which a node is paused."""

    def __init__(self, client: Client, paused: int, held: int) -> None:
        """`held`: the partition of HELD that the paused node leads."""
        self._client, self._paused, self._held = client, paused, held

    async def set_level(self, level: int) -> None:
        """Finalize a level of `transaction.version`, whichever node is asked first."""
        error = "not asked"
        while error:
            try:
                error = await update_features(self._client, {"transaction.version": level})
            except RequestFailed:
                await self._client.env.sleep(0.1)

    async def answers(self, wanted: Iterable[Cell], prefix: str = "") -> dict[Cell, str]:
        """The answers to these questions, in their order. `prefix` makes their transactional ids new ones."""
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
        """The errors of EndTxn requests that one connection carries at once while markers are held back: each is the
        end of the transaction after the one before, as a client of its version would ask for it.
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
        """The error, or "ok"; with the epoch that it gives and the state that follows, where that is another. Epochs
        are differences from the one before.
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
        """A new transactional id and its coordinator, which is not the paused node, after these steps."""
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
        """One step of STATES."""
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
        """A request of REQUESTS, and the class of its answer."""
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
    """The coordinators of a cluster that has started, with the topics, and with a node paused that is neither the
    controller nor the leader of LIVE. `client` runs.
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
