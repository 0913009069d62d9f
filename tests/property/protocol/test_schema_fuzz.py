"""Decoding any bytes gives a message or MalformedFrame, in bounded memory and in linear time."""

from __future__ import annotations

import sys
import tracemalloc
import zlib
from types import FrameType
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.schema import group_records, metadata_records, transaction_records
from squall.broker.protocol.wire import Message
from tests.property.protocol.hostile import LENGTHS, mutations, noise, truncations
from tests.property.protocol.kio_messages import Subject, kio_bytes, messages, subjects
from tests.support.effort import examples, stride


def _records() -> list[type[Message]]:
    modules = (metadata_records, group_records, transaction_records)
    found = [cls for module in modules for cls in vars(module).values() if isinstance(cls, type)]
    return [cls for cls in found if issubclass(cls, Message) and cls is not Message]


FRAMES = examples(2)
"""Frames that are drawn for a message: at least two, because Hypothesis begins with the simplest, which is nearly
empty.
"""

ALL = [subject.ours for subject in subjects()] + _records()


def _decode(cls: type[Message], frame: bytes, version: int) -> Message | None:
    """Return the message; None if it is malformed. Any other exception fails the test."""
    try:
        message, end = cls.decode(memoryview(frame), 0, version)
    except MalformedFrame:
        return None
    assert end <= len(frame)
    return message


@pytest.mark.parametrize("subject", subjects(), ids=repr)
@settings(max_examples=FRAMES, phases=[Phase.generate])
@given(data=st.data())
def test_no_beginning_of_a_frame_is_a_frame(subject: Subject, data: st.DataObject) -> None:
    for version, cls in subject.by_version.items():
        raw = kio_bytes(data.draw(messages(cls)))
        for cut in truncations(raw, most=40):
            assert _decode(subject.ours, cut, version) is None


@pytest.mark.parametrize("subject", subjects(), ids=repr)
@settings(max_examples=FRAMES, phases=[Phase.generate])
@given(data=st.data())
def test_a_mutated_frame_is_malformed_or_a_message_that_can_be_written(subject: Subject, data: st.DataObject) -> None:
    for version, cls in subject.by_version.items():
        raw = kio_bytes(data.draw(messages(cls)))
        for frame in mutations(raw, 15, seed=zlib.crc32(raw)):
            message = _decode(subject.ours, frame, version)
            if message is not None:
                written = message.encode(version)
                assert subject.ours.decode(memoryview(written), 0, version)[0].encode(version) == written


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_noise_is_malformed_or_a_message(cls: type[Message]) -> None:
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        for frame in noise(examples(12), seed=version):
            message = _decode(cls, frame, version)
            assert message is None or isinstance(message.encode(version), bytes)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_unknown_versions_are_malformed_to_read_and_refused_to_write(cls: type[Message]) -> None:
    for version in (-(1 << 15), -1, cls.MIN_VERSION - 1, cls.MAX_VERSION + 1, (1 << 15) - 1):
        with pytest.raises(MalformedFrame):
            cls.decode(memoryview(bytes(100)), 0, version)
        with pytest.raises(ValueError, match="version"):
            cls().encode(version)


def _hostile(cls: type[Message], version: int, size: int) -> list[bytes]:
    """Return frames of about `size` bytes that claim to hold much: dense bytes, and an empty message with one wrong
    length.
    """
    empty = cls().encode(version)
    fillings = [bytes((fill,)) * size for fill in (0, 1, 2, 5, 0x7F, 0x80, 0xFF)]
    claims = [_uvarint3(size // 3), (size // 3).to_bytes(4, "big"), *LENGTHS[:2]]
    places = [empty[:at] + claim for at in range(min(len(empty), 24)) for claim in claims]
    return fillings + [place + bytes((fill,)) * size for place in places for fill in (0, 1)]


def _uvarint3(n: int) -> bytes:
    return bytes((n & 127 | 128, n >> 7 & 127 | 128, n >> 14))


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_memory_stays_a_multiple_of_the_frame(cls: type[Message]) -> None:
    size = 4096
    tracemalloc.start()
    try:
        for frame in _hostile(cls, cls.MAX_VERSION, size)[:: stride(3)]:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            _decode(cls, frame, cls.MAX_VERSION)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 40 * len(frame) + 20_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_work_grows_with_the_bytes_and_not_with_what_they_claim(cls: type[Message]) -> None:
    size = 400
    for frame in _hostile(cls, cls.MAX_VERSION, size)[:: stride(5)]:
        assert _lines(cls, frame, cls.MAX_VERSION) < 10 * len(frame) + 500


def _lines(cls: type[Message], frame: bytes, version: int) -> int:
    """Return how many lines of Python the decoding executes."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        _decode(cls, frame, version)
    finally:
        sys.settrace(before)
    return count
