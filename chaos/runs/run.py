"""Carries out one run, from a plan to a run directory that can be judged.

cluster -> topics -> warm-up -> load with faults -> heal -> convergence -> a write to every partition, which the
workload's own readers poll before they end -> new readers read everything, twice, in both isolation levels -> stop ->
replica logs compared. Everything written so far is kept, whatever happens. A run that ends early, by trouble of the
harness or by Ctrl-C, can still be verified; its verdict is `unknown`, with the reason.
"""

from __future__ import annotations

import platform
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Protocol

import trio

from squall.broker.env import Env, Fs
from squall.chaos import __version__
from squall.chaos.errors import HarnessError, error_message
from squall.chaos.faults.context import FaultExecution, now_ns
from squall.chaos.faults.kind import FaultTrait
from squall.chaos.faults.nemesis import Nemesis
from squall.chaos.faults.targets import ClusterSnapshot, coordinated_names
from squall.chaos.faults.triggers import described_names
from squall.chaos.plans import external
from squall.chaos.plans.operations import with_warm_up_times
from squall.chaos.plans.plan import Plan
from squall.chaos.runs.fitted import adapt_to_machine
from squall.chaos.runs.last_load import UNSERVED, outlast, write_beside
from squall.chaos.runs.observer import ClusterObserver
from squall.chaos.runs.progress import ProgressDisplay
from squall.chaos.runs.readers_behind import leader_and_isr, name_of, reader_as_json, with_records_left
from squall.chaos.runs.run_status import counts_of
from squall.chaos.runs.run_store import RunStore
from squall.chaos.runs.target_facts import ForeignCluster, ask_cluster, unsupported_faults
from squall.chaos.runs.topic_settings import asked_settings, planned_settings
from squall.chaos.runtimes.contract import NodeExit, NodeState, Runtime
from squall.chaos.runtimes.layout import ZONE, addresses, zone_names
from squall.checkers.anomalies.anomaly import OWN
from squall.checkers.history import seal
from squall.checkers.leaderships import EPOCHS
from squall.workloads.control import AdminLog
from squall.workloads.counters import LoadCounters
from squall.workloads.final_reads import FinalReadResult
from squall.workloads.libraries import ClientZone, LibraryClientFactory
from squall.workloads.live_readers import LiveReaders
from squall.workloads.needs import LibraryRequirements
from squall.workloads.post_heal_writes import PostHealWrites, write_afterwards
from squall.workloads.recorder import Recorder
from squall.workloads.scenario import ScenarioEnvironment

VERSIONS = {"python": platform.python_version(), "trio": version("trio")}
"""Holds the versions of Python and trio. They are read once, at import, because a simulated run reads no file."""
TOPICS_READY_S = 30.0
EPOCHS_WAIT_S = 10.0
ASK_LIMIT_S = 3.0
"""Limits how long to wait for a broker's report of the partitions' leaders, in s."""
READ_MARGIN_S = 5.0
"""Gives how much longer than `stuck_s` readers get after healing, in s, so that a stuck reader is noticed."""
STILL_STUCK_S = 3.0
"""Gives the seconds that a stuck reader gets, after new readers have read everything, to poll a record."""
MakeDriver = Callable[[str, LibraryRequirements], LibraryClientFactory]
"""Starts a client library, given the bootstrap servers and what a workload needs of the library."""


class RunObserver(Protocol):
    """Observes the cluster while it runs. In a simulation this is implemented by the invariants."""

    def acknowledged(self, topic: str, partition: int, offset: int, value: int) -> None:
        """Take note that a producer's record was just acknowledged at `offset` (-1: unknown)."""

    def served(self, topic: str, partition: int, epoch: int, records: Sequence[tuple[int, int]]) -> None:
        """Take note that a reader got these (offset, value) from the leader of this epoch. Value -1: unreadable."""

    def stuck(self) -> list[str]:
        """Return why the cluster does not converge, as seen from inside the brokers."""

    async def settle(self) -> None:
        """Make the last checks, after a pause. Called once the cluster has converged and the final reads are over."""

    def seals(self) -> Mapping[str, int]:
        """Return file name -> CRC-32 of each file of the observer's findings, to record in the history's final line."""


class Run:
    """Carries out one run in one runtime. Its clock is that of `runtime.env("harness")`, in every runtime.

    drawn: the faults were drawn at random, so they may be lengthened until this machine can measure their effects.
    """

    def __init__(
        self,
        plan: Plan,
        store: RunStore,
        runtime: Runtime,
        progress: ProgressDisplay,
        command: str,
        *,
        invariants: RunObserver | None = None,
        stranger: ForeignCluster | None = None,
        drivers: MakeDriver | None = None,
        drawn: bool = False,
    ) -> None:
        self.plan, self.store, self.runtime, self.progress = plan, store, runtime, progress
        self._invariants, self._stranger, self._drivers, self._drawn = invariants, stranger, drivers, drawn
        self._played: list[FaultExecution] = []
        self._env = self.env("harness")
        self.info: dict[str, Any] = {
            "schema": 1,
            "run": store.run_id,
            "command": command,
            "squall": __version__,
            "versions": dict(VERSIONS),
            "began_wall_ms": self._env.wall_ms(),
            "began_ns": now_ns(self._env),
            "phases": [],
            "trouble": None,
        }
        self._save()

    def env(self, name: str) -> Env:
        """Return an Env for a named part of the harness. The plan's seed and the name determine its random stream."""
        env = self.runtime.env(name)
        env.rng.seed(repr((self.plan.seed, name)))
        return env

    @property
    def played(self) -> Sequence[FaultExecution]:
        """Returns all faults of the plan, each with its result so far."""
        return self._played

    @property
    def fs(self) -> Fs:
        """Returns the file system to which the history is written, under `RunStore.history`."""
        return self._env.fs

    def _save(self) -> None:
        self.store.info(self.info)

    @asynccontextmanager
    async def _phase(self, name: str, lasts_s: float | None = None) -> AsyncIterator[None]:
        entry = {"name": name, "began": now_ns(self._env), "ended": None}
        self.info["phases"].append(entry)
        self._save()
        with self.progress.phase(name, lasts_s):
            try:
                yield
            finally:
                entry["ended"] = now_ns(self._env)
                self._save()

    async def go(self) -> None:
        """Carry out the whole run. Trouble of the harness is written to run.json, and raised as HarnessError."""
        try:
            try:
                async with self._phase("start the cluster"):
                    await self.runtime.start()
                    if self._drawn:
                        self.plan = await adapt_to_machine(self.plan, self.runtime, self.store, self.progress.say)
                await self._with_cluster()
            finally:
                # Before the stop, which ends proxies and relays on purpose.
                self.info["harness"] = list(self.runtime.troubles())
                with trio.CancelScope(shield=True):
                    await self._stop()
        except HarnessError as trouble:
            self.info["trouble"] = str(trouble)
            raise
        except BaseException as error:
            self.info["trouble"] = "interrupted" if _is_interrupt(error) else error_message(error)
            raise
        finally:
            ended, wall_ms = now_ns(self._env), self._env.wall_ms() - self.info["began_wall_ms"]
            self.info["ended_ns"] = ended
            self.info["wall_drift_ms"] = wall_ms - (ended - self.info["began_ns"]) // 1_000_000
            self.info["node_exits"] = [
                {
                    "node": e.node,
                    "incarnation": e.incarnation,
                    "code": e.code,
                    "t": e.t_ns,
                    "last_words": e.last_words,
                    "expected": any(_ends(p, e) for p in self._played),
                }
                for e in self.runtime.exits()
            ]
            self._save()

    async def _stop(self) -> None:
        """Stop the cluster, even if no phase can be recorded any more because the disk is full."""
        try:
            async with self._phase("stop the cluster"):
                await self.runtime.stop()
        except OSError:
            await self.runtime.stop()
            raise

    async def _with_cluster(self) -> None:
        env, seed = self._env, self.plan.seed
        servers = addresses(self.runtime.bootstrap(ZONE))
        served = self._invariants.served if self._invariants else None
        planned = {seal.PLAN: seal.plan_seal(self.plan.model_dump(exclude={"operations"}))}
        recorder = Recorder(env, self.store.history, self.store.run_id, served=served, about={"seals": planned})
        observer = self._observer(servers, foreign=self._stranger is not None)
        probe_ms, record = self.plan.probe_ms, self.store.fault
        nemesis = Nemesis(
            self.runtime, self.plan.timeline(), seed, env=env, cluster=observer, record=record, probe_ms=probe_ms
        )
        self._played = nemesis.played
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(observer.client.run)
                if self.progress.view_every_s is not None:
                    nursery.start_soon(self._poll_view, observer, self.progress.view_every_s)
                if self._stranger is not None:
                    await self._check_target(self._stranger, servers)
                if self.plan.runtime == external.WORLD:
                    nursery.start_soon(observer.keep_polled, lambda: now_ns(env) / 1e9, self.store.polled)
                async with self._phase("create topics"):
                    await observer.create_topics(self.plan.workload.topic_list(), TOPICS_READY_S)
                    await self._write_settings(servers, recorder)
                await self._load_and_heal(observer, servers, recorder, nemesis)
                if self.plan.runtime == external.WORLD:
                    self.info[EPOCHS] = await observer.epochs(self.plan.workload.topic_names(), EPOCHS_WAIT_S)
                if self.info.get("final_reads") is None:
                    await self._read_finally(servers, recorder)
                if self._invariants is None:
                    await self._write_settings(servers, recorder)
                if self._invariants is not None and self.info["converged"]["ok"]:
                    await self._invariants.settle()
                observer.client.close()
                nursery.cancel_scope.cancel()
        finally:
            # Before the seal of run.json, which covers `history`, too.
            self.info["history"] = recorder.contents
            seen = self._invariants.seals() if self._invariants else {}
            known = {seal.NEMESIS: self.store.nemesis_crc, seal.RUN: seal.info_seal(self.info)}
            recorder.close(seals={**known, **seen})
            self.store.close()

    async def _write_settings(self, servers: list[tuple[str, int]], recorder: Recorder) -> None:
        """Record the topics' settings in force. If no broker reports them at the end, keep those from the beginning."""
        topics, simulated = self.plan.workload.topic_names(), self._invariants is not None
        settings = (
            planned_settings(self.plan)
            if simulated
            else await asked_settings(self.env("topic settings"), servers, topics)
        )
        known = recorder.settings
        recorder.topic_settings({name: each for name, each in settings.items() if each or name not in known})

    async def _poll_view(self, observer: ClusterObserver, every_s: float) -> None:
        """Update the displayed broker states until cancelled. The display's own thread must not call the runtime."""
        status = self.progress.status
        try:
            while True:
                status.nodes = {node: self.runtime.state(node).value for node in self.plan.nodes}
                status.view = await _seen_by(observer)
                await trio.sleep(every_s)
        finally:
            status.nodes, status.view = dict.fromkeys(self.plan.nodes, NodeState.DOWN.value), None

    def _observer(self, servers: list[tuple[str, int]], *, foreign: bool) -> ClusterObserver:
        faults, traffic = self.plan.timeline(), self.plan.workload.traffic()
        coordinated = coordinated_names((fault.target for fault in faults), (*traffic.ids, *traffic.groups))
        described = described_names(fault.when for fault in faults)
        return ClusterObserver(
            self.env("observer"),
            servers,
            self.plan.nodes,
            ask_quorum=foreign,
            coordinated=coordinated,
            described=described,
            groups=traffic.groups,
            places=self.plan.partitions(),
        )

    async def _check_target(self, stranger: ForeignCluster, servers: list[tuple[str, int]]) -> None:
        """Ask a foreign cluster (`stranger`) for APIs, features and settings. Record them and print what is lacking."""
        target = await ask_cluster(servers, self.plan.cluster.settings, stranger.left_out)
        self.info["target"] = {"name": stranger.name, "version": stranger.version, **target.as_json()}
        self._save()
        for line in (*target.lines(), *unsupported_faults(target, self.plan.timeline())):
            self.progress.say(f"{stranger.name} {stranger.version}".strip() + f": {line}")

    def _zones(self, cluster_id: str) -> list[ClientZone]:
        """Return each client zone (clients with links of their own) with its bootstrap servers and client library."""
        servers = {name: self.runtime.bootstrap(name) for name in zone_names(self.plan.workload.zones)}
        needs = self.plan.workload.needs(self.plan.operations or ())
        drivers = {name: self._drivers(each, needs) for name, each in servers.items()} if self._drivers else {}
        return [ClientZone(name, addresses(each), drivers.get(name), cluster_id) for name, each in servers.items()]

    async def _load_and_heal(
        self, observer: ClusterObserver, servers: list[tuple[str, int]], recorder: Recorder, nemesis: Nemesis
    ) -> None:
        """Carry out all phases in which the workload's readers run: the load, the healing, and the writes after it."""
        counters = LoadCounters()
        around = self._environment(recorder, counters, self._zones(observer.cluster_id))
        around.controls.admin_log = AdminLog(self.plan.workload.topic_list(), recorder, servers)
        nemesis.clients = around.controls
        status = self.progress.status
        status.load, status.faults, status.coming = counters, tuple(nemesis.played), nemesis.coming
        async with trio.open_nursery() as clients:
            clients.start_soon(self._work, around)
            await self._load(around, nemesis)
            async with self._phase("heal"):
                self.info["heal"] = await self.runtime.heal()
            self._say_landed(nemesis)
            await self._converge(observer)
            async with self._phase("writes after healing"):
                written = await self._write_afterwards(observer, servers, recorder)
            async with self._phase("reads after healing"):
                reads = await self._read_afterwards(observer, around.readers, written)
                self.info["reads_after_healing"] = reads
            # A client library that reads nothing looks like a broker that serves nothing. New readers tell them apart,
            # but only while the old ones still poll.
            if any(each["client"] != OWN and each["idle_s"] >= reads["limit_s"] for each in reads["behind"]):
                await self._read_finally(servers, recorder)
                await self._mark_stuck_readers(around.readers, written, reads)
            around.readers.let_go()

    async def _work(self, around: ScenarioEnvironment) -> None:
        """Run the workload. When it ends, even by an error, mark the load as over for the phases that wait for this."""
        try:
            await self.plan.workload.run(around)
        finally:
            around.readers.load_over()
            self.info["counters"] = counts_of(around.counters)

    async def _load(self, around: ScenarioEnvironment, nemesis: Nemesis) -> None:
        """Run the warm-up without faults, then the load with faults, until every operation has its outcome."""
        async with self._phase("warm-up", self.plan.warmup_s):
            await trio.sleep(self.plan.warmup_s)
        async with self._phase("load with faults" if nemesis.played else "load", self.plan.time_s):
            async with trio.open_nursery() as beside:
                played = trio.Event()
                beside.start_soon(self._write_beside, around, played)
                with trio.CancelScope() as faults:
                    async with trio.open_nursery() as load:
                        load.start_soon(_play, nemesis, played)
                        await trio.sleep(self.plan.time_s)
                        # A fault that takes much longer than planned to end must not keep the run for ever.
                        faults.deadline = trio.current_time() + self.plan.limits.converge_s
                await self._outlast_faults(around, nemesis)
                beside.cancel_scope.cancel()
        async with self._phase("settle"):
            around.stop.set()
            await around.readers.settled.wait()
        self.info["counters"] = counts_of(around.counters)

    async def _outlast_faults(self, around: ScenarioEnvironment, nemesis: Nemesis) -> None:
        """Extend the load until every partition has acknowledged a record after the faults, or a time limit is over."""
        ended = [p.ended for p in nemesis.played if p.began is not None and p.ended is not None]
        if self.plan.operations is not None or not ended:
            return
        parts = [around.recorder.partitions[place] for place in self.plan.workload.places()]
        limit_s = self.plan.limits.stuck_s * (1 + 2 * UNSERVED if _is_driven(around) else 1)
        last_ack, healed = around.counters.last_ack, max(ended) / 1e9
        self.info["load_outlasted"] = await outlast(self._env, last_ack, parts, healed, limit_s)

    async def _write_beside(self, around: ScenarioEnvironment, played: trio.Event) -> None:
        """Once the faults are over (`played`), write with Squall's client to partitions in which a foreign client
        library gets no acknowledgements. This shows whether the library or the cluster is stuck.
        """
        # While a fault is active, silence of the load's clients blames neither them nor the brokers.
        await played.wait()
        if _is_driven(around):
            env, last_ack = self.env("writes beside the load"), around.counters.last_ack
            parts = {place: around.recorder.partitions[place] for place in self.plan.workload.places()}
            servers, limit_s = addresses(self.runtime.bootstrap(ZONE)), self.plan.limits.stuck_s * UNSERVED
            write = partial(write_afterwards, env, servers, recorder=around.recorder, limit_s=limit_s, zone=ZONE)
            await write_beside(env, last_ack, parts, limit_s, write)

    async def _converge(self, observer: ClusterObserver) -> None:
        async with self._phase("converge"):
            limit_s = self.plan.limits.converge_s
            self.info["converged"] = await observer.converged(self.plan.workload.topic_names(), limit_s)
            if self._invariants is not None and not self.info["converged"]["ok"]:
                self.info["converged"]["stuck"] = self._invariants.stuck()

    def _environment(self, recorder: Recorder, counters: LoadCounters, zones: list[ClientZone]) -> ScenarioEnvironment:
        """Return the workload's clock, zones, recorder, controls and operations (timed from the warm-up's start)."""
        traffic = self.plan.workload.traffic()
        return ScenarioEnvironment(
            env=self.env("workload"),
            zones=zones,
            recorder=recorder,
            counters=counters,
            stop=trio.Event(),
            controls=traffic.controls(),
            envs=self.env,
            acknowledged=self._invariants.acknowledged if self._invariants else None,
            operations=with_warm_up_times(self.plan),
            readers=LiveReaders(stay=True),
        )

    def _say_landed(self, nemesis: Nemesis) -> None:
        self.info["faults"] = {"planned": len(nemesis.played), "landed": sum(p.landed for p in nemesis.played)}
        self._save()

    async def _write_afterwards(
        self, observer: ClusterObserver, servers: list[tuple[str, int]], recorder: Recorder
    ) -> PostHealWrites:
        """Write to every partition after healing, even to those that faults created. Record the outcome in run.json."""
        limit_s, began = self.plan.limits.stuck_s, trio.current_time()
        places = sorted(recorder.partitions)
        written = await write_afterwards(self.env("afterwards"), servers, places, recorder, limit_s, ZONE)
        took_s = round(trio.current_time() - began, 3)
        lacking = {f"{topic}-{index}": why for (topic, index), why in written.lacking.items()}
        if lacking:
            view = await _seen_by(observer)
            lacking = {name: f"{why}; {leader_and_isr(view, name)}" for name, why in lacking.items()}
        outcome = {"ok": not lacking, "limit_s": limit_s, "took_s": took_s, "lacking": lacking}
        self.info["writes_after_healing"] = outcome
        return written

    async def _read_afterwards(
        self, observer: ClusterObserver, readers: LiveReaders, written: PostHealWrites
    ) -> dict[str, Any]:
        """Check that the workload's readers poll what was written after healing. Return run.json's entry on this."""
        limits, began = self.plan.limits, trio.current_time()
        goals = {place: offset + 1 for place, offset in written.offsets.items()}
        limit_s = max(limits.final_read_s, limits.stuck_s + READ_MARGIN_S)
        behind = await readers.reach(self.env("reads afterwards"), goals, limits.stuck_s, limit_s)
        behind = await with_records_left(observer.client, behind)
        took_s = round(trio.current_time() - began, 3)
        view = await _seen_by(observer) if behind else None
        return {
            "ok": not behind,
            "readers": len(readers),
            "partitions": len(goals),
            "limit_s": limits.stuck_s,
            "took_s": took_s,
            "behind": [reader_as_json(each, view) for each in behind],
        }

    async def _mark_stuck_readers(self, readers: LiveReaders, written: PostHealWrites, reads: dict[str, Any]) -> None:
        """Set `outlasted` of each reader in `reads["behind"]`: True if it is still stuck after new readers read all."""
        goals = {place: offset + 1 for place, offset in written.offsets.items()}
        behind = await readers.reach(self.env("reads beside the load"), goals, STILL_STUCK_S, STILL_STUCK_S)
        still = {(each.process, name_of(each.place)) for each in behind if each.idle_s >= STILL_STUCK_S}
        for each in reads["behind"]:
            each["outlasted"] = (each["process"], each["place"]) in still

    async def _read_finally(self, servers: list[tuple[str, int]], recorder: Recorder) -> None:
        async with self._phase("final reads"):
            self.info["final_reads"] = await self._final_reads(self._env, servers, recorder)

    async def _final_reads(self, env: Env, servers: list[tuple[str, int]], recorder: Recorder) -> Any:
        counters = LoadCounters()
        self.progress.status.final = counters
        limits = self.plan.limits
        limit_s = max(limits.final_read_s, limits.stuck_s + READ_MARGIN_S)
        reads = await self.plan.workload.final_reads(env, servers, recorder, counters, limit_s, ZONE)
        return [_read_as_json(read) for read in reads]


def _ends(p: FaultExecution, gone: NodeExit) -> bool:
    """Return whether fault `p` may shut down a broker, and was active on the node when it exited (`gone`)."""
    hit = FaultTrait.STOPS_BROKER in p.fault.traits and gone.node in p.resolved
    return hit and p.began is not None and p.began <= gone.t_ns and (p.ended is None or gone.t_ns <= p.ended)


def _read_as_json(read: FinalReadResult) -> dict[str, Any]:
    missing = {f"{topic}-{index}": m.why for (topic, index), m in read.missing.items()}
    entry = {"process": read.process, "round": read.round, "isolation": read.isolation, "records": read.records}
    waiting = [f"{topic}-{index}" for topic, index in read.waiting]
    return {**entry, "missing": missing, "waiting": waiting, "idle_s": round(read.idle_s, 3)}


async def _seen_by(observer: ClusterObserver) -> ClusterSnapshot | None:
    """Return the leaders and ISRs as a broker reports them. None if no broker reports them within ASK_LIMIT_S."""
    with trio.move_on_after(ASK_LIMIT_S):
        return await observer.view()
    return None


async def _play(nemesis: Nemesis, played: trio.Event) -> None:
    await nemesis.play()
    played.set()


def _is_driven(around: ScenarioEnvironment) -> bool:
    """Return whether the load uses clients that are not Squall's."""
    return any(zone.driver is not None for zone in around.zones)


def _is_interrupt(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_interrupt(e) for e in error.exceptions)
    return isinstance(error, (KeyboardInterrupt, trio.Cancelled))
