"""A broker as a process, and requests as bytes over plain sockets."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from broker.protocol.header import decode_response_header, encode_request
from broker.protocol.schema.metadata import MetadataRequest, MetadataResponse

READY_S = 30.0


class BrokerProcess:
    """One node as a process."""

    def __init__(self, folder: Path, more: dict[str, str] | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.trace = folder / "trace.jsonl"
        settings = {
            "node.id": "1",
            "listeners": f"CLIENT://127.0.0.1:{self.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.port}",
            "log.dirs": str(folder / "data"),
            "squall.trace.path": str(self.trace),
            **(more or {}),
        }
        config = folder / "broker.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        self.log = folder / "broker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "broker", "--config", str(config)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self.wait_for(lambda: any(e["e"] == "node_ready" for e in self.events()))

    def events(self) -> list[dict[str, object]]:
        text = self.trace.read_text() if self.trace.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def wait_for(self, holds: object, limit_s: float = READY_S) -> None:
        deadline = time.monotonic() + limit_s
        while not holds():  # type: ignore[operator]
            assert self.process.poll() is None, f"the broker ended: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.02)

    def rss_mb(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def stop(self) -> None:
        """End it, in good order if it can."""
        self.process.terminate()
        self.process.wait(60)

    def assert_serves(self) -> None:
        """Another client gets an answer, and the process is still the same one."""
        with self.connect() as client:
            answer = ask(client, MetadataRequest(topics=None), MetadataResponse, 12)
        assert [broker.node_id for broker in answer.brokers] == [1]
        assert self.process.poll() is None


def ask(client: socket.socket, request: object, response: object, version: int) -> object:
    key = request.API_KEY  # type: ignore[attr-defined]
    client.sendall(encode_request(key, version, 7, "test", request.encode(version)))  # type: ignore[attr-defined]
    frame = memoryview(receive_frame(client))
    correlation_id, at = decode_response_header(frame, key, version)
    assert correlation_id == 7
    return response.decode(frame, at, version)[0]  # type: ignore[attr-defined]


def receive_frame(client: socket.socket) -> bytes:
    def exactly(n: int) -> bytes:
        data = b""
        while len(data) < n:
            more = client.recv(n - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    return exactly(int.from_bytes(exactly(4), "big"))


def is_closed(client: socket.socket, limit_s: float = 10.0) -> bool:
    """The broker ended this connection, by FIN or RST."""
    client.settimeout(limit_s)
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True
