"""`squall load` of a real cluster: killed again and again, it gives each row once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import duckdb
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from squall.chaos.runtimes.real.processes.ports import free_ports
from tests.architecture.source import ROOT
from tests.live.process.test_real_brokers import cluster_up
from tests.support.patience import scaled

TRANSACTIONS, RECORDS = 60, 50
ABORTED = 5
"""Is how many transactions there are for each that is aborted."""
KILLS = 6


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with the topic orders: 60 transactions of 50 records, each fifth aborted."""
    (port,) = free_ports(1, (), Random())
    with cluster_up("-n", "1", "--port", str(port)) as bootstrap:
        fill(bootstrap, "orders")
        yield bootstrap


def fill(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        done.result()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "compression.type": "lz4"})
    producer.init_transactions()
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for n in range(RECORDS):
            producer.produce(topic, value=f"{number}.{n}", key=str(number), partition=n % 2)
        producer.flush()
        if number % ABORTED == 0:
            producer.abort_transaction()
        else:
            producer.commit_transaction()


def command(bootstrap: str, lake: Path, *more: str) -> Sequence[str]:
    given = ["orders", "--bootstrap", bootstrap, "--to", str(lake), "--records-per-batch", "500", *more]
    return [sys.executable, "-P", "-m", "squall.chaos", "load", *given]


def loaded(bootstrap: str, lake: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(bootstrap, lake, *more), capture_output=True, text=True, cwd=ROOT, timeout=scaled(300)
    )


def rows(lake: Path) -> list[tuple[int, int, str]]:
    files = f"read_parquet('{lake}/topic=*/partition=*/*.parquet', hive_partitioning = true)"
    found = duckdb.sql(f'select partition, "offset", value::varchar from {files} order by all')
    return [(partition, offset, value) for partition, offset, value in found.fetchall()]


COMMITTED = sorted(f"{number}.{n}" for number in range(TRANSACTIONS) for n in range(RECORDS) if number % ABORTED)


@pytest.mark.night("starts Spark eight times")
def test_killed_at_any_moment_each_row_is_there_once(bootstrap: str, tmp_path: Path) -> None:
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    done = loaded(bootstrap, undisturbed)
    assert done.returncode == 0, done.stderr
    assert sorted(value for _, _, value in rows(undisturbed)) == COMMITTED
    rng = Random()
    for _ in range(KILLS):
        with subprocess.Popen(
            command(bootstrap, killed), cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
        ) as process:
            _wait_for_batch(killed, process, rng)
            os.killpg(process.pid, signal.SIGKILL)
    done = loaded(bootstrap, killed)
    assert done.returncode == 0, done.stderr
    assert rows(killed) == rows(undisturbed)


def _wait_for_batch(lake: Path, process: subprocess.Popen[bytes], rng: Random) -> None:
    """Wait until a task has read a range, or the load has ended; then a moment that is drawn."""
    before = len(list(lake.glob("_squall/ranges/*/*.json")))
    until = time.monotonic() + scaled(120)
    while process.poll() is None and len(list(lake.glob("_squall/ranges/*/*.json"))) == before:
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(rng.random())


@pytest.mark.night("starts Spark twice")
def test_a_load_says_what_it_cannot_do(bootstrap: str, tmp_path: Path) -> None:
    assert loaded(bootstrap, tmp_path / "lake").returncode == 0
    other = loaded(bootstrap, tmp_path / "lake", "--isolation", "read_uncommitted")
    assert other.returncode == 2
    assert "was loaded with --isolation read_committed, and read_uncommitted is asked for" in other.stderr
    missing = subprocess.run(
        [*command(bootstrap, tmp_path / "none")[:5], "nowhere", *command(bootstrap, tmp_path / "none")[6:]],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=scaled(300),
    )
    assert missing.returncode == 2
    assert "topic nowhere: UNKNOWN_TOPIC_OR_PARTITION" in missing.stderr
    assert "Traceback" not in missing.stderr


@pytest.mark.gate
def test_a_wrong_address_is_refused_before_spark_starts(tmp_path: Path) -> None:
    done = loaded("here", tmp_path / "lake")
    assert done.returncode == 3
    assert "kafka.bootstrap.servers=here: here is not HOST:PORT" in done.stderr
