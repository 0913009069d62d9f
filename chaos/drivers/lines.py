"""Encodes the messages between the harness and a program under test: one JSON object for each line
(docs/workloads/command.md).

The harness uses the same messages for the driver program of a client library (`frames`). So a program under test can
take the place of a library. A line that breaks the protocol becomes the message ["x", why], which ends the run, because
nothing can be concluded about a program that is not understood.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import msgspec

from squall.chaos.drivers.library import FAIL, INFO, OK

MAX_LINE_BYTES = 64 << 20
SHOWN = 200
"""Limits how many bytes of a line that breaks the protocol are shown in the error."""
PAGE = "docs/workloads/command.md has the protocol; what is no answer belongs on standard error"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Is skipped at the start of the output, because programs on .NET begin with it."""

MAX_ERROR_CHARS = 500
"""Limits the length of a program's error, because the history has it once for each record."""

_LARGEST = (1 << 62) - 1
"""Is the largest offset or time that a program may report. Both have 64 bits, and larger ones would overflow when added
to.
"""


class JsonCount(int):
    """Is a whole number from 0, given in JSON as a number or as a string of its digits, because JavaScript's numbers
    have 53 bits.
    """

    least = 0


class CountOrUnknown(JsonCount):
    """Is a whole number from 0 in JSON (`JsonCount`), or -1 if the number is unknown."""

    least = -1


def _number(kind: type[JsonCount], said: object) -> JsonCount:
    """Convert a program's number. Raise ValueError with what was expected and what came."""
    digits = isinstance(said, str) and re.fullmatch(r"-?[0-9]{1,19}", said)
    number = int(said) if digits or type(said) is int else None  # type: ignore[call-overload]  # true is no number
    if number is None or not kind.least <= number <= _LARGEST:
        wanted = f"a whole number from {kind.least} to 2^62 - 1, or its digits in a string"
        raise ValueError(f"expected {wanted}, got {_encoder.encode(said).decode()[:SHOWN]}")
    return kind(number)


class ReadyReply(msgspec.Struct, tag="ready"):
    """Reports that the program is ready for requests."""

    name: str = ""


class OkReply(msgspec.Struct, tag="ok"):
    """Reports that a record was acknowledged."""

    id: JsonCount
    partition: JsonCount
    offset: CountOrUnknown
    timestamp_ms: CountOrUnknown = CountOrUnknown(-1)


class FailReply(msgspec.Struct, tag="fail"):
    """Reports that a record was definitely not written, and never will be."""

    id: JsonCount
    error: str


class InfoReply(msgspec.Struct, tag="info"):
    """Reports that a record may have been written."""

    id: JsonCount
    error: str


class FetchedRecord(msgspec.Struct):
    """Holds a record that the program has read. The value is base64 in JSON."""

    partition: JsonCount
    offset: JsonCount
    key: str | None
    value: bytes | None


class RecordsReply(msgspec.Struct, tag="records"):
    """Holds the records that a poll returned."""

    id: JsonCount
    records: list[FetchedRecord]


class PollErrorReply(msgspec.Struct, tag="error"):
    """Reports an error of a poll after which the program can be polled again."""

    id: JsonCount
    error: str


_encoder = msgspec.json.Encoder()
_PLACED = re.compile(r"(?P<what>.*) - at `\$\.?(?P<field>[^`]*)`", re.DOTALL)
"""Matches a message of msgspec that names the field with the error."""


class ProtocolViolation(Exception):
    """Is raised for a line that breaks the protocol; its message describes the mistake."""


class LineProtocol:
    """Encodes requests to one process of the program as lines, and decodes its lines to messages."""

    TYPES = "ready, ok, fail, info, records or error"
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
        ReadyReply | OkReply | FailReply | InfoReply | RecordsReply | PollErrorReply, dec_hook=_number
    )

    def __init__(self) -> None:
        self._data = bytearray()
        self._asked: dict[int, int] = {}
        """Maps each record without a reply to the partition that it was to be sent to."""
        self._polls = 0
        self._answered = 0
        self._ready = False
        self._first = True
        self._broken = False

    def encode(self, message: list[Any]) -> bytes:
        """Return a request to the program as a line."""
        match message:
            case ["init", about]:
                said = {"type": "init", **about}
            case ["s", op, topic, partition, key, value, timestamp_ms]:
                self._asked[op] = partition
                said = {"type": "send", "id": op, "topic": topic, "partition": partition}
                text = None if key is None else key.decode()
                said |= {"key": text, "value": b64encode(value).decode(), "timestamp_ms": timestamp_ms}
            case ["poll"]:
                self._polls += 1
                said = {"type": "poll", "id": self._polls}
            case ["f"]:
                said = {"type": "finish"}
            case _:
                raise AssertionError(message)
        return self.line(said)

    @staticmethod
    def line(said: dict[str, Any]) -> bytes:
        """Return an object as a line of JSON."""
        return _encoder.encode(said) + b"\n"

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """Add received bytes, and yield the messages of the lines that are complete now. After ["x", why] no message
        follows.
        """
        if self._broken:
            return
        lines: list[bytes] = []
        if b"\n" in data:  # else nothing is cut: a long line comes in thousands of pieces
            first, *more = data.split(b"\n")
            lines = [bytes(self._data) + first, *more[:-1]]
            self._data, data = bytearray(), more[-1]
        self._data += data
        try:
            for line in lines:
                if self._first:
                    self._first, line = False, line.removeprefix(BYTE_ORDER_MARK)
                if line.strip():
                    yield self._message(line)
            if len(self._data) > MAX_LINE_BYTES:
                raise ProtocolViolation(f"it wrote {len(self._data):,} bytes without the end of a line")
        except ProtocolViolation as wrong:
            self._broken = True
            yield ["x", f"{wrong} ({PAGE})"]

    def _message(self, line: bytes) -> list[Any]:
        try:
            said = self.decoder.decode(line)
        # RecursionError: JSON that is nested too deeply.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
            shown = line.strip()[:SHOWN].decode(errors="backslashreplace")
            raise ProtocolViolation(f"it wrote the line {shown!r}: {self._explained(str(why))}") from None
        match said:
            case ReadyReply(name) if not self._ready:
                self._ready = True
                return ["up", name]
            case ReadyReply():
                raise ProtocolViolation("it answered ready, and had answered init already")
        return self._meaning(said)

    def _meaning(self, said: Any) -> list[Any]:
        """Return a decoded reply as a message. Raise ProtocolViolation if no request waits for this reply."""
        match said:
            case OkReply(op, partition, offset, timestamp_ms):
                self._placed(op, partition)
                return ["o", [[int(op), OK, int(offset), int(timestamp_ms), ""]]]
            case FailReply(op, error) | InfoReply(op, error):
                self._settled(op, "fail" if isinstance(said, FailReply) else "info")
                return ["o", [[int(op), FAIL if isinstance(said, FailReply) else INFO, -1, -1, _short(error)]]]
            case RecordsReply(number, records):
                self._poll_answered(number)
                return ["records", records]
            case PollErrorReply(number, error):
                self._poll_answered(number)
                return ["e", _short(error)]
        raise AssertionError(said)

    def _placed(self, op: int, partition: int) -> None:
        asked = self._settled(op, "ok")
        if partition != asked:
            raise ProtocolViolation(
                f"it wrote record {op} to partition {partition}, and was asked for partition {asked}: "
                "send to the partition of the request, or have one partition only (--partitions 1)"
            )

    def _settled(self, op: int, how: str) -> int:
        if op not in self._asked:
            raise ProtocolViolation(
                f"it answered {how} to record {op}, which it was not asked to send, or has answered already"
            )
        return self._asked.pop(op)

    def _poll_answered(self, number: int) -> None:
        if number != self._polls or number == self._answered:
            raise ProtocolViolation(f"it answered poll {number}; the poll that waits for an answer is {self._polls}")
        self._answered = number

    def _explained(self, why: str) -> str:
        """Rephrase msgspec's error, with the name of the field first."""
        placed = _PLACED.fullmatch(why)
        what, field = (placed["what"], placed["field"]) if placed else (why, "")
        if field == "type" and what.startswith("Invalid value"):
            what = f"expected {self.TYPES}, got {what.removeprefix('Invalid value ')}"
        return (f"{field}: " if field else "") + what.replace("Expected", "expected", 1)


def _short(error: str) -> str:
    """Return an error, cut to the length that a history keeps."""
    return error[:MAX_ERROR_CHARS] or "no reason"
