"""Runs one process of an application's instance: it reads as a group member, and writes an output for each input.

An instance runs one process after another. Each is a process of the history (Jepsen's logical process), with an id of
its own. Subclasses decide when and how a process commits its positions, and thereby whether an input is lost or doubled
if the process crashes in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from squall.broker.env import Env
from squall.workloads import payload
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import VERSION
from squall.workloads.client.groups.offsets import CommitIdentity
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.client.settings import ProducerSettings
from squall.workloads.group_progress import GroupProgress
from squall.workloads.pipeline.clients import ClientDependencies, LibraryClients, OwnClients, ProcessClients
from squall.workloads.pipeline.steps import HALT, POLLED, InstanceAction
from squall.workloads.scenario import ScenarioEnvironment
from squall.workloads.subscriber import SubscriberSettings, about_member

KEYS = 64
LAST_WORD_S = 0.0005
"""Gives the seconds that a crashing process still has to finish a request of which it has sent a part."""


class ProcessCrashed(Exception):
    """Says that the process crashes now, because a planned action (`crash STEP`) demands it."""


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """Holds the settings of an application's instances: membership, producer, outputs and transactions."""

    subscriber: SubscriberSettings
    producer: ProducerSettings
    outputs: Sequence[Place]
    """Lists the output partitions. The output for an input of partition n goes to the n-th of them."""
    transaction_timeout_ms: int
    generation: int
    """Gives the newest transaction protocol that the instances speak: 1 (V1) or 2 (V2, KIP-890)."""
    record_bytes: int


class InstanceProcess(ABC):
    """Runs one process of an application's instance. The attribute `commits` says when the process commits its
    positions: `before` or `after` it writes the outputs, or in a `transaction` with them.
    """

    commits: str

    def __init__(
        self,
        env: Env,
        around: ScenarioEnvironment,
        settings: InstanceSettings,
        number: int,
        progress: GroupProgress,
        *,
        zombie: bool,
        **about: object,
    ) -> None:
        """Add the process to the history and prepare its clients. `number` is the instance's number in its application.
        `about` holds further settings for the history. If `zombie`, the process will pause inside a transaction while a
        successor takes over its transactional id.
        """
        self._env, self._settings = env, settings
        self._recorder, self._counters, self._acknowledged = around.recorder, around.counters, around.acknowledged
        zone, client_settings = around.zone(number), settings.subscriber.client
        told = {
            **asdict(settings.producer),
            **about_member(settings.subscriber),
            "request_timeout_ms": client_settings.request_timeout_ms,
            "commits": self.commits,
            "member": number,
            **about,
            **({"zombie": True} if zombie else {}),
        }
        self._progress = progress
        driver = zone.driver
        of_client = {} if driver is None else {"client": driver.client}
        version, about_driver = (VERSION, {}) if driver is None else (driver.version, driver.about())
        self.process = self._recorder.process(
            "producer", version, {**told, **about_driver}, zone=zone.name, **of_client
        )
        tools = ClientDependencies(
            env,
            zone,
            self._recorder,
            self._counters,
            settings.subscriber,
            settings.producer,
            sorted({topic for topic, _ in settings.outputs}),
            settings.transaction_timeout_ms,
            settings.generation,
            progress.moved,
        )
        self._clients: ProcessClients = (
            OwnClients(tools, self.process) if driver is None else LibraryClients(tools, driver, self.process)
        )
        self.subscriber = self._clients.subscriber
        progress.begins(self.process)
        self._sequence = 0
        self.open = 0
        """Counts the outputs without an outcome yet."""
        self.committed = 0
        """Counts the polls that are completely processed, with their positions committed."""
        self.ended = 0
        """Counts the transactions that were committed or aborted as requested."""
        self.crashed = self.over = self._finished = False

    @property
    def is_over(self) -> bool:
        """Is True if the process must end: its membership has ended for good, its producer accepts no more records, one
        of its transactions did not end as requested, or one of its commit requests was not answered.
        """
        return self._finished or bool(self.subscriber.out)

    async def run(self, live: Callable[[], Awaitable[None]]) -> None:
        """Start the process's clients, run `live`, which polls and writes with them, and then stop them."""
        await self._clients.run(live)

    async def begin(self) -> bool:
        """Prepare the process for its first poll; in transactional processes, initialise the transactional id. Return
        False if that failed: the process must end.
        """
        return True

    async def transform(self, due: InstanceAction | None) -> bool:
        """Poll once and process the records. `due` is the action to do meanwhile, None for none. Return False if there
        was nothing to process: the action was not done then. Raise ProcessCrashed if the action is a crash.
        """
        inputs, at, who = await self._clients.poll()
        if not at or who.generation < 0:
            return False
        self._crash_if_due(due, POLLED)
        await self._process_inputs(inputs, at, who, due)
        return True

    @abstractmethod
    async def _process_inputs(
        self,
        inputs: Sequence[tuple[Place, int]],
        at: Mapping[Place, int],
        who: CommitIdentity,
        due: InstanceAction | None,
    ) -> None:
        """Write an output for each input, and commit `at`, the position after the inputs of each partition, as the
        member `who`. `due` is the action to do meanwhile, for example a crash after one of these steps; None for none.
        """

    # ---------------------------------------------------------------------------------------------------- parts

    def _inputs_done(self, at: Mapping[Place, int]) -> None:
        """Count a poll as completely processed, and report the positions after it as progress of the group."""
        self.committed += 1
        self._progress.moved(at)

    def _crash_if_due(self, due: InstanceAction | None, step: str) -> None:
        if is_crash(due, step):
            raise ProcessCrashed

    async def _halts(self, due: InstanceAction | None) -> None:
        """Pause the process, heartbeats included, if the planned action `due` is a halt. The pause comes after the
        outputs were written.
        """
        if due is not None and due.do == HALT:
            self.subscriber.record_pause(HALT, due.number)
            self.subscriber.halt(still=True)
            await self._env.sleep(due.number / 1000)
            self.subscriber.halt(still=False)

    def _output(self, place: Place) -> Place:
        """Return the output partition for the inputs of a partition: the one with the same index."""
        return self._settings.outputs[place[1] % len(self._settings.outputs)]

    def _send(self, place: Place, source: int, outcomes: list[OperationStatus], txn: int = -1) -> None:
        part, sequence = self._recorder.partitions[place], self._sequence
        self._sequence += 1
        key = f"{self.process}-{sequence % KEYS}"
        encoded, value = key.encode(), payload.value_of(self.process, sequence)
        size, sent_ms = self._settings.record_bytes, self._env.wall_ms()
        content, digest = payload.make(value, encoded, (), size, sent_ms)
        op = self._recorder.invoke_send(self.process, part, value, key, digest, size, txn=txn, source=source)
        self._counters.sent += 1
        self.open += 1
        ended = partial(self._ended, outcomes, op, part, value, self._env.mono())
        self._clients.send(place, encoded, content, sent_ms, ended)

    def _ended(
        self, outcomes: list[OperationStatus], op: int, part: int, value: int, handed_over: float, outcome: Outcome
    ) -> None:
        if self.over or self.crashed:
            return  # the process has ended: its open records stay without an outcome
        outcomes.append(outcome.status)
        self.open -= 1
        if outcome.status is OperationStatus.OK:
            self._recorder.send_ok(op, outcome.offset, outcome.timestamp_ms, outcome.tries)
            self._counters.acknowledge(part, handed_over, self._env.mono())
            if self._acknowledged is not None:
                self._acknowledged(*self._recorder.place(part), outcome.offset, value)
            return
        self._recorder.send_not_ok(op, outcome.status, outcome.error)
        if outcome.status is OperationStatus.INFO:
            self._counters.info += 1
        else:
            self._counters.failed += 1


def is_crash(due: InstanceAction | None, step: str) -> bool:
    """Return whether the planned action `due` is a crash after this step."""
    return due is not None and due.do == f"crash {step}"
