"""Encodes the messages between the harness and a driver program: each is an array in msgpack, with its length in front.
Its first element names its type.

From the harness to a driver:

- ["s", op, topic, partition, key, value, timestamp_ms]: send this record.
- ["f"]: finish, then end.
- ["init"], ["begin"], ["commit"], ["abort"]: calls of a transactional producer, one at a time.
- ["poll"]: poll once, as a transactional producer that also reads, or as a group member.
- ["offsets", id, generation, [[topic, partition, position], ...]]: commit these positions as the group member `id`.
- ["txn_offsets", id, generation, [[topic, partition, position], ...]]: commit these positions in the transaction.
- ["now", [[topic, partition, position], ...]]: the reply to "giving": commit these, then give the partitions up.
- ["rewind"]: go back to the committed offsets. ["leave"]: leave the group.

From any driver to the harness:

- ["up", version]: the driver is ready.
- ["o", [[op, status, offset, timestamp_ms, error], ...]]: outcomes of records.
- ["a", [[topic, partition, position], ...]]: the partitions that a reader has been assigned.
- ["r", began_ns, [[topic, partition, position], ...], [[topic, partition, position, [[offset, value], ...], [[offset,
why], ...]], ...]]: a poll: its start, the positions at that time, and for each partition the new position, the records,
and the reasons why records are damaged.
- ["k", topic, partition, position, why]: the position was reset.
- ["t", call, status, error, producer id, epoch, why]: the reply to a transactional call. `why`: the reason why the
producer can do nothing more; "" if it can.
- ["p"]: a transactional producer's poll is over.
- ["e", why]: an error after which the driver continues. ["x", why]: an error with which the driver ends.

From a group member (`id` and `generation` are its own):

- ["joined", id, generation, [[topic, partition], ...]]: all partitions that it owns.
- ["stood", id, generation, began_ns, stable, [[topic, partition, committed or -1], ...], [[topic, partition], ...],
error]: the result of an OffsetFetch: the committed offsets, then all partitions in the request, and the error, "" if
there is none. `began_ns`: no OffsetFetch for these partitions was sent before this time. `stable`: True if the
OffsetFetch waits for pending transactional commits.
- ["began", id, generation, [[topic, partition, position, committed], ...]]: it reads these partitions from now on.
`committed`: 1 if the position is the committed offset, else 0.
- ["giving", id, generation, [[topic, partition, position], ...]]: it is about to give these partitions up.
- ["gave", id, generation, [[topic, partition, position], ...]]: it has given them up. ["lost", ...]: it has lost them.
- ["p", id, generation]: its poll is over.
- ["kept", now, status, error, [[topic, partition, error], ...]]: a commit ended; `now`: 1 if "now" requested it.
- ["out", error]: its membership is over for good. ["left"]: it has closed its consumer.
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
