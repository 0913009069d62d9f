"""Applies protocol faults to the requests and responses ("frames") of one connection. It does no I/O.

A runtime passes in the bytes that arrive. `FramedConnection` calls `put` with the bytes to send; the class knows no
socket and no clock. While the connection's link has a protocol fault, bytes are cut into frames, on which the fault
acts; at other times the bytes pass at once, and are only parsed. Bytes that form no frame pass unchanged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from squall.chaos.runtimes.contract import FrameAct, Frames, StreamDirection
from squall.chaos.runtimes.wire import frames
from squall.chaos.runtimes.wire.frames import Framer

BEHIND_S = 5.0
"""Limits, in seconds, how long a response is held back so that the client gets responses in the order of its requests.
This is needed after a REORDER fault has let a later request overtake an earlier one.
"""
DONE: Mapping[FrameAct | None, str] = {None: "", **{act: act.value for act in FrameAct}, FrameAct.DROP: "dropped"}
"""Maps the act of a fault on a request to the word that diagrams show for it, such as "dropped"; None means that no
fault acted.
"""


STRUCK_REPORTS = 8
"""Limits the reports of one fault: it reports only the first eight of the EndTxn requests that it hits."""
LINGER_S = 1.0
"""Gives the seconds for which a connection to the broker stays open, after the client has closed it, if a fault has
delayed a request. A broker answers the request only while the connection is open.
"""


@dataclass(slots=True)
class StruckEndTxn:
    """Describes an EndTxn request that a protocol fault hit. Times are ns of the run's monotonic clock."""

    said: str
    """Describes the request in words: its transactional id, commit or abort, and its producer."""
    came_ns: int
    held_ms: int
    """Gives the time by which the fault delayed the request, in ms."""
    answer: str = ""
    """Is the error that the broker answered, NONE for success; empty if no answer was seen."""
    answered_ns: int = -1


class LinkFaultState(Protocol):
    """Holds a protocol fault on a link, and counts the requests or responses of its API, and those on which it has
    acted.
    """

    fault: Frames
    seen: int
    """Counts the requests or responses of the fault's API that have passed since the fault began."""
    hits: int
    """Counts the requests or responses on which the fault has acted."""
    struck: list[StruckEndTxn]
    """Lists the first EndTxn requests on which the fault has acted."""


def strike(faults: Iterable[LinkFaultState], stream: StreamDirection, api: int) -> LinkFaultState | None:
    """Return the first of these faults that acts on a frame of this API, or None. The frame is counted for the fault
    that acts and for those before it in the list, but not for those after it.
    """
    for on in faults:
        fault = on.fault
        if (fault.api == api or api in fault.also) and fault.stream is stream:
            on.seen += 1
            if on.seen >= fault.nth and (fault.count == 0 or on.seen < fault.nth + fault.count):
                return on
    return None


@dataclass(frozen=True, slots=True)
class OvertakenFrame:
    """Holds a request or response that a REORDER fault keeps back until the next one in its direction has passed."""

    on: LinkFaultState
    frame: bytes
    api: int
    correlation_id: int


class FramedConnection(ABC):
    """Applies protocol faults to one connection. Direction THERE carries requests, BACK carries responses."""

    def __init__(self) -> None:
        self._requests = Framer(frames.REQUEST_HEAD, self._saw_request)
        self._responses = Framer(frames.RESPONSE_HEAD, self._saw_response)
        self._waiting: deque[tuple[int, int]] = deque()
        """Lists (correlation id, API) of requests without a response yet."""
        self._twice: dict[int, bool] = {}
        """Maps the correlation id of a duplicated request to whether the first of its two responses has passed."""
        self._own: dict[int, bytes] = {}
        """Maps a correlation id to a response that an ERROR fault made in place of the broker. It waits until the
        responses to all earlier requests have passed.
        """
        self._held: dict[StreamDirection, OvertakenFrame] = {}
        self._over = False
        """Is True if the connection was reset by a fault."""
        self._overtook: dict[int, int] = {}
        """Maps the correlation id of a request to that of the request that it overtook. The client expects the response
        to the overtaken request first.
        """
        self._struck: dict[int, tuple[int, StruckEndTxn]] = {}
        """Maps the correlation id of an EndTxn request that a fault hit to (the request's version, its report). An
        entry is removed once the response is seen.
        """
        self._early: dict[int, bytes] = {}
        """Holds responses to requests that have overtaken another request, by the correlation id of the overtaken
        request. Each is sent once the overtaken request has been answered.
        """

    # ------------------------------------------------------------------ what a world does

    @abstractmethod
    def framed(self) -> bool:
        """Return whether the link has any protocol fault, so that bytes must be cut into frames."""

    @abstractmethod
    def hit(self, stream: StreamDirection, api: int) -> LinkFaultState | None:
        """Return the first of the link's protocol faults that acts on a request or response of this API; None if none
        does. The frame is counted for that fault and for those before it in the list, but not for those after it.
        """

    @abstractmethod
    def put(self, stream: StreamDirection, data: bytes, later_s: float) -> None:
        """Send bytes on, `later_s` seconds later than without a fault."""

    @abstractmethod
    def reset(self) -> None:
        """Reset the connection, at both ends."""

    @abstractmethod
    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call `act` after `delay_s` seconds. If the connection has ended by then, `act` has no effect, and the call
        may be left out.
        """

    @abstractmethod
    def now_ns(self) -> int:
        """Return the run's monotonic clock, in ns."""

    def note(self, stream: StreamDirection, api: int, correlation_id: int, size: int, what: str) -> None:  # noqa: B027
        """Record a frame for a run's diagrams of messages. Does nothing unless a subclass overrides it. what: what a
        fault did to the frame, such as "dropped"; empty if no fault acted.
        """

    # ------------------------------------------------------------------ what comes

    def asked(self, data: bytes) -> None:
        """Handle bytes from the client: the side that opened the connection."""
        # After the end of a fault, bytes must not overtake what it still holds.
        if not (self._held or self._requests.holds or self.framed()):
            self._requests.follow(data)
            self.put(StreamDirection.THERE, data, 0.0)
            return
        passing, whole = self._requests.cut(data)
        if passing:
            self.put(StreamDirection.THERE, passing, 0.0)
        for frame in whole:
            if not self._over:
                self._ask(frame)

    def answered(self, data: bytes) -> None:
        """Handle bytes from the broker: the side that accepted the connection."""
        # What a fault did to requests concerns their responses, even after its end.
        waits = self._twice or self._own or self._held or self._overtook or self._early or self._struck
        if not (waits or self._responses.holds or self.framed()):
            self._responses.follow(data)
            self.put(StreamDirection.BACK, data, 0.0)
            return
        passing, whole = self._responses.cut(data)
        if passing:
            self.put(StreamDirection.BACK, passing, 0.0)
        for frame in whole:
            self._answer(frame)

    def unanswered_produces(self) -> int:
        """Count the Produce requests that have passed and whose responses have not."""
        return sum(api == frames.PRODUCE for _, api in self._waiting)

    def lingers_s(self, stream: StreamDirection) -> float:
        """Return by how many seconds to delay passing on the end of a stream. The end of the client's stream is delayed
        if a fault delays an EndTxn request: the broker answers that request only while the connection is open.
        """
        if stream is StreamDirection.BACK or not self._struck:
            return 0.0
        released = max(struck.came_ns / 1e9 + struck.held_ms / 1000 for _, struck in self._struck.values())
        return max(0.0, released + LINGER_S - self.now_ns() / 1e9)

    def ended(self, stream: StreamDirection) -> None:
        """Handle the end of a direction. Bytes that were held back are sent now, even an incomplete frame."""
        self._release(stream, self._held.get(stream))
        if stream is StreamDirection.BACK:
            for correlation_id in list(self._early):
                self._answer_early(correlation_id)
        rest = (self._requests if stream is StreamDirection.THERE else self._responses).rest()
        if rest:
            self.put(stream, rest, 0.0)

    # ------------------------------------------------------------------ frames

    def _ask(self, frame: bytes) -> None:
        # `cut` has found no frame any more: this is the unparsed rest of the stream.
        if self._requests.lost:
            self._release(StreamDirection.THERE, self._held.get(StreamDirection.THERE))
            self.put(StreamDirection.THERE, frame, 0.0)
            return
        _, api, _, correlation_id = frames.request_head(frame)
        if api == frames.FETCH and frames.fetches_metadata(frame):
            api = frames.METADATA_FETCH
        on = self.hit(StreamDirection.THERE, api)
        act = on.fault.act if on is not None else None
        answer = frames.error_answer(frame, on.fault.error) if on is not None and act is FrameAct.ERROR else None
        if on is None or (act is FrameAct.ERROR and answer is None):
            on, act = None, None  # an answer of this API has no place for an error
        # A REORDER has hit only once another frame has overtaken this one.
        elif act is not FrameAct.REORDER:
            on.hits += 1
            self._tell(on, frame, api, correlation_id)
        self.note(StreamDirection.THERE, _known(api), correlation_id, len(frame), DONE[act])
        if act is FrameAct.DROP:
            return
        if act is FrameAct.RESET:
            self._over = True
            self.reset()
            return
        if on is not None and act is FrameAct.REORDER and StreamDirection.THERE not in self._held:
            self._hold(StreamDirection.THERE, OvertakenFrame(on, frame, api, correlation_id))
            return
        if answer is not None:
            self._release(
                StreamDirection.THERE, self._held.get(StreamDirection.THERE)
            )  # its answer is awaited before this one
            self._waiting.append((correlation_id, api))
            self._own[correlation_id] = answer
            self._answer_own()
            return
        self._waiting.append((correlation_id, api))
        self.put(StreamDirection.THERE, frame, _later_s(on))
        if act is FrameAct.DUPLICATE:
            self._twice[correlation_id] = False
            self.put(StreamDirection.THERE, frame, 0.0)
        if (held := self._held.get(StreamDirection.THERE)) is not None:
            held.on.hits += 1
            self._overtook[correlation_id] = held.correlation_id
            self._release(StreamDirection.THERE, held)

    def _tell(self, on: LinkFaultState, frame: bytes, api: int, correlation_id: int) -> None:
        """Add a report to `on.struck` if the fault `on` has hit an EndTxn request. frame: the request; api: its API
        key.
        """
        if api != frames.END_TXN or len(on.struck) >= STRUCK_REPORTS:
            return
        struck = StruckEndTxn(frames.describe_end_txn(frame), self.now_ns(), int(_later_s(on) * 1000))
        on.struck.append(struck)
        if on.fault.act not in (FrameAct.DROP, FrameAct.ERROR):
            self._struck[correlation_id] = (frames.request_head(frame)[2], struck)

    def _answer(self, frame: bytes) -> None:
        if self._responses.lost:
            self._release(StreamDirection.BACK, self._held.get(StreamDirection.BACK))
            self.put(StreamDirection.BACK, frame, 0.0)
            return
        _, correlation_id = frames.response_head(frame)
        if (told := self._struck.pop(correlation_id, None)) is not None:
            version, struck = told
            struck.answer, struck.answered_ns = frames.end_txn_error_in(version, frame), self.now_ns()
        # This is the second response to a duplicated request, of which the client knows nothing.
        if self._twice.get(correlation_id):
            del self._twice[correlation_id]
            return
        if correlation_id in self._twice:
            self._twice[correlation_id] = True
        api = self._answers_to(correlation_id)
        on = self.hit(StreamDirection.BACK, api)
        act = on.fault.act if on is not None else None
        if on is not None and act is not FrameAct.REORDER:
            on.hits += 1
        self.note(StreamDirection.BACK, _known(api), correlation_id, len(frame), act.value if act else "")
        if on is not None and act is FrameAct.REORDER and StreamDirection.BACK not in self._held:
            self._hold(StreamDirection.BACK, OvertakenFrame(on, frame, api, correlation_id))
        elif act is FrameAct.DROP:
            self._overtook.pop(correlation_id, None)
        else:
            self._give(correlation_id, frame, on)
        self._answer_early(correlation_id)
        self._answer_own()

    def _give(self, correlation_id: int, frame: bytes, on: LinkFaultState | None = None) -> None:
        """Send a response to the client. If its request has overtaken an earlier request, keep the response in `_early`
        until the earlier request is answered. If a REORDER fault holds another response, send that one right after this
        one.

        on: the fault that acts on this response; a DELAY fault sends it later.
        """
        first = self._overtook.pop(correlation_id, None)
        if first is not None and any(asked == first for asked, _ in self._waiting):
            self._early[first] = frame
            self.later(BEHIND_S, lambda: self._answer_early(first))  # the first one may never have an answer (acks=0)
            return
        self.put(StreamDirection.BACK, frame, _later_s(on))
        if (held := self._held.get(StreamDirection.BACK)) is not None:
            held.on.hits += 1
            self._release(StreamDirection.BACK, held)

    def _answer_early(self, correlation_id: int) -> None:
        if (frame := self._early.pop(correlation_id, None)) is not None:
            self.put(StreamDirection.BACK, frame, 0.0)

    def _hold(self, stream: StreamDirection, held: OvertakenFrame) -> None:
        """Hold a frame until it is overtaken, or until the fault's `delay_ms` have passed."""
        self._held[stream] = held
        self.later(held.on.fault.delay_ms / 1000, lambda: self._release(stream, held))

    def _release(self, stream: StreamDirection, held: OvertakenFrame | None) -> None:
        """Send `held`, a frame that a REORDER fault keeps back. Do nothing if it is None or was sent before."""
        if held is None or self._held.get(stream) is not held:
            return
        del self._held[stream]
        if stream is StreamDirection.THERE:
            self._waiting.append((held.correlation_id, held.api))
        self.put(stream, held.frame, 0.0)

    def _answer_own(self) -> None:
        """Send the responses that ERROR faults made, each as soon as all earlier requests are answered."""
        while self._waiting and (answer := self._own.pop(self._waiting[0][0], None)) is not None:
            correlation_id, _ = self._waiting.popleft()
            self._give(correlation_id, answer)

    def _saw_request(self, head: bytearray) -> None:
        size, api, _, correlation_id = frames.request_head(head)
        self._waiting.append((correlation_id, api))
        self.note(StreamDirection.THERE, api, correlation_id, size, "")

    def _saw_response(self, head: bytearray) -> None:
        size, correlation_id = frames.response_head(head)
        self.note(StreamDirection.BACK, _known(self._answers_to(correlation_id)), correlation_id, size, "")

    def _answers_to(self, correlation_id: int) -> int:
        """Return the API of the request that this response answers; -1 if there is none. Earlier requests without a
        response are forgotten, because they will never get one (acks=0).
        """
        while self._waiting:
            asked, api = self._waiting.popleft()
            if asked == correlation_id:
                return api
            self._answer_early(asked)
        return -1


def _known(api: int) -> int:
    """Return the API key that a frame has on the wire. It differs from `api` only for METADATA_FETCH, Squall's own
    number for Fetch requests that read the metadata log: their key is FETCH.
    """
    return frames.FETCH if api == frames.METADATA_FETCH else api


def _later_s(on: LinkFaultState | None) -> float:
    return on.fault.delay_ms / 1000 if on is not None and on.fault.act is FrameAct.DELAY else 0.0
