"""A program that is a member of a group: what its reports mean, and in which order those of several members count."""

from __future__ import annotations

import json
import re
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from squall.chaos.drivers.program import ProgramDriver, ProgramProtocolError
from squall.chaos.drivers.program_member import ProgramMember, ReportSequencer
from squall.workloads import payload
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.membership import MemberSettings
from squall.workloads.client.groups.offsets import CommitOutcome
from squall.workloads.client.outcomes import OperationStatus, Outcome
from squall.workloads.command import CommandLoad
from squall.workloads.command.scenario import OUTPUT, TOPIC
from squall.workloads.group_notes import MemberIdentity
from squall.workloads.libraries import (
    AssignmentReceived,
    LibraryMemberEvent,
    MemberConfig,
    MemberIdentified,
    OffsetCommitBegan,
    OffsetCommitEnded,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    PolledRecords,
    ProgramOutput,
)

TASK = MemberConfig(MemberSettings("g", (TOPIC,)), 1)
SPEAKS = """
import json, sys
def say(type, **more): print(json.dumps({"type": type, **more}), flush=True)
lines = (json.loads(line) for line in sys.stdin)
init = next(lines)
say("ready")
"""
KEY = "k"
PAGE = (Path(__file__).parents[3] / "docs/workloads/command.md").read_text()
VALUE = b64encode(payload.make(7, KEY.encode())[0]).decode()
RECORD = {"partition": 1, "offset": 5, "key": KEY, "value": VALUE}


class Heard:
    """Collects the reports of a member, and the outputs that it was asked to write."""

    process = 3

    def __init__(self, name: str = "", log: list[tuple[str, LibraryMemberEvent]] | None = None) -> None:
        self.name, self.log = name, [] if log is None else log
        self.outcomes: list[Outcome] = []
        self.sources: list[tuple[Place, int]] = []

    @property
    def said(self) -> list[LibraryMemberEvent]:
        return [each for _, each in self.log]

    def heard(self, said: LibraryMemberEvent) -> None:
        self.log.append((self.name, said))

    def offsets_to_commit(self, who: MemberIdentity, at: Any) -> Any:
        raise AssertionError

    def commit_ended(self, end: CommitOutcome) -> None:
        raise AssertionError

    def has(self, place: Place) -> bool:
        return place[1] < 4

    def output(self, place: Place, source: int) -> ProgramOutput | None:
        self.sources.append((place, source))
        return ProgramOutput("key", b"value", self.outcomes.append) if self.has(place) else None


def script(*reports: dict[str, Any], then: str = "") -> str:
    """Return a program that prints these reports."""
    return SPEAKS + "".join(f"say(**json.loads({json.dumps(each)!r}))\n" for each in reports) + then


async def heard(tmp_path: Path, program: str, until: Callable[[Heard], bool] = lambda _: False) -> Heard:
    """Return what a process of this program reports until it ends, or until that is true."""
    (tmp_path / "program.py").write_text(program)
    needs = CommandLoad(command=f"{sys.executable} -I -S program.py", directory=str(tmp_path), role="member").needs()
    driver, found = ProgramDriver("host:1", needs, [TOPIC, OUTPUT], tmp_path / "clients.log"), Heard()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            member = await driver.member(nursery, TASK, found, lambda: None)
            while not member.ended and not until(found):
                await member.poll()
            member.kill()
    return found


async def trouble(tmp_path: Path, *reports: dict[str, Any]) -> str:
    """Return the harness's complaint about a program that prints these reports."""
    with pytest.raises(ExceptionGroup) as found:
        await heard(tmp_path, script(*reports, then="next(lines)\n"))
    error: BaseException = found.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, ProgramProtocolError)
    return str(error)


async def test_a_member_is_asked_for_its_group_by_kafkas_names(tmp_path: Path) -> None:
    await heard(tmp_path, SPEAKS + "json.dump(init, open('init', 'w'))\n")
    init = json.loads((tmp_path / "init").read_text())
    assert (init["role"], init["topics"]) == ("member", [TOPIC, OUTPUT])
    asked = {"group.id": "g", "enable.auto.commit": "false", "auto.offset.reset": "earliest"}
    assert asked.items() <= init["config"].items()
    assert init["config"]["isolation.level"] == "read_committed"


async def test_the_example_of_the_page_is_recorded_in_its_order(tmp_path: Path) -> None:
    (example,) = re.findall(r"test_program_members.py -->\n```text\n(.*?)```", PAGE, re.S)
    reports = [json.loads(each) for each in example.splitlines()]
    found = await heard(tmp_path, script(*reports))
    who, place = MemberIdentity("my-1", 3), (TOPIC, 1)
    joined, began, read, commit, committed, revoked = found.said
    assert (joined, began) == (AssignmentReceived(who, [place]), PartitionsAssigned(who, {place: 5}, []))
    assert isinstance(read, PolledRecords)
    assert (dict(read.at), [(part.records, part.position) for part in read.parts]) == ({place: 5}, [([(5, 7)], 6)])
    assert (commit, committed) == (OffsetCommitBegan(who, 0, {place: 6}), OffsetCommitEnded(0, ""))
    assert revoked == PartitionsRevoked(who, {place: 6})


async def test_where_it_begins_need_not_be_said_and_nothing_is_guessed_of_a_generation(tmp_path: Path) -> None:
    found = await heard(
        tmp_path,
        script(
            {"type": "assigned", "assigned": [{"partition": 1}, {"partition": 2}]},
            {"type": "processed", "records": [RECORD]},
            {"type": "lost", "partitions": [1, 2]},
        ),
    )
    known, began, _, lost = found.said
    assert known == MemberIdentified(MemberIdentity())
    assert began == PartitionsAssigned(MemberIdentity(), {(TOPIC, 1): 5}, [])
    assert lost == PartitionsLost(MemberIdentity(), {(TOPIC, 1): 6}), "of the other one nothing was processed"


async def test_what_it_processes_after_it_gave_a_partition_up_is_recorded(tmp_path: Path) -> None:
    found = await heard(
        tmp_path,
        script(
            {"type": "assigned", "assigned": [{"partition": 1, "offset": 0}]},
            {"type": "revoked", "partitions": [1]},
            {"type": "processed", "records": [RECORD]},
        ),
    )
    assert [type(each) for each in found.said] == [
        MemberIdentified,
        PartitionsAssigned,
        PartitionsRevoked,
        PolledRecords,
    ]


async def test_an_assignment_of_no_partition_is_membership(tmp_path: Path) -> None:
    found = await heard(tmp_path, script({"type": "assigned", "member": "my-1", "assigned": []}))
    assert found.said == [MemberIdentified(MemberIdentity("my-1"))]


async def test_what_a_killed_process_had_written_counts(tmp_path: Path) -> None:
    """But for its last line, which is not whole. Nothing is read between its writing and the kill."""
    then = f"""
import os, time
while not os.path.exists("go"):
    time.sleep(0.01)
for number in range(100):
    say("processed", records=[{{**{RECORD!r}, "offset": number}}])
print("x", end="", flush=True)
open("written", "w").close()
next(lines)
"""

    def has_written(one: Heard) -> bool:
        """The event loop is blocked meanwhile."""
        if not one.said:
            return False
        (tmp_path / "go").touch()
        deadline = time.monotonic() + 30
        while not (tmp_path / "written").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return True

    program = script({"type": "assigned", "assigned": [{"partition": 1, "offset": 0}]}, then=then)
    found = await heard(tmp_path, program, until=has_written)
    assert len([each for each in found.said if isinstance(each, PolledRecords)]) == 100


async def test_squall_says_what_an_output_is_and_records_whose_it_is(tmp_path: Path) -> None:
    then = """
asked = next(lines)
say("ok", id=asked["id"], partition=asked["partition"], offset=9)
say("output", id=5, partition=2, source=json.loads(RECORD))
next(lines)
""".replace("RECORD", repr(json.dumps(RECORD)))
    found = await heard(tmp_path, script({"type": "output", "id": 4, "partition": 2, "source": RECORD}, then=then))
    assert found.sources == [((OUTPUT, 2), 7)] * 2
    assert [each.status for each in found.outcomes] == [OperationStatus.OK, OperationStatus.INFO], (
        "it ended before it answered"
    )


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ({"type": "polled"}, "expected ready, assigned, revoked"),
        ({"type": "revoked", "partitions": [9]}, "names partition 9, which the topic command-0 does not have"),
        ({"type": "committed", "id": 3}, "commit 3, which it has not begun"),
        ({"type": "ok", "id": 3, "partition": 0, "offset": 1}, "record 3, which it was not asked to send"),
        ({"type": "assigned", "member": "m"}, "missing required field `assigned`, a list of {partition, offset} ("),
        ({"type": "assigned", "assigned": [{"partition": -1}]}, "expected a whole number from 0"),
        (
            {"type": "output", "id": 1, "partition": 0, "source": {**RECORD, "key": "other"}},
            "makes an output of no record that Squall sent (partition 1, offset 5",
        ),
        ({"type": "output", "id": 1, "partition": 9, "source": RECORD}, "this run has no partition 9 for it"),
    ],
)
async def test_a_report_that_is_not_of_the_protocol_ends_the_run(
    tmp_path: Path, report: dict[str, Any], why: str
) -> None:
    assert why in await trouble(tmp_path, report)


class Pipe:
    """A process whose output is what was put into it."""

    FAILED, log = "", Path()

    def __init__(self, written: Callable[[], list[dict[str, Any]]]) -> None:
        self._written = written

    def drain(self) -> list[list[Any]] | None:
        from squall.chaos.drivers.member_lines import MemberLineProtocol

        return [["m", MemberLineProtocol.decoder.decode(json.dumps(each))] for each in self._written()]


def _order(*pipes: Callable[[], list[dict[str, Any]]]) -> list[tuple[str, type]]:
    """Return which member each report is of, and its type, in order, if the pipes hold these reports when they are
    emptied.
    """
    reports, log = ReportSequencer(), list[tuple[str, LibraryMemberEvent]]()
    for name, written in zip("ab", pipes, strict=True):
        process: Any = Pipe(written)
        reports.add(ProgramMember(process, Heard(name, log), [TOPIC], reports, lambda: None))
    reports.hear()
    return [(name, type(said)) for name, said in log]


def _once(*reports: dict[str, Any]) -> Callable[[], list[dict[str, Any]]]:
    left = list(reports)

    def written() -> list[dict[str, Any]]:
        found, left[:] = left[:], []
        return found

    return written


GIVEN = {"type": "assigned", "assigned": [{"partition": 1, "offset": 5}]}
GONE = {"type": "revoked", "partitions": [1]}
DONE = {"type": "processed", "records": [RECORD]}


def test_an_assignment_counts_after_what_others_had_written_before_it() -> None:
    assert _order(_once(GIVEN), _once(DONE)) == [
        ("b", PolledRecords),
        ("a", MemberIdentified),
        ("a", PartitionsAssigned),
    ]


def test_what_came_into_a_pipe_that_had_been_emptied_before_counts_first() -> None:
    """The first pipe is emptied while the owner still works; then that one reports, and the other one begins."""
    written = iter([[], [DONE], []])
    assert _order(lambda: next(written), _once(GIVEN)) == [
        ("a", PolledRecords),
        ("b", MemberIdentified),
        ("b", PartitionsAssigned),
    ]


def test_of_two_assignments_the_older_generation_is_first() -> None:
    first, second = {**GIVEN, "generation": 1}, {**GIVEN, "generation": 2}
    order = _order(_once(second), _once(first, DONE, GONE))
    assert [name for name, _ in order] == ["b"] * 4 + ["a"] * 2
