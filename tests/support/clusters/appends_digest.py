"""Runs the workload `appends` over a scripted cluster from each seed, and prints a digest of everything that it did.

It is a program (`python -m tests.support.clusters.appends_digest HISTORY SEED...`), so that a test can run it in OS
processes with different hash seeds.
"""

from __future__ import annotations

import gc
import hashlib
import random
import sys
from pathlib import Path

import trio
from trio.testing import MockClock

from squall.workloads.appends import AppendsLoad
from tests.support.clusters.driven import DrivenCluster
from tests.support.clusters.fake_cluster import Break, FakeCluster

SETTINGS = AppendsLoad(rate=50, max_bytes=300, request_timeout_ms=1000, delivery_timeout_ms=2000)


async def play(seed: int, path: str) -> str:
    run = DrivenCluster(Path(path), SETTINGS, seed)
    cluster = run.cluster
    chance = random.Random(f"links {seed}")
    cluster.script.append(lambda seen: Break(apply=chance.random() < 0.5) if chance.random() < 0.03 else None)

    async def fail_over() -> None:
        await trio.sleep(1)
        cluster.move("appends-0", 0, 2)
        cluster.stop(3)
        await trio.sleep(1)
        cluster.start(3)

    await run.play(2, fail_over, timeout_s=10)
    return digest(run.path, cluster)


def digest(history: Path, cluster: FakeCluster) -> str:
    found = hashlib.sha256(history.read_bytes())
    for seen in cluster.seen:
        found.update(repr((seen.node, seen.link, seen.api_key, seen.version, seen.at)).encode())
    return f"{found.hexdigest()} {len(cluster.seen)} requests"


def main() -> None:
    gc.disable()
    # What the simulator does: trio's order of tasks then comes from this generator, and from nothing else.
    trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[attr-defined]
    for seed in map(int, sys.argv[2:]):
        trio._core._run._r.seed(seed)  # type: ignore[attr-defined]
        sys.stdout.write(trio.run(play, seed, f"{sys.argv[1]}-{seed}", clock=MockClock(autojump_threshold=0)) + "\n")


if __name__ == "__main__":
    main()
