"""A stub of a broker, as a program: tests of runtimes use it so that they do not depend on a real broker.

It answers ApiVersions and Metadata on every listener, traces node_ready and node_stopped, and ends on SIGTERM. It has
settings of its own, each with any value: stub.fail ends it at once, stub.deaf makes it never listen nor become ready,
stub.stubborn makes it ignore SIGTERM.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from pathlib import Path

import trio

from squall.broker.protocol.header import decode_request_header, encode_response_header
from squall.broker.protocol.schema.api_versions import ApiVersionsResponse
from squall.broker.protocol.schema.metadata import MetadataResponse, MetadataResponseBroker


def main() -> None:
    """Run until SIGTERM."""
    text = Path(sys.argv[sys.argv.index("--config") + 1]).read_text()
    settings = dict(line.split("=", 1) for line in text.splitlines() if line)
    if settings.get("stub.fail"):
        sys.exit("stub: told to fail")
    trio.run(Stub(settings).run)


class Stub:
    """One stub broker."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.node = int(settings["node.id"])
        peers = [int(peer.split("@")[0]) for peer in settings["squall.peers"].split(",") if peer]
        self.brokers = sorted([self.node, *peers])

    def trace(self, event: str) -> None:
        """Write a line to the trace."""
        line = {
            "t": time.monotonic(),
            "n": f"broker-{self.node}",
            "i": int(self.settings["squall.incarnation"]),
            "e": event,
        }
        with open(self.settings["squall.trace.path"], "a") as file:
            file.write(json.dumps(line) + "\n")

    async def run(self) -> None:
        """Listen, trace node_ready, and wait for SIGTERM."""
        self.trace("node_started")
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                if not self.settings.get("stub.deaf"):
                    for listener in self.settings["listeners"].split(","):
                        host, _, port = listener.partition("://")[2].rpartition(":")
                        listeners = await trio.open_tcp_listeners(int(port), host=host)
                        nursery.start_soon(trio.serve_listeners, self.serve, listeners)
                    self.trace("node_ready")
                async for _ in signals:
                    if not self.settings.get("stub.stubborn"):
                        break
                nursery.cancel_scope.cancel()
        self.trace("node_stopped")

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer the requests of a connection in order until it ends, even by an error."""
        with contextlib.suppress(trio.BrokenResourceError):
            await self.answer_all(stream)

    async def answer_all(self, stream: trio.SocketStream) -> None:
        """Answer requests until the client closes the connection."""
        buffered = bytearray()
        while data := await stream.receive_some():
            buffered += data
            if buffered[:1] >= b"\x80":
                return  # a frame of a negative size
            while len(buffered) >= 4 and len(buffered) >= 4 + (size := int.from_bytes(buffered[:4], "big")):
                frame = bytes(buffered[4 : 4 + size])
                del buffered[: 4 + size]
                answer = self.answer(memoryview(frame))
                await stream.send_all(len(answer).to_bytes(4, "big") + answer)

    def answer(self, frame: memoryview) -> bytes:
        """Return the response to a request, without its length."""
        header = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        if key == ApiVersionsResponse.API_KEY:
            body = ApiVersionsResponse().encode(version)
        else:
            brokers = [MetadataResponseBroker(node_id=node, host="127.0.0.1", port=1) for node in self.brokers]
            body = MetadataResponse(brokers=brokers, controller_id=self.brokers[0]).encode(version)
        return encode_response_header(key, version, header.correlation_id) + body


if __name__ == "__main__":
    main()
