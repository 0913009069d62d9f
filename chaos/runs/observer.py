"""Asks the cluster for its leaders, which faults' targets depend on, and whether it has converged after healing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import trio

from squall.broker.env import Env
from squall.broker.protocol.errors import ErrorCode, name_of
from squall.chaos.errors import HarnessError
from squall.chaos.faults.targets import ClusterSnapshot, CoordinatorKeys
from squall.chaos.runs.lookout import AGAIN_S, SOON_S, Ask, BrokerClusterView, lookout
from squall.chaos.runs.polled import Tell, keep_polled
from squall.workloads.client import admin
from squall.workloads.client.client import Client
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from squall.workloads.client.epochs import leader_epochs
from squall.workloads.client.groups.coordination import OF_GROUPS
from squall.workloads.client.new_topic import NewTopic
from squall.workloads.client.settings import ClientSettings
from squall.workloads.client.topics import topic_settings

ASK_TIMEOUT_MS = 1_500
SETTINGS = ClientSettings(
    client_id="squall-observer",
    request_timeout_ms=ASK_TIMEOUT_MS,
    connect_timeout_ms=ASK_TIMEOUT_MS,
    control_timeout_ms=ASK_TIMEOUT_MS,
)
OF_ONE = replace(SETTINGS, only_bootstrap=True)
"""Holds the settings of a client that always asks the same broker: by default metadata would lead it to other brokers.
"""
_PAUSE_S = 0.1
REFUSED = frozenset(
    {
        *(ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_CONFIG),
        *(ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION),
        *(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    }
)
"""Lists the errors of CreateTopics that stay the same however often the request is repeated. INVALID_REPLICATION_FACTOR
is not listed: it stays only if the cluster has too few brokers, and KRaft's controller also returns it until enough
brokers are unfenced.
"""


def _by_type(names: Sequence[str], groups: Sequence[str]) -> CoordinatorKeys:
    """Split names into transactional ids and groups."""
    return CoordinatorKeys(*(tuple(each for each in names if (each in groups) is apart) for apart in (False, True)))


class ClusterObserver:
    """Asks the cluster with a client of its own, so that its requests never wait behind the workload's. Start the
    client first: `await nursery.start(observer.client.run)`.

    ask_quorum: ask the quorum for the active controller, because the cluster's Metadata does not say. coordinated,
    described: transactional ids and groups. Every snapshot names the coordinators of both; snapshots of `lookout` also
    have the states of `described`. groups: those names in `coordinated` and `described` that are groups; the others are
    transactional ids. places: the workload's partitions, as TOPIC-NUMBER.
    """

    def __init__(
        self,
        env: Env,
        bootstrap: Sequence[tuple[str, int]],
        nodes: Sequence[int],
        *,
        ask_quorum: bool = False,
        coordinated: Sequence[str] = (),
        described: Sequence[str] = (),
        groups: Sequence[str] = (),
        places: Sequence[str] = (),
    ) -> None:
        self._env, self._bootstrap = env, tuple(bootstrap)
        self.client = Client(env, bootstrap, SETTINGS)
        self._nodes, self._places = tuple(nodes), tuple(places)
        self._ask_quorum = ask_quorum
        self._coordinated = _by_type((*coordinated, *(each for each in described if each not in coordinated)), groups)
        self._described = _by_type(described, groups)
        self.cluster_id = ""
        """Is the cluster id that a broker last reported; empty before, or if brokers do not report it."""

    async def create_topics(self, topics: Sequence[NewTopic], timeout_s: float) -> set[str]:
        """Create topics and wait until all replicas of each are in sync. Return the names of the topics that existed
        before.

        Raise HarnessError at once if a broker refuses a topic for good; otherwise if it takes too long.
        """
        missing, existing = {topic.name: topic for topic in topics}, set[str]()
        why = "no answer"
        with trio.move_on_after(timeout_s):
            while missing:
                try:
                    results = await admin.creations(self.client, list(missing.values()))
                except (RequestFailed, UnsupportedApi) as failure:
                    why = str(failure)
                else:
                    for result in results:
                        code, said = result.error_code, result.error_message
                        # It may exist because an earlier request was carried out and only its answer was lost.
                        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                            missing.pop(result.name, None)
                            existing |= {result.name} if code else set()
                            continue
                        why = f"{name_of(code)}: {said}" if said else name_of(code)
                        if self._for_good(code, missing[result.name]):
                            raise HarnessError(f"topic {result.name} was refused: {why}")
                await trio.sleep(_PAUSE_S)
            # This block's time runs out before that of `converged`, so a topic out of sync ends in the error below.
            await self.converged([topic.name for topic in topics], timeout_s)
            return existing
        raise HarnessError(f"topics {', '.join(missing) or 'are there, but not in sync'} after {timeout_s:g} s: {why}")

    def _for_good(self, code: int, topic: NewTopic) -> bool:
        """Return whether the error means that the topic can never be created."""
        return code in REFUSED or (
            code == ErrorCode.INVALID_REPLICATION_FACTOR and not 0 < topic.replication_factor <= len(self._nodes)
        )

    async def unlike(self, topic: NewTopic) -> str:
        """Return how an existing topic differs from this topic, by the names of its settings; empty if it does not
        differ.

        Raises RequestFailed, UnsupportedApi.
        """
        (found,) = (await admin.metadata(self.client, [topic.name])).topics
        if found.error_code:
            raise RequestFailed(name_of(found.error_code), sent=True)
        settings = await topic_settings(self.client, topic.name)
        factors = {len(each.replica_nodes) for each in found.partitions}
        pairs = {
            "partitions": (len(found.partitions), topic.partitions),
            "replication factor": (max(factors, default=0), topic.replication_factor),
            **{
                name: (settings.get(name, "not set"), topic.configs.get(name, "not set"))
                for name in sorted(settings.keys() | topic.configs)
            },
        }
        return ", ".join(f"{name} {is_} instead of {asked}" for name, (is_, asked) in pairs.items() if is_ != asked)

    async def epochs(self, topics: Iterable[str], timeout_s: float) -> dict[str, list[list[int]]]:
        """Return the start offsets of each partition's leader epochs (`squall.checkers.leaderships.EPOCHS`). A
        partition is left out if its leader does not answer in time.
        """
        found: dict[str, list[list[int]]] = {}
        wanted = set(topics)
        with trio.move_on_after(timeout_s):
            metadata = await admin.metadata(self.client)
            places = [(each.name, p.partition_index) for each in metadata.topics for p in each.partitions]
            left = [(name, index) for name, index in places if name in wanted]
            self.client.track(wanted)
            while left:
                for place in [*left]:
                    try:
                        found["{}-{}".format(*place)] = await leader_epochs(self.client, *place)
                        left.remove(place)
                    except (RequestFailed, UnsupportedApi):
                        await trio.sleep(_PAUSE_S)
        return found

    async def view(self) -> ClusterSnapshot:
        """Return leaders, ISRs and the controller as one broker reports them. Retry until a broker answers."""
        while True:
            try:
                seen = self._read(await admin.metadata(self.client))
                seen = replace(seen, controller=await self._controller()) if self._ask_quorum else seen
                found = await self._coordinators(self.client)
                return replace(seen, coordinators=found) if found else seen
            except (RequestFailed, UnsupportedApi):
                await trio.sleep(_PAUSE_S)

    @asynccontextmanager
    async def lookout(self) -> AsyncIterator[Callable[[], Awaitable[ClusterSnapshot]]]:
        """Poll the metadata of all bootstrap servers while the block runs. Yield a function that returns their merged
        answers. A server that does not answer delays nothing.
        """
        async with trio.open_nursery() as nursery:
            asks = await self._asks(nursery)
            again_s = SOON_S if any(self._described) else AGAIN_S
            async with lookout(asks, again_s) as view:
                yield view
            nursery.cancel_scope.cancel()

    async def keep_polled(self, now_s: Callable[[], float], tell: Tell) -> NoReturn:
        """Poll the metadata of all bootstrap servers until cancelled. Call `tell` with an entry of polled.jsonl for
        each change. now_s: returns the time that an entry gets, in seconds.
        """
        async with trio.open_nursery() as nursery:
            await keep_polled(await self._asks(nursery), now_s, tell)
        raise AssertionError("it never returns")

    async def _asks(self, nursery: trio.Nursery) -> list[Ask]:
        """Return one function for each bootstrap server, which asks only this server, by a client of its own. If there
        is only one bootstrap server, the client also learns of the other brokers, and asks them when the server is
        down.
        """
        settings = OF_ONE if len(self._bootstrap) > 1 else SETTINGS
        clients = [Client(self._env, [server], settings) for server in self._bootstrap]
        for client in clients:
            await nursery.start(client.run)
        return [partial(self._ask, client) for client in clients]

    async def _ask(self, client: Client) -> BrokerClusterView | None:
        """Return the metadata that a client's single broker reports, or None if the broker does not answer."""
        try:
            metadata = await admin.metadata(client)
            epochs = {
                f"{topic.name}-{p.partition_index}": p.leader_epoch
                for topic in metadata.topics
                for p in topic.partitions
            }
            seen = self._read(metadata)
            if found := await self._coordinators(client):
                states = await admin.transaction_states(client, self._described.ids)
                of_groups = await admin.group_states(client, self._described.groups)
                seen = replace(seen, coordinators=found, states={**states, **of_groups})
            if not self._ask_quorum:
                return BrokerClusterView(seen, epochs)
            try:
                quorum = await admin.describe_quorum(client)
            except UnsupportedApi:  # a broker without KRaft: the controller stays unknown
                return BrokerClusterView(replace(seen, controller=-1), epochs)
            return BrokerClusterView(replace(seen, controller=quorum.leader_id), epochs, quorum.epoch)
        except (RequestFailed, UnsupportedApi):
            return None

    async def _coordinators(self, client: Client) -> dict[str, int]:
        """Return the coordinators that a broker names, by transactional id or group. Raises RequestFailed,
        UnsupportedApi.
        """
        ids, groups = self._coordinated.ids, self._coordinated.groups
        return {**await admin.coordinators(client, ids), **await admin.coordinators(client, groups, OF_GROUPS)}

    async def _controller(self) -> int:
        """Return the quorum leader's id, -1 if no broker reports it. Kafka's Metadata names any broker as controller
        (KIP-590).
        """
        try:
            return (await admin.describe_quorum(self.client)).leader_id
        except (RequestFailed, UnsupportedApi):
            return -1

    def _read(self, answer: Any) -> ClusterSnapshot:
        self.cluster_id = answer.cluster_id or self.cluster_id
        leaders: dict[str, int] = {}
        isr: dict[str, tuple[int, ...]] = {}
        replicas: dict[str, tuple[int, ...]] = {}
        for topic in answer.topics:
            # Internal topics get no load. A topic with an error is left out, so that `_lacking` calls it unknown.
            if topic.is_internal or topic.error_code:
                continue
            for p in topic.partitions:
                name = f"{topic.name}-{p.partition_index}"
                leaders[name] = p.leader_id
                isr[name] = tuple(p.isr_nodes)
                replicas[name] = tuple(p.replica_nodes)
        return ClusterSnapshot(self._nodes, answer.controller_id, leaders, isr, replicas, places=self._places)

    async def converged(
        self, topics: Sequence[str], timeout_s: float, seen: Callable[[], Awaitable[ClusterSnapshot]] | None = None
    ) -> dict[str, Any]:
        """Wait until every partition has a leader and a full ISR. Return `ok`, `took_s`, and `lacking`: what is still
        missing after `timeout_s`, such as a partition -> "no leader".

        seen: returns the merged answers of all brokers, because a single broker that was cut off may report an old
        state; None: ask any broker.
        """
        began = trio.current_time()
        lacking: dict[str, str] = {"cluster": "no answer"}
        with trio.move_on_after(timeout_s):
            while lacking:
                view = await (seen or self.view)()
                lacking = _lacking(view, topics)
                if lacking:
                    await trio.sleep(_PAUSE_S)
        return {"ok": not lacking, "took_s": round(trio.current_time() - began, 3), "lacking": lacking}


def _lacking(view: ClusterSnapshot, topics: Sequence[str]) -> dict[str, str]:
    """Return the partitions that have no leader or no full ISR, and the topics that no broker knows, with the reason.
    """
    lacking = {}
    for name, leader in view.leaders.items():
        if leader < 0:
            lacking[name] = "no leader"
        elif sorted(view.isr[name]) != sorted(view.replicas[name]):
            lacking[name] = f"ISR {list(view.isr[name])} of {list(view.replicas[name])}"
    known = {name.rpartition("-")[0] for name in view.leaders}
    lacking.update({topic: "unknown" for topic in topics if topic not in known})
    return lacking
