"""Encodes what the harness and a program under test say to each other: a JSON object a line
(docs/workloads/command.md).

A driver's frames and these lines carry the same messages (`frames`), so that a program is a producer or a reader as a
library's process is. Whatever a program writes that is not of the protocol becomes ["x", why], which ends the run: of a
program that is not understood nothing can be said.
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
"""Bytes of a wrong line that its error shows."""
PAGE = "docs/workloads/command.md has the protocol; what is no answer belongs on standard error"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Programs on .NET begin their output with it."""

MAX_ERROR_CHARS = 500
"""Of what a program says of an error: it stands in the history, once for each record."""

_LARGEST = (1 << 62) - 1
"""Offsets and times are 64 bits wide, and are counted on from."""


class JsonCount(int):
    """A whole number, or its digits in a string: JavaScript's numbers have 53 bits."""

    least = 0


class CountOrUnknown(JsonCount):
    """A `JsonCount`, or -1."""

    least = -1


def _number(kind: type[JsonCount], said: object) -> JsonCount:
    """Read a number of a program's. ValueError with what came and what is expected."""
    digits = isinstance(said, str) and re.fullmatch(r"-?[0-9]{1,19}", said)
    number = int(said) if digits or type(said) is int else None  # type: ignore[call-overload]  # true is no number
    if number is None or not kind.least <= number <= _LARGEST:
        wanted = f"a whole number from {kind.least} to 2^62 - 1, or its digits in a string"
        raise ValueError(f"expected {wanted}, got {_encoder.encode(said).decode()[:SHOWN]}")
    return kind(number)


class ReadyReply(msgspec.Struct, tag="ready"):
    """The program has what it needs."""

    name: str = ""


class OkReply(msgspec.Struct, tag="ok"):
    """A record was acknowledged."""

    id: JsonCount
    partition: JsonCount
    offset: CountOrUnknown
    timestamp_ms: CountOrUnknown = CountOrUnknown(-1)


class FailReply(msgspec.Struct, tag="fail"):
    """A record was definitely not written, and never will be."""

    id: JsonCount
    error: str


class InfoReply(msgspec.Struct, tag="info"):
    """A record may have been written."""

    id: JsonCount
    error: str


class FetchedRecord(msgspec.Struct):
    """A record that was read. The value is base64 in JSON."""

    partition: JsonCount
    offset: JsonCount
    key: str | None
    value: bytes | None


class RecordsReply(msgspec.Struct, tag="records"):
    """Holds what a poll brought."""

    id: JsonCount
    records: list[FetchedRecord]


class PollErrorReply(msgspec.Struct, tag="error"):
    """Reports an error of a poll after which the program can be polled again."""

    id: JsonCount
    error: str


_encoder = msgspec.json.Encoder()
_PLACED = re.compile(r"(?P<what>.*) - at `\$\.?(?P<field>[^`]*)`", re.DOTALL)
"""How msgspec says in which field something is wrong."""


class ProtocolViolation(Exception):
    """Says in words what a program wrote that is not of the protocol."""


class LineProtocol:
    """Translates what is said with one process. `encode` and `feed` are the two directions."""

    TYPES = "ready, ok, fail, info, records or error"
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
        ReadyReply | OkReply | FailReply | InfoReply | RecordsReply | PollErrorReply, dec_hook=_number
    )

    def __init__(self) -> None:
        self._data = bytearray()
        self._asked: dict[int, int] = {}
        """Record without an answer -> partition that it was to go to."""
        self._polls = 0
        self._answered = 0
        self._ready = False
        self._first = True
        self._broken = False

    def encode(self, message: list[Any]) -> bytes:
        """A message to the program, as a line."""
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
        """An object as a line."""
        return _encoder.encode(said) + b"\n"

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """The messages of the lines that are whole now. Nothing follows ["x", why]."""
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
        """The message that a line with this object is. Wrong where it is none."""
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
        """Say what is wrong with a line, in msgspec's words, with the field first."""
        placed = _PLACED.fullmatch(why)
        what, field = (placed["what"], placed["field"]) if placed else (why, "")
        if field == "type" and what.startswith("Invalid value"):
            what = f"expected {self.TYPES}, got {what.removeprefix('Invalid value ')}"
        return (f"{field}: " if field else "") + what.replace("Expected", "expected", 1)


def _short(error: str) -> str:
    """Return as much of an error as a history keeps."""
    return error[:MAX_ERROR_CHARS] or "no reason"
