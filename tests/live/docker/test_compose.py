"""compose/cluster.yaml starts a cluster that clients reach and whose links can have faults."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from squall.chaos.runtimes.real.inquiry import probe, visible_brokers
from squall.chaos.runtimes.real.processes.ports import is_free
from squall.chaos.runtimes.real.toxiproxy_api import ToxiproxyApi
from squall.chaos.toolchain.engine import DockerEngine
from squall.chaos.toolchain.images import ImageNames, name_latest
from tests.live.docker.compose_program import compose
from tests.support.lacks import skip_without

FILE = Path(__file__).parents[3] / "compose/cluster.yaml"
HERE = "127.0.0.1"
API, CLIENTS = 18474, (19091, 19092, 19093)


@pytest.fixture
def cluster(found: tuple[DockerEngine, ImageNames]) -> Iterator[None]:
    """Start the cluster under a project name of its own."""
    if not all(is_free(port) for port in (API, *CLIENTS)):
        skip_without(f"ports {API}, {CLIENTS}: somebody's cluster is up", "end that cluster")
    name_latest(*found)
    command = [*compose(), "-p", f"squall-test-{os.getpid()}", "-f", str(FILE)]
    try:
        done = subprocess.run([*command, "up", "-d"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        yield
    finally:
        subprocess.run([*command, "down", "-v", "-t", "5"], capture_output=True, check=True)


async def test_clients_see_every_broker_and_each_link_can_be_cut(cluster: None) -> None:
    with trio.fail_after(60):
        for port in CLIENTS:
            while await sees(port) != {1, 2, 3}:
                await trio.sleep(0.1)
    api = ToxiproxyApi(HERE, API)
    assert len(api.proxies()) == 6 + 3
    api.enable("CLIENT-to-2", False)
    assert not (await probe(HERE, CLIENTS[1], timeout_s=2)).ok
    assert (await probe(HERE, CLIENTS[0], timeout_s=2)).ok
    api.enable("CLIENT-to-2", True)
    assert (await probe(HERE, CLIENTS[1], timeout_s=2)).ok
    api.close()


async def sees(port: int) -> frozenset[int]:
    with trio.move_on_after(1):
        try:
            return await visible_brokers(HERE, port)
        except OSError:
            pass
    return frozenset()
