"""Checks what a driver's process that is a member of a group reports, and in which order."""

from __future__ import annotations

import queue
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from squall.chaos.drivers.library import FAIL, INFO, OK, DriverConfig, Place, ReadRecord
from squall.chaos.drivers.members.contract import CommitResult, MemberGeneration, RebalanceListener
from squall.chaos.drivers.members.member import CHANGED, OTHER_MEMBER, MemberWorker
from squall.chaos.drivers.members.with_confluent import member_generation_of

PLACE, OTHER = ("t", 0), ("t", 1)


class Scripted:
    """A library whose next poll does what a test says."""

    stable, version = True, "1"

    def __init__(self) -> None:
        self.now, self.next, self.committed = MemberGeneration("m", 1), [lambda: ()], dict[Place, int]()
        self.during_commit = lambda: None

    def member(self, config: DriverConfig, listener: RebalanceListener) -> Any:
        self.listener = listener
        return self

    def member_generation(self) -> MemberGeneration:
        return self.now

    def poll(self, within_s: float) -> Sequence[ReadRecord]:
        return self.next.pop(0)()

    def committed_offsets(self, places: Sequence[Place]) -> Mapping[Place, int]:
        return dict.fromkeys(places, 5)

    def start_reading(self, at: Mapping[Place, int]) -> Collection[Place]:
        return list(at)

    def stop_reading(self, places: Collection[Place]) -> None:
        """Nothing to be held."""

    def commit(self, offsets: Mapping[Place, int]) -> CommitResult:
        self.during_commit()
        self.committed |= offsets
        return CommitResult(OK)


class Said(list[tuple[Any, ...]]):
    def send(self, *message: Any) -> None:
        self.append(message)

    def names(self) -> list[str]:
        return [each[0] for each in self]


def member_of(library: Scripted) -> tuple[MemberWorker, Said, queue.SimpleQueue[list[Any]]]:
    """Return a member that owns PLACE and has begun to read it at its committed offset; the list of its reports; and
    the queue of answers to it.
    """
    said, answers = Said(), queue.SimpleQueue[list[Any]]()
    member = MemberWorker(library, DriverConfig("scripted", "member", ""), said, answers)  # type: ignore[arg-type]
    library.next = [lambda: library.listener.on_assigned([PLACE], [PLACE]) or ()]
    member.poll()
    library.next = [lambda: ()]
    member.poll()
    assert said.names()[:5] == ["joined", "p", "stood", "began", "r"]
    said.clear()
    return member, said, answers


def record(offset: int) -> ReadRecord:
    return ReadRecord(PLACE, offset, None, b"", ())


def test_what_a_poll_brought_is_told_before_its_partition_is_given_up() -> None:
    library = Scripted()
    member, said, answers = member_of(library)
    answers.put(["now", [["t", 0, 6]]])

    def poll() -> tuple[ReadRecord, ...]:
        library.listener.report_records([record(5)])
        library.listener.on_revoked([PLACE], library.commit(library.listener.offsets_to_commit([PLACE])))
        return ()

    library.next = [poll]
    member.poll()
    assert said.names() == ["r", "giving", "kept", "gave", "p"]
    assert said[1][1:] == ("m", 1, [["t", 0, 6]])
    assert said[3][1:] == ("m", 1, [["t", 0, 6]])
    assert library.committed == {PLACE: 6}


def test_a_commit_of_another_generation_is_not_sent() -> None:
    library = Scripted()
    member, said, _ = member_of(library)
    library.now = MemberGeneration("m", 2)
    member.commit("m", 1, [["t", 0, 6]])
    assert said == [("kept", 0, FAIL, OTHER_MEMBER, [])]
    assert not library.committed


def test_a_commit_during_which_the_generation_changed_is_in_doubt() -> None:
    """It may have been sent as a member of either: it proves of neither that it was one."""
    library = Scripted()
    member, said, _ = member_of(library)
    library.during_commit = lambda: setattr(library, "now", MemberGeneration("m", 2))
    member.commit("m", 1, [["t", 0, 6]])
    assert said == [("kept", 0, INFO, CHANGED, [])]


def test_what_is_lost_before_anything_of_it_was_read_is_not_told_as_held() -> None:
    library = Scripted()
    member, said, _ = member_of(library)
    listener = library.listener
    library.next = [lambda: (listener.on_assigned([OTHER], [PLACE, OTHER]), listener.on_lost([OTHER])) and ()]
    member.poll()
    assert said.names() == ["joined", "p"]


def test_who_goes_back_asks_again_where_its_group_stands() -> None:
    library = Scripted()
    member, said, _ = member_of(library)
    library.next = [lambda: [record(5)], lambda: ()]
    member.poll()
    member.rewind()
    member.poll()
    assert [each for each in said if each[0] == "began"] == [("began", "m", 1, [["t", 0, 5, 1]])]


def test_who_loses_what_it_goes_back_in_says_where_it_stood() -> None:
    library = Scripted()
    member, said, _ = member_of(library)
    member.rewind()
    library.listener.on_lost([PLACE])
    assert said == [("lost", "m", 1, [["t", 0, 5]])]


@pytest.mark.parametrize(
    ("metadata", "who"),
    [
        (b"CGMDv2:\xff\xff\xff\xffgroup\0\0\1", MemberGeneration("", -1)),
        (b"CGMDv2:\x03\0\0\0group\0member-1\0\0instance\0", MemberGeneration("member-1", 3)),
    ],
)
def test_librdkafka_s_metadata_of_a_member_says_its_generation(metadata: bytes, who: MemberGeneration) -> None:
    assert member_generation_of(metadata) == who


@pytest.mark.parametrize("metadata", [b"", b"CGMDv2:\1", b"CGMDv9:\3\0\0\0group\0m\0"])
def test_another_form_of_that_is_no_generation(metadata: bytes) -> None:
    with pytest.raises(ValueError, match="metadata of a member"):
        member_generation_of(metadata)
