"""Sends requests as bytes over a plain socket, for contents and orders that no client library would send."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any

from squall.broker.protocol.apis import response_class
from squall.broker.protocol.header import decode_response_header, encode_request


def frame_of(request: Any, version: int, correlation_id: int = 7, client_id: str | None = "raw") -> bytes:
    """Return the request's frame: length, header and body."""
    return encode_request(request.API_KEY, version, correlation_id, client_id, request.encode(version))


class RawClient:
    """One connection. Raises TimeoutError after `limit_s` without a byte, and AssertionError if the broker has closed
    it.
    """

    def __init__(self, port: int, limit_s: float = 100.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), limit_s)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes, whatever they are."""
        self.socket.sendall(data)

    def end_sending(self) -> None:
        """Close the sending half of the connection."""
        self.socket.shutdown(socket.SHUT_WR)

    def frame(self) -> bytes:
        """Receive the next response, without its length."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, count: int) -> bytes:
        data = bytearray(count)
        left = memoryview(data)
        while left:
            received = self.socket.recv_into(left)
            assert received, "the broker closed the connection"
            left = left[received:]
        return bytes(data)

    def answer(self, request: Any, version: int, correlation_id: int = 7) -> Any:
        """Receive the next response, and decode it as the answer to this request."""
        view = memoryview(self.frame())
        found, at = decode_response_header(view, request.API_KEY, version)
        assert found == correlation_id, "responses leave in the order of their requests"
        return response_class(request.API_KEY).decode(view, at, version)[0]

    def ask(self, request: Any, version: int) -> Any:
        """Send a request, and wait for its response."""
        self.send(frame_of(request, version))
        return self.answer(request, version)

    def pipeline(self, *requests: tuple[Any, int]) -> list[Any]:
        """Send all of these (request, version) pairs before reading a response. Returns the responses in order."""
        self.send(b"".join(frame_of(*asked, number) for number, asked in enumerate(requests)))
        return [self.answer(*asked, number) for number, asked in enumerate(requests)]

    def is_closed(self, limit_s: float = 60.0) -> bool:
        """Return whether the broker ends this connection within that time, by FIN or RST."""
        self.socket.settimeout(limit_s)
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True
