"""Every message in every version: kio and we write the same bytes, and read the same values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from tests.property.protocol.kio_messages import Subject, as_ours, kio_bytes, messages, subjects
from tests.support.effort import examples


@pytest.mark.parametrize("subject", subjects(), ids=repr)
@settings(max_examples=examples(3))
@given(data=st.data())
def test_what_kio_writes_we_read_and_write_alike(subject: Subject, data: st.DataObject) -> None:
    for version, cls in subject.by_version.items():
        theirs = data.draw(messages(cls))
        raw = kio_bytes(theirs)
        ours, end = subject.ours.decode(memoryview(raw), 0, version)
        assert end == len(raw)
        assert ours == as_ours(theirs, subject)
        assert ours.encode(version) == raw


@pytest.mark.parametrize("subject", subjects(), ids=repr)
@settings(max_examples=examples(2))
@given(data=st.data())
def test_what_we_write_kio_reads(subject: Subject, data: st.DataObject) -> None:
    for version, cls in subject.by_version.items():
        theirs = data.draw(messages(cls))
        raw = as_ours(theirs, subject).encode(version)
        assert entity_reader(cls)(raw, 0) == (theirs, len(raw))


@pytest.mark.parametrize("subject", subjects(), ids=repr)
def test_a_message_lies_anywhere_in_its_frame(subject: Subject) -> None:
    for version in subject.by_version:
        raw = subject.ours().encode(version)
        message, end = subject.ours.decode(memoryview(b"\xff" * 7 + raw + b"\xff" * 7), 7, version)
        assert (message, end) == (subject.ours(), 7 + len(raw))
