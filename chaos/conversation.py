"""Both directions of one connection and the frames in them, with what protocol faults do to these. Pure.

Worlds give it the bytes that come and carry what it puts: `Conversation` knows no socket and no clock. A protocol fault
strikes whole frames, so that a connection is cut into frames while there is any on its link, and only followed while
there is none. What is no frame passes as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from chaos import frames
from chaos.frames import Framer
from chaos.runtimes.contract import FrameAct, Frames, Stream


class OnLink(Protocol):
    """A fault on a link, and what it has done."""

    fault: Frames
    seen: int
    """Frames of its API, since it began."""
    hits: int
    """Frames that it struck."""


def strike(faults: Iterable[OnLink], stream: Stream, api: int) -> OnLink | None:
    """The fault that strikes the next frame of an API, which is seen by it and by the faults before it."""
    for on in faults:
        fault = on.fault
        if fault.api == api and fault.stream is stream:
            on.seen += 1
            if on.seen >= fault.nth and (fault.count == 0 or on.seen < fault.nth + fault.count):
                return on
    return None


class Conversation(ABC):
    """One connection. THERE are requests, BACK are responses."""

    def __init__(self) -> None:
        self._requests = Framer(frames.REQUEST_HEAD, self._saw_request)
        self._responses = Framer(frames.RESPONSE_HEAD, self._saw_response)
        self._waiting: deque[tuple[int, int]] = deque()
        """(correlation id, API) of requests without an answer yet."""
        self._twice: dict[int, bool] = {}
        """Correlation ids asked twice -> whether the first answer has passed."""
        self._own: dict[int, bytes] = {}
        """Answers of the link's own, by correlation id, that wait for the answers before them."""

    # ------------------------------------------------------------------ what a world does

    @abstractmethod
    def framed(self) -> bool:
        """Whether there is any protocol fault on the link."""

    @abstractmethod
    def hit(self, stream: Stream, api: int) -> OnLink | None:
        """The fault that strikes this frame, as `strike`. Whether it can is counted here."""

    @abstractmethod
    def put(self, stream: Stream, data: bytes, later_s: float) -> None:
        """Send bytes on, so much later than it would be."""

    def note(self, stream: Stream, api: int, correlation_id: int, size: int, what: str) -> None:  # noqa: B027
        """A frame passes, or what was done to it."""

    # ------------------------------------------------------------------ what comes

    def asked(self, data: bytes) -> None:
        """Bytes of the side that opened it."""
        if not self._requests.holds and not self.framed():
            self._requests.follow(data)
            self.put(Stream.THERE, data, 0.0)
            return
        passing, whole = self._requests.cut(data)
        if passing:
            self.put(Stream.THERE, passing, 0.0)
        for frame in whole:
            self._ask(frame)

    def answered(self, data: bytes) -> None:
        """Bytes of the other side."""
        if not (self._twice or self._own or self._responses.holds or self.framed()):
            self._responses.follow(data)
            self.put(Stream.BACK, data, 0.0)
            return
        passing, whole = self._responses.cut(data)
        if passing:
            self.put(Stream.BACK, passing, 0.0)
        for frame in whole:
            self._answer(frame)

    def ended(self, stream: Stream) -> None:
        """No more bytes come from a stream's source: what is no whole frame passes as it is."""
        rest = (self._requests if stream is Stream.THERE else self._responses).rest()
        if rest:
            self.put(stream, rest, 0.0)

    # ------------------------------------------------------------------ frames

    def _ask(self, frame: bytes) -> None:
        if self._requests.lost:
            self.put(Stream.THERE, frame, 0.0)
            return
        _, api, _, correlation_id = frames.request_head(frame)
        on = self.hit(Stream.THERE, api)
        act = on.fault.act if on is not None else None
        answer = frames.error_answer(frame, on.fault.error) if on is not None and act is FrameAct.ERROR else None
        if on is None or (act is FrameAct.ERROR and answer is None):
            on, act = None, None  # an answer of this API has no place for an error
        else:
            on.hits += 1
        if act is FrameAct.DROP:
            self.note(Stream.THERE, api, correlation_id, len(frame), "dropped")
            return
        self._waiting.append((correlation_id, api))
        self.note(Stream.THERE, api, correlation_id, len(frame), act.value if act else "")
        if answer is not None:
            self._own[correlation_id] = answer
            self._answer_own()
            return
        self.put(Stream.THERE, frame, _later_s(on))
        if act is FrameAct.DUPLICATE:
            self._twice[correlation_id] = False
            self.put(Stream.THERE, frame, 0.0)

    def _answer(self, frame: bytes) -> None:
        if self._responses.lost:
            self.put(Stream.BACK, frame, 0.0)
            return
        _, correlation_id = frames.response_head(frame)
        if self._twice.get(correlation_id):
            del self._twice[correlation_id]
            return
        if correlation_id in self._twice:
            self._twice[correlation_id] = True
        api = self._answers_to(correlation_id)
        on = self.hit(Stream.BACK, api)
        act = on.fault.act if on is not None else None
        if on is not None:
            on.hits += 1
        self.note(Stream.BACK, api, correlation_id, len(frame), act.value if act else "")
        if act is not FrameAct.DROP:
            self.put(Stream.BACK, frame, _later_s(on))
        self._answer_own()

    def _answer_own(self) -> None:
        """The link's own answers leave in the requests' order."""
        while self._waiting and (answer := self._own.pop(self._waiting[0][0], None)) is not None:
            self._waiting.popleft()
            self.put(Stream.BACK, answer, 0.0)

    def _saw_request(self, head: bytearray) -> None:
        size, api, _, correlation_id = frames.request_head(head)
        self._waiting.append((correlation_id, api))
        self.note(Stream.THERE, api, correlation_id, size, "")

    def _saw_response(self, head: bytearray) -> None:
        size, correlation_id = frames.response_head(head)
        self.note(Stream.BACK, self._answers_to(correlation_id), correlation_id, size, "")

    def _answers_to(self, correlation_id: int) -> int:
        """The API of the request that this answers. Requests before it are never answered (acks=0)."""
        while self._waiting:
            asked, api = self._waiting.popleft()
            if asked == correlation_id:
                return api
        return -1


def _later_s(on: OnLink | None) -> float:
    return on.fault.delay_ms / 1000 if on is not None and on.fault.act is FrameAct.DELAY else 0.0
