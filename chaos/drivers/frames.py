"""Encodes the messages between the harness and a driver: msgpack behind its length, one array for each message.

Harness to driver: ["s", op, topic, partition, key, value, timestamp_ms] send; ["f"] finish, then end; to a transactor
["init"], ["begin"], ["commit"], ["abort"], ["poll"], one at a time. Driver to harness: ["up", version] ready; ["o",
[[op, status, offset, timestamp_ms, error], ...]] outcomes; ["a", [[topic, partition, position], ...]] assigned; ["r",
began_ns, [[topic, partition, position], ...], [[topic, partition, position, [[offset, value], ...], [[offset, why],
...]], ...]] a poll; ["k", topic, partition, position, why] a seek; ["t", call, status, error, producer id, epoch, why
it can do nothing more] a transactor's reply to a call; ["p"] its poll is over; ["e", why] an error after which it
continues; ["x", why] an error for which it ends.

A member of a group also gets ["offsets", id, generation, [[topic, partition, position], ...]] commit as that member,
["rewind"] go back to the committed offsets, ["leave"], and, after it has asked by ["giving", ...], ["now", [[topic,
partition, position], ...]] commit these first. A member sends, each with its member id and generation: ["joined", id,
generation, [[topic, partition], ...]] all partitions that it owns; ["stood", id, generation, began_ns, stable, [[topic,
partition, committed or -1], ...], [[topic, partition], ...], error] the committed offsets, or why they are not known of
the partitions in the second list; ["began", id, generation, [[topic, partition, position, committed], ...]] it reads
these from now on; ["giving", id, generation, [[topic, partition, position], ...]] it is about to give these up, then
["gave", ...] alike: it has given them up; ["lost", id, generation, [[topic, partition, position], ...]]; ["p", id,
generation] its poll is over. Without id and generation: ["kept", now, status, error, [[topic, partition, error], ...]]
a commit ended, `now` if a callback had asked for it; ["out", error] its membership is over for good; ["left"] it has
closed its consumer. A transactor that is also a member takes ["txn_offsets", id, generation, [[topic, partition,
position], ...]] commit these in the transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

import msgspec

_LENGTH = Struct(">I")
_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder()


def frame(message: list[Any]) -> bytes:
    """Return a message as bytes, its length first."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameCodec:
    """Encodes messages as frames, and decodes frames from bytes that arrive in pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    encode = staticmethod(frame)

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """Add received bytes, and yield the messages that are complete now."""
        self._data += data
        at = 0
        while len(self._data) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data, at)
            end = at + _LENGTH.size + length
            if len(self._data) < end:
                break
            yield _decoder.decode(bytes(self._data[at + _LENGTH.size : end]))
            at = end
        del self._data[:at]
