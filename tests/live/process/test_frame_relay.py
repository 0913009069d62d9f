"""The relay of Kafka frames over real sockets: what it passes, how it ends, and how few wake-ups it needs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.header import encode_request
from squall.broker.protocol.produce_counts import ProducerSettingsCounter
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from squall.chaos.runtimes.contract import FrameAct, Frames
from squall.chaos.runtimes.real.frame_relay import FrameFaults, RelayFault, relay
from squall.chaos.runtimes.real.inquiry import probe_frames
from squall.chaos.runtimes.real.relay_loop import MOST, RelayEventLoop
from tests.support.disks.batches import batch

HERE = "127.0.0.1"
API_VERSIONS = 18

pytestmark = pytest.mark.gate


class Relaying:
    """A relay in this thread, the listener that it forwards to, and both ends of one connection through it."""

    def __init__(self) -> None:
        self.loop, self.faults = RelayEventLoop(), FrameFaults()
        self.listener = socket.create_server((HERE, 0))
        (port,) = _free(1)
        self.counted: list[dict[str, Any]] = []
        counts = ProducerSettingsCounter(lambda event, **fields: self.counted.append(fields))
        self.loop.listen(HERE, port, partial(relay, self.loop, self.faults, counts, self.listener.getsockname()))
        self.near = socket.create_connection((HERE, port))
        self.loop.turn()  # accepted
        self.far, _ = self.listener.accept()
        self.loop.turn()  # connected
        self.near.settimeout(0)
        self.far.settimeout(0)

    def close(self) -> None:
        self.loop.close()
        for end in (self.near, self.far, self.listener):
            end.close()


def _free(count: int) -> list[int]:
    found = [socket.create_server((HERE, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return ports


@pytest.fixture
def relaying() -> Iterator[Relaying]:
    made = Relaying()
    yield made
    made.close()


def test_a_piece_passes_within_one_turn_of_the_loop(relaying: Relaying) -> None:
    for _ in range(3):
        relaying.near.send(b"there")
        relaying.loop.turn()
        assert relaying.far.recv(100) == b"there"
        relaying.far.send(b"back")
        relaying.loop.turn()
        assert relaying.near.recv(100) == b"back"


def test_a_whole_frame_passes_within_one_turn_while_a_fault_is_on(relaying: Relaying) -> None:
    relaying.faults.named["f"] = RelayFault(Frames(API_VERSIONS, FrameAct.DROP, nth=2))
    (frame,) = probe_frames(0)
    relaying.near.send(frame + frame)
    relaying.loop.turn()
    assert relaying.far.recv(1000) == frame
    assert relaying.faults.named["f"].hits == 1


def produce(correlation_id: int, acks: int) -> bytes:
    request = ProduceRequest(acks=acks, timeout_ms=1000)
    data = [PartitionProduceData(index=0, records=batch(pid=7, seq=0, codec=2))]
    request.topic_data.append(TopicProduceData(name="t", partition_data=data))
    return encode_request(ApiKey.PRODUCE, 9, correlation_id, "theirs", request.encode(9))


def test_produce_requests_are_counted_in_whatever_pieces_they_come(relaying: Relaying) -> None:
    sent = produce(1, -1) + probe_frames(0)[0] + produce(2, -1) + produce(3, 1)
    for piece in (sent[:30], sent[30:200], sent[200:]):
        relaying.near.send(piece)
        relaying.loop.turn()
    assert relaying.far.recv(10_000) == sent
    relaying.near.close()
    relaying.far.close()
    while {each["acks"]: each["requests"] for each in relaying.counted} != {-1: 2, 1: 1}:
        relaying.loop.turn()
    told = {"client_id": "theirs", "idempotent": True, "transactional_id": None, "compression": "snappy"}
    assert all(each.items() >= told.items() for each in relaying.counted)
    assert relaying.counted[-1]["in_flight"] >= 2


def test_a_protocol_fault_hides_no_produce_request(relaying: Relaying) -> None:
    relaying.faults.named["f"] = RelayFault(Frames(ApiKey.PRODUCE, FrameAct.DROP))
    relaying.near.send(produce(1, 1))
    relaying.loop.turn()
    assert [each["acks"] for each in relaying.counted] == [1]


def test_more_than_fits_waits_at_its_sender_and_comes_whole_and_in_order(relaying: Relaying) -> None:
    sent = bytes(range(251)) * (4 * MOST // 251)
    left, got = memoryview(sent), bytearray()
    for _ in range(20):  # the client does not read: the relay stops reading too
        try:
            left = left[relaying.near.send(left) :]
        except BlockingIOError:
            break
        relaying.loop.turn()
    assert left, "the relay takes no more than it may hold"
    while len(got) < len(sent):
        try:
            got += relaying.far.recv(1 << 20)
        except BlockingIOError:
            pass
        if left:
            try:
                left = left[relaying.near.send(left) :]
            except BlockingIOError:
                pass
        if len(got) < len(sent):
            relaying.loop.turn()
    assert bytes(got) == sent


def test_the_end_of_one_side_leaves_the_other_side_open(relaying: Relaying) -> None:
    relaying.near.send(b"last")
    relaying.near.shutdown(socket.SHUT_WR)
    for _ in range(2):
        relaying.loop.turn()
    assert (relaying.far.recv(100), relaying.far.recv(100)) == (b"last", b"")
    relaying.far.send(b"answer")
    relaying.far.close()
    for _ in range(2):
        relaying.loop.turn()
    assert (relaying.near.recv(100), relaying.near.recv(100)) == (b"answer", b"")


def test_a_reset_of_one_end_resets_the_other(relaying: Relaying) -> None:
    relaying.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    relaying.far.close()
    relaying.loop.turn()
    with pytest.raises(ConnectionResetError):
        relaying.near.recv(100)


def test_a_target_that_does_not_listen_resets_whoever_came() -> None:
    loop = RelayEventLoop()
    nobody, port = _free(2)
    loop.listen(HERE, port, partial(relay, loop, FrameFaults(), None, (HERE, nobody)))
    with socket.create_connection((HERE, port)) as near:
        loop.later(0.2, lambda: None)  # a refusal may come at once: then nothing else ends the second turn
        for _ in range(2):
            loop.turn()
        near.settimeout(5)
        with pytest.raises(ConnectionResetError):
            near.recv(1)
    loop.close()
