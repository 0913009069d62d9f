"""`python -m bench.relay` measures round trips over links with and without the frame relay, and the relay's CPU time.
The frame relay is the harness's proxy between clients and brokers that parses Kafka requests.

A stub answers every request. One OS process keeps connections busy at a fixed rate, as brokers and clients do in a run.
Meanwhile all links are probed at the same time, again and again, with the probe that the nemesis uses in a run. Each
probe opens a new connection. Toxiproxy is not part of the measured links.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import trio

from squall.chaos.runtimes.real import inquiry

HERE = "127.0.0.1"
READY_S = 20.0
BUSY = 24
"""Counts the connections that carry the load, as many as three brokers and eight clients have."""
TICKS = os.sysconf("SC_CLK_TCK")


def main(given: Sequence[str] | None = None) -> int:
    """Measure round trips without and with the frame relay, and print a table of their percentiles and the relay's CPU
    use. Return the exit code 0.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.relay", description=__doc__)
    parser.add_argument("--links", type=int, default=12)
    parser.add_argument("--rate", type=int, default=600, help="round trips a second that keep the relay busy")
    parser.add_argument("--seconds", type=float, default=5)
    args = parser.parse_args(given)
    print(f"{'':14}{'new connection, all links at once, ms':>40}{'open connection, ms':>28}{'relay CPU':>12}")
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as folder:
        for name in ("without relay", "with relay"):
            new, kept, cpu = measured(name == "with relay", args, Path(folder))
            print(f"{name:14}{percentiles(new):>40}{percentiles(kept):>28}{cpu:>11.1%} ".rstrip())
    return 0


def percentiles(times_ms: Sequence[float]) -> str:
    """Return the percentiles 50, 90 and 99 as text."""
    cuts = quantiles(times_ms, n=100)
    return " / ".join(f"{cuts[at - 1]:.2f}" for at in (50, 90, 99))


def measured(relayed: bool, args: argparse.Namespace, folder: Path) -> tuple[list[float], list[float], float]:
    """Measure links that go through the frame relay if `relayed`, otherwise directly to the stub. Returns the round
    trips in ms of new connections, those of an open connection, and the share of a CPU that the relay used (0 without
    it).
    """
    stub, *listening = _ports(args.links + 2)
    with _process(_answer, stub):
        if not relayed:
            ports = [stub] * args.links
            with _process(_keep_busy, ports, args.rate):
                return *trio.run(_probes, ports, args.seconds), 0.0
        control, ports = listening[0], listening[1:]
        routes = [{"link": f"1->{at}", "listen": [HERE, port], "to": [HERE, stub]} for at, port in enumerate(ports)]
        path = folder / "routes.json"
        path.write_text(json.dumps({"control": [HERE, control], "routes": routes}))
        relay = subprocess.Popen([sys.executable, "-P", "-m", "squall.chaos.runtimes.real.frame_relay", str(path)],
                                 env={**os.environ, "PYTHONPATH": os.getcwd()})  # fmt: skip
        try:
            _wait_for(control)
            with _process(_keep_busy, ports, args.rate):
                time.sleep(1)
                began, used = time.monotonic(), _cpu_s(relay.pid)
                new, kept = trio.run(_probes, ports, args.seconds)
                return new, kept, (_cpu_s(relay.pid) - used) / (time.monotonic() - began)
        finally:
            relay.kill()
            relay.wait()


async def _probes(ports: Sequence[int], seconds: float) -> tuple[list[float], list[float]]:
    new: list[float] = []
    kept: list[float] = []

    async def one(port: int) -> None:
        probe = await inquiry.probe(HERE, port, timeout_s=5)
        assert probe.ok, probe.error
        new.append(probe.round_trip_ms)

    frame = inquiry.probe_frames(0)[0]
    async with await trio.open_tcp_stream(HERE, ports[0]) as stream:
        until = trio.current_time() + seconds
        while trio.current_time() < until:
            async with trio.open_nursery() as nursery:
                for port in ports:
                    nursery.start_soon(one, port)
            for _ in range(10):
                began = trio.current_time()
                await stream.send_all(frame)
                await stream.receive_some()
                kept.append((trio.current_time() - began) * 1000)
                await trio.sleep(0.005)
    return new, kept


def _answer(port: int) -> None:
    """Run the stub: it answers every request on `port` with an empty ApiVersions response that has the request's
    correlation id.
    """
    look = selectors.DefaultSelector()
    listener = socket.create_server((HERE, port), backlog=100)
    look.register(listener, selectors.EVENT_READ)
    held: dict[socket.socket, bytes] = {}
    while True:
        for key, _ in look.select():
            if key.fileobj is listener:
                end, _ = listener.accept()
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                held[end] = b""
                look.register(end, selectors.EVENT_READ)
                continue
            end = key.fileobj  # type: ignore[assignment]
            try:
                data = end.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                look.unregister(end)
                end.close()
                del held[end]
                continue
            rest = held[end] + data
            while len(rest) >= 4 and len(rest) >= 4 + (size := int.from_bytes(rest[:4], "big")):
                # ApiVersions v0: no error, no APIs.
                end.sendall((10).to_bytes(4, "big") + rest[8:12] + b"\0" * 6)
                rest = rest[4 + size :]
            held[end] = rest


def _keep_busy(ports: Sequence[int], rate: int) -> None:
    """Send requests at a fixed rate over the connections in turn, without waiting for answers."""
    ends = [socket.create_connection((HERE, ports[at % len(ports)])) for at in range(BUSY)]
    for end in ends:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setblocking(False)
    frame, due, at = inquiry.probe_frames(0)[0], time.monotonic(), 0
    while True:
        end = ends[at % BUSY]
        try:
            end.recv(1 << 16)
        except BlockingIOError:
            pass
        end.send(frame)
        at, due = at + 1, due + 1 / rate
        time.sleep(max(0.0, due - time.monotonic()))


@contextmanager
def _process(body: Callable[..., None], *given: Any) -> Iterator[None]:
    found = multiprocessing.get_context("fork").Process(target=body, args=given, daemon=True)
    found.start()
    if body is _answer:
        _wait_for(given[0])
    try:
        yield
    finally:
        assert found.pid is not None
        os.kill(found.pid, signal.SIGKILL)
        found.join()


def _wait_for(port: int) -> None:
    until = time.monotonic() + READY_S
    while True:
        try:
            socket.create_connection((HERE, port)).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _ports(count: int) -> list[int]:
    found = [socket.create_server((HERE, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return ports


if __name__ == "__main__":
    sys.exit(main())
