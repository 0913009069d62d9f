"""The payload proves itself: whatever is damaged, a reader sees it."""

from __future__ import annotations

import pytest

from squall.broker.protocol.records import encode_batch
from squall.workloads import payload

KEY = b"key-7"
HEADERS: list[tuple[str, bytes | None]] = [("h", b"1"), ("none", None)]


@pytest.mark.parametrize("key", [None, b"", KEY])
@pytest.mark.parametrize("size", [0, 100, 2048, 200_000])
def test_a_payload_gives_its_value_back(key: bytes | None, size: int) -> None:
    value = payload.value_of(8_000_000, 2**40 - 1)
    made, _ = payload.make(value, key, HEADERS, size)
    assert len(made) == max(size, payload.MIN_SIZE + len(key or b""))
    assert payload.verify(made, key, HEADERS) == (value, "")


def test_every_flipped_byte_is_seen() -> None:
    made, _ = payload.make(12345, KEY, HEADERS, 100)
    for at in range(len(made)):
        damaged = bytearray(made)
        damaged[at] ^= 0x40
        value, why = payload.verify(bytes(damaged), KEY, HEADERS)
        assert value == -1 and why, at


def test_a_shortened_payload_is_seen() -> None:
    made, _ = payload.make(12345, KEY, HEADERS, 100)
    for length in range(len(made)):
        assert payload.verify(made[:length], KEY, HEADERS).value == -1


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        (b"key-8", HEADERS),
        (None, HEADERS),
        (b"", HEADERS),
        (KEY, []),
        (KEY, [("h", b"1"), ("none", b"")]),
        (KEY, [("h", b"1n"), ("one", None)]),
    ],
)
def test_a_key_or_header_of_another_record_is_seen(key: bytes | None, headers: payload.Headers) -> None:
    made, _ = payload.make(12345, KEY, HEADERS, 100)
    assert payload.verify(made, key, headers).value == -1


def test_no_key_and_an_empty_key_differ() -> None:
    made, _ = payload.make(1, None, (), 100)
    assert payload.verify(made, b"").value == -1


def test_a_record_without_payload_does_not_verify() -> None:
    assert payload.verify(None, KEY) == (-1, "no payload")


def test_a_timestamp_that_is_not_the_senders_is_seen() -> None:
    made, _ = payload.make(7, KEY, HEADERS, 100, 1_764_000_000_000)
    assert payload.verify(made, KEY, HEADERS, 1_764_000_000_000) == (7, "")
    early = payload.verify(made, KEY, HEADERS, 1_763_913_600_000)
    assert early == (-1, "timestamp 1763913600000 instead of 1764000000000, value 7")
    assert payload.verify(made, KEY, HEADERS, -1).value == -1, "a record without a timestamp was sent with one"


def test_a_timestamp_that_the_leader_set_or_that_a_client_does_not_report_is_not_judged() -> None:
    made, _ = payload.make(7, KEY, HEADERS, 100, 1_764_000_000_000)
    assert payload.verify(made, KEY, HEADERS, payload.NOT_KNOWN) == (7, "")


def test_a_timestamp_of_a_program_that_sets_its_own_is_not_judged() -> None:
    made, _ = payload.make(7, KEY, (), 100)
    assert payload.verify(made, KEY, (), 5) == (7, "")


def test_every_fourth_record_has_headers_of_its_own() -> None:
    had = [payload.headers_of(value, value) for value in range(8)]
    assert [bool(each) for each in had] == [True, False, False, False] * 2
    assert had[0] != had[4]
    made, _ = payload.make(4, KEY, had[4], 100)
    assert payload.verify(made, KEY, had[4]).value == 4
    assert payload.verify(made, KEY, had[0]).value == payload.verify(made, KEY, ()).value == -1


def test_a_record_with_headers_is_no_larger_than_one_without() -> None:
    headers = payload.headers_of(4, 4)
    sizes = []
    for had in (headers, []):
        value, _ = payload.make(4, KEY, had, 100 - payload.size_of(had))
        sizes.append(len(encode_batch([(0, 0, KEY, value, had)])))
    assert sizes[0] == sizes[1]
