"""Frames in the two directions of a connection: followed, cut out, struck; and what is none passes whole."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.header import encode_request, encode_response_header
from squall.broker.protocol.schema.end_txn import EndTxnRequest, EndTxnResponse
from squall.chaos.runtimes.contract import FrameAct, Frames, StreamDirection
from squall.chaos.runtimes.real.frame_relay import RelayFault
from squall.chaos.runtimes.wire.conversation import LINGER_S, FramedConnection, LinkFaultState, StruckEndTxn, strike

PRODUCE, FETCH, END_TXN = 0, 1, 26


def request(api: int, correlation_id: int, body: bytes = b"") -> bytes:
    return pack(">ihhi", 8 + len(body), api, 0, correlation_id) + body


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return pack(">ii", 4 + len(body), correlation_id) + body


class Heard(FramedConnection):
    """Keeps what is sent on."""

    def __init__(self, *faults: Frames) -> None:
        super().__init__()
        self.on: list[LinkFaultState] = [RelayFault(fault) for fault in faults]
        self.told = tuple(self.on)
        self.sent = {StreamDirection.THERE: b"", StreamDirection.BACK: b""}
        self.late: list[float] = []
        self.resets = 0
        self.clock_ns = 0
        self.timers: list[Callable[[], None]] = []

    def framed(self) -> bool:
        return bool(self.on)

    def hit(self, stream: StreamDirection, api: int) -> LinkFaultState | None:
        return strike(self.on, stream, api)

    def put(self, stream: StreamDirection, data: bytes, later_s: float) -> None:
        self.sent[stream] += data
        self.late.append(later_s)

    def reset(self) -> None:
        self.resets += 1

    def now_ns(self) -> int:
        return self.clock_ns

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        self.timers.append(act)

    def time_passes(self) -> None:
        for act in self.timers:
            act()


def test_the_nth_of_an_api_is_struck_and_counted_however_bytes_come() -> None:
    heard = Heard(Frames(FETCH, FrameAct.DROP, nth=2, count=2))
    sent = [request(FETCH, 1), request(PRODUCE, 2), *(request(FETCH, n, b"abc") for n in (3, 4, 5))]
    for byte in b"".join(sent):
        heard.asked(bytes([byte]))
    assert heard.sent[StreamDirection.THERE] == sent[0] + sent[1] + sent[4]
    assert heard.on[0].hits == 2


def test_a_doubled_request_has_one_answer() -> None:
    heard = Heard(Frames(FETCH, FrameAct.DUPLICATE))
    heard.asked(request(FETCH, 7))
    assert heard.sent[StreamDirection.THERE] == request(FETCH, 7) * 2
    heard.on.clear()
    heard.answered(response(7, b"a") + response(7, b"b") + response(8))
    assert heard.sent[StreamDirection.BACK] == response(7, b"a") + response(8)


def test_an_end_of_a_transaction_that_is_held_is_told_of_with_its_answer() -> None:
    heard = Heard(Frames(END_TXN, FrameAct.DELAY, delay_ms=4000))
    asked = EndTxnRequest("x", 7, 2, committed=True)
    heard.clock_ns = 10**9
    heard.asked(bytes(encode_request(END_TXN, 3, 5, "test", asked.encode(3))))
    assert heard.late == [4.0]
    heard.on.clear()
    assert heard.lingers_s(StreamDirection.THERE) == 4.0 + LINGER_S, (
        "its asker has gone, but the broker may still answer"
    )
    answer = encode_response_header(END_TXN, 3, 5) + EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED).encode(3)
    heard.clock_ns = 6 * 10**9
    heard.answered(pack(">i", len(answer)) + answer)
    assert heard.lingers_s(StreamDirection.THERE) == 0
    (told,) = heard.told[0].struck
    assert told == StruckEndTxn("commit of x, producer 7, epoch 2", 10**9, 4000, "PRODUCER_FENCED", 6 * 10**9)


def test_of_other_apis_and_of_ends_that_cannot_be_read_little_is_told() -> None:
    heard = Heard(Frames(END_TXN, FrameAct.DELAY, delay_ms=10), Frames(FETCH, FrameAct.DELAY, delay_ms=10))
    heard.asked(request(FETCH, 1) + request(END_TXN, 2, b"nonsense"))
    assert [len(on.struck) for on in heard.told] == [1, 0]
    assert heard.told[0].struck[0].said == ""


def test_an_error_is_not_counted_where_the_request_cannot_be_read() -> None:
    heard = Heard(Frames(FETCH, FrameAct.ERROR, error=6, count=0))
    heard.asked(request(FETCH, 7, b"nonsense"))
    assert heard.sent[StreamDirection.THERE] == request(FETCH, 7, b"nonsense")
    assert heard.on[0].hits == 0


def test_answers_are_of_the_api_that_was_asked() -> None:
    heard = Heard(Frames(FETCH, FrameAct.DELAY, delay_ms=250, stream=StreamDirection.BACK))
    heard.asked(request(PRODUCE, 1) + request(FETCH, 2))
    heard.late.clear()
    heard.answered(response(1) + response(2))
    assert heard.late == [0.0, 0.25]


def test_a_request_is_overtaken_by_the_next_one_and_its_asker_gets_the_answers_in_its_own_order() -> None:
    heard = Heard(Frames(PRODUCE, FrameAct.REORDER))
    heard.asked(request(PRODUCE, 1))
    assert heard.sent[StreamDirection.THERE] == b""
    heard.asked(request(PRODUCE, 2) + request(PRODUCE, 3))
    assert heard.sent[StreamDirection.THERE] == request(PRODUCE, 2) + request(PRODUCE, 1) + request(PRODUCE, 3)
    assert heard.on[0].hits == 1
    heard.on.clear()
    for number in (2, 1, 3):
        heard.answered(response(number))
    assert heard.sent[StreamDirection.BACK] == response(1) + response(2) + response(3)


def test_an_answer_that_is_to_be_overtaken_comes_behind_the_next_one() -> None:
    heard = Heard(Frames(FETCH, FrameAct.REORDER, stream=StreamDirection.BACK))
    heard.asked(request(FETCH, 1) + request(PRODUCE, 2))
    heard.answered(response(1))
    heard.answered(response(2))
    assert heard.sent[StreamDirection.BACK] == response(2) + response(1)
    assert heard.on[0].hits == 1


@pytest.mark.parametrize("stream", [StreamDirection.THERE, StreamDirection.BACK])
@pytest.mark.parametrize("end", [Heard.time_passes, lambda heard: [heard.ended(stream) for stream in heard.sent]])
def test_what_nothing_overtakes_passes_as_it_is_and_was_not_hit(
    stream: StreamDirection, end: Callable[[Heard], None]
) -> None:
    heard = Heard(Frames(FETCH, FrameAct.REORDER, stream=stream, count=0))
    heard.asked(request(FETCH, 1))
    heard.answered(response(1))
    end(heard)
    end(heard)
    assert heard.sent == {StreamDirection.THERE: request(FETCH, 1), StreamDirection.BACK: response(1)}
    assert heard.on[0].hits == 0


@pytest.mark.parametrize("then", ["time", "another answer"])
def test_an_answer_does_not_wait_for_that_of_a_request_which_has_none(then: str) -> None:
    heard = Heard(Frames(PRODUCE, FrameAct.REORDER))
    heard.asked(request(PRODUCE, 1) + request(FETCH, 2))
    heard.on.clear()
    heard.answered(response(2))
    assert heard.sent[StreamDirection.BACK] == b""
    if then == "time":
        heard.time_passes()
        assert heard.sent[StreamDirection.BACK] == response(2)
    heard.asked(request(FETCH, 3))
    heard.answered(response(3))
    assert heard.sent[StreamDirection.BACK] == response(2) + response(3)


@pytest.mark.parametrize("size", [-1, 0, 7, 1 << 30])
@pytest.mark.parametrize("followed", [True, False])
def test_behind_an_impossible_size_everything_passes(size: int, followed: bool) -> None:
    fault = Frames(FETCH, FrameAct.DROP, count=0)
    heard = Heard(fault)
    strange = pack(">i", size) + request(FETCH, 1) * 3
    if followed:
        heard.on.clear()
    heard.asked(strange[:5])
    heard.on = [RelayFault(fault)]
    heard.asked(strange[5:])
    heard.ended(StreamDirection.THERE)
    assert heard.sent[StreamDirection.THERE] == strange
    assert heard.on[0].hits == 0


@given(st.lists(st.binary(min_size=1, max_size=60)), st.booleans())
def test_bytes_of_any_kind_arrive_all_and_in_order_where_no_fault_strikes(chunks: list[bytes], framed: bool) -> None:
    heard = Heard(*([Frames(9999, FrameAct.DROP, count=0)] if framed else []))
    for chunk in chunks:
        heard.asked(chunk)
        heard.answered(chunk)
    heard.ended(StreamDirection.THERE)
    heard.ended(StreamDirection.BACK)
    assert heard.sent == {StreamDirection.THERE: b"".join(chunks), StreamDirection.BACK: b"".join(chunks)}
