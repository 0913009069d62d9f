"""`command` with --role member: what is recorded of a program, judged by the checks, and what its settings mean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from squall.broker.real_env import RealEnv
from squall.checkers.anomalies.registry import find_all
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import INFO, OK, History
from squall.workloads import payload
from squall.workloads.client.cluster import Place
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.command import CommandLoad
from squall.workloads.command.member import ProgramSubscriber
from squall.workloads.command.scenario import OUTPUT, TOPIC
from squall.workloads.counters import LoadCounters
from squall.workloads.group_notes import MemberIdentity
from squall.workloads.libraries import (
    ClientZone,
    LibraryMemberEvent,
    OffsetCommitBegan,
    OffsetCommitEnded,
    PartitionsAssigned,
    PartitionsRevoked,
    PolledPartition,
    PolledRecords,
)
from squall.workloads.recorder import PartitionPoll, ReadOutcome, Recorder

WHO, PLACE, OUT = MemberIdentity("m"), (TOPIC, 0), (OUTPUT, 0)


class Process:
    """The program's own, which is nowhere."""

    ended = False

    def kill(self) -> None:
        self.ended = True


class Run:
    """A history, as members of this load write it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.scenario, self.path = (
            CommandLoad(**{"role": "member", "partitions": 1, **settings}),
            folder / "history.jsonl",
        )
        self.env, self.counters = RealEnv("harness"), LoadCounters()
        self.recorder = Recorder(self.env, str(self.path), "run-1")
        for topic, index in self.scenario.places():
            self.recorder.partition(topic, index)
        self.producer = self.recorder.process("producer", "1", {"acks": -1})
        self.moved: dict[Place, int] = {}
        for offset in range(3):
            value = payload.value_of(self.producer, offset)
            op = self.recorder.invoke_send(self.producer, 0, value, "k", 0, 64)
            self.recorder.send_ok(op, offset, 0)

    def member(self) -> ProgramSubscriber:
        driver: Any = type("Driver", (), {"client": "program", "version": "./my-service"})
        settings, writes = self.scenario.subscriber_settings(), self.scenario.outputs != "none"
        zone = ClientZone("", [], driver)
        of = (self.env, zone, driver, self.recorder, self.counters, settings, self.moved.update)
        made = ProgramSubscriber(*of, outputs=[OUT] if writes else [], commits="after", record_bytes=64)
        made.declare("reader", {"member": 0})
        made._grouped = Process()  # type: ignore[assignment]  # its process was started
        return made

    def read(self, offset: int) -> PolledRecords:
        """It has processed this record."""
        part = PolledPartition(PLACE, offset + 1, [(offset, payload.value_of(self.producer, offset))], [])
        return PolledRecords(self.recorder.now_ns(), {PLACE: offset}, [part])

    def history(self, *outputs: tuple[int, int]) -> History:
        """Final readers get all three inputs, and (offset, value) of outputs."""
        inputs = [(offset, payload.value_of(self.producer, offset)) for offset in range(3)]
        for isolation in (0, 1):
            final = self.recorder.process("final", "1", {"isolation": isolation, "round": 1})
            for part, records in ((0, inputs), *([(1, list(outputs))] if outputs else [])):
                got = PartitionPoll(part, len(records), len(records), len(records), 0, records)
                outcome = ReadOutcome(got=[got], end={part: len(records)})
                self.recorder.read(final, "final_read", self.recorder.now_ns(), {part: 0}, outcome)
        self.recorder.close()
        with self.path.open("rb") as lines:
            found = parse(lines)
        assert found.problem is None, found.problem
        return found


def play(member: ProgramSubscriber, *said: LibraryMemberEvent) -> None:
    """It says this."""
    for each in said:
        member.heard(each)


def began(offset: int) -> PartitionsAssigned:
    return PartitionsAssigned(WHO, {PLACE: offset}, [PLACE] if not offset else [])


def names(history: History) -> set[str]:
    return {witness.anomaly for witness in find_all(history)}


@pytest.mark.parametrize(("committed", "found"), [(1, set()), (2, {"commit-ahead"})])
def test_a_member_that_committed_what_it_had_not_processed_when_it_was_killed_is_found(
    tmp_path: Path, committed: int, found: set[str]
) -> None:
    run = Run(tmp_path)
    first, second = run.member(), run.member()
    play(first, began(0), run.read(0), OffsetCommitBegan(WHO, 0, {PLACE: committed}), OffsetCommitEnded(0, ""))
    first.crashed()
    play(second, began(committed), *(run.read(offset) for offset in range(committed, 3)))
    second.crashed()
    assert names(run.history()) == found
    assert run.moved == {PLACE: 3}


@pytest.mark.parametrize(("late", "found"), [(False, set()), (True, {"revoked-read"})])
def test_a_member_that_goes_on_with_what_it_gave_up_is_found(tmp_path: Path, late: bool, found: set[str]) -> None:
    run = Run(tmp_path)
    member, gave = run.member(), PartitionsRevoked(WHO, {PLACE: 1})
    last = (gave, run.read(1)) if late else (run.read(1), gave)
    play(member, began(0), run.read(0), *last)
    assert names(run.history()) == found


def test_a_commit_that_was_refused_or_never_answered_is_in_doubt(tmp_path: Path) -> None:
    run = Run(tmp_path)
    member = run.member()
    play(member, began(0), run.read(0))
    play(member, OffsetCommitBegan(WHO, 0, {PLACE: 1}), OffsetCommitEnded(0, ""))
    play(member, OffsetCommitBegan(WHO, 1, {PLACE: 1}), OffsetCommitEnded(1, "REBALANCE_IN_PROGRESS"))
    play(member, OffsetCommitBegan(WHO, 2, {PLACE: 1}))
    member.crashed()
    assert [commit.st for commit in run.history().commits.rows()] == [OK, INFO, INFO]


def test_outputs_are_sends_that_name_their_input(tmp_path: Path) -> None:
    """Two of one input: of an application that commits after it writes, that is found and permitted."""
    run = Run(tmp_path, outputs="at-least-once", partitions=1)
    member, written = run.member(), []
    source = payload.value_of(run.producer, 0)
    play(member, began(0), run.read(0))
    for offset in range(2):
        made = member.output(OUT, source)
        assert made is not None
        value, why = payload.verify(made.value, made.key.encode())
        assert not why
        written.append((offset, value))
        made.on_outcome(Outcome(OperationStatus.OK, offset, 0, ""))
    lost = member.output(OUT, source)
    assert lost is not None
    lost.on_outcome(Outcome(OperationStatus.INFO, -1, -1, "CLIENT_ENDED"))
    assert member.output((OUTPUT, 9), source) is None
    assert (run.counters.acked, run.counters.info) == (2, 1)
    history = run.history(*written)
    assert names(history) == {"eos-duplicate"}
    assert [process.settings["commits"] for process in history.processes if "commits" in process.settings] == ["after"]


SETTINGS: list[tuple[Mapping[str, Any], list[str], tuple[str, ...], int]] = [
    ({"role": "producer"}, [TOPIC], (), 1),
    ({"role": "member", "members": 3}, [TOPIC], ("reader:0", "reader:1", "reader:2"), 4),
    ({"role": "member", "outputs": "exactly-once"}, [TOPIC, OUTPUT], ("reader:0", "reader:1"), 3),
]


@pytest.mark.parametrize(("settings", "topics", "members", "readers"), SETTINGS)
def test_members_come_before_readers_and_outputs_have_a_topic(
    settings: dict[str, Any], topics: list[str], members: tuple[str, ...], readers: int
) -> None:
    scenario = CommandLoad(**settings)
    traffic = scenario.traffic()
    assert (scenario.topic_names(), traffic.members, traffic.readers) == (topics, members, readers)
    assert {topic for topic, _ in scenario.inputs()} == {TOPIC}
    assert bool(scenario.meant_for()) == bool(members), "a member that says nothing leaves the verdict unknown"
    assert bool(scenario.suited_brokers(settings)) == bool(members)


def test_only_members_have_outputs() -> None:
    with pytest.raises(ValidationError, match="outputs at-least-once: of --role member only"):
        CommandLoad(outputs="at-least-once")
