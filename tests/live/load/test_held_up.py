"""Checks what keeps `squall load` from reading on: an open transaction, an unclean election, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from confluent_kafka import Producer

from squall.fixture import SquallCluster, cluster
from tests.architecture.source import ROOT
from tests.live.load.test_load import command, loaded
from tests.support.patience import scaled

TOPIC = "orders"


@pytest.fixture(scope="module")
def brokers() -> Iterator[SquallCluster]:
    with cluster(nodes=3) as made:
        yield made


def send(bootstrap: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value=value, partition=0)
    assert producer.flush(scaled(60)) == 0


def wait_for(seen: Callable[[], bool]) -> None:
    until = time.monotonic() + scaled(180)
    while not seen():
        assert time.monotonic() < until
        time.sleep(0.1)


def rows(lake: Path) -> list[tuple[int, str]]:
    files = f"read_parquet('{lake}/topic=*/partition=*/*.parquet')"
    return duckdb.sql(f'select "offset", value::varchar from {files} order by 1').fetchall()


@pytest.mark.night("starts three brokers, and Spark three times")
def test_records_that_an_unclean_election_took_are_named_once_they_have_been_loaded(tmp_path: Path) -> None:
    with cluster(nodes=3) as brokers:
        brokers.create_topic(
            TOPIC, replication_factor=2, min_insync_replicas="1", unclean_leader_election_enable="true"
        )
        leader = brokers.leader(TOPIC)
        follower = next(node for node in brokers.isr(TOPIC) if node != leader)
        send(brokers.bootstrap, *map(str, range(10)))
        brokers.nemesis.kill(follower)
        send(brokers.bootstrap, "10", "11")
        assert loaded(brokers.bootstrap, tmp_path / "lake").returncode == 0
        brokers.nemesis.kill(leader)
        brokers.nemesis.restart(follower)
        wait_for(lambda: brokers.leader(TOPIC) == follower)
        send(brokers.bootstrap, "a", "b", "c")
        refused = loaded(brokers.bootstrap, tmp_path / "lake")
        assert refused.returncode == 2
        assert "orders-0: offsets 10 to 11 are gone: the leader of epoch " in refused.stderr
        allowed = loaded(brokers.bootstrap, tmp_path / "lake", "--allow-gaps")
    assert allowed.returncode == 0, allowed.stderr
    assert "offsets without a record: 2 gone" in allowed.stdout
    assert rows(tmp_path / "lake") == [*((n, str(n)) for n in range(12)), (12, "c")]
    summary = json.loads((tmp_path / "lake/_squall/summary.json").read_text())
    assert summary["gaps"] == [{"topic": TOPIC, "partition": 0, "first": 10, "end": 12}]


@pytest.mark.night("starts three brokers, and Spark once")
def test_an_open_transaction_is_named_and_ctrl_c_ends_a_load_that_follows(
    brokers: SquallCluster, tmp_path: Path
) -> None:
    brokers.create_topic(TOPIC, replication_factor=3)
    send(brokers.bootstrap, "first")
    open_one = Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": "left-open"})
    open_one.init_transactions()
    open_one.begin_transaction()
    open_one.produce(TOPIC, value="undecided", partition=0)
    open_one.flush()
    said = tmp_path / "stderr"
    given = [*command(brokers.bootstrap, tmp_path / "lake", "--follow", "1s", "--patience", "1s")]
    with (
        said.open("w") as stderr,
        subprocess.Popen(
            given, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=ROOT, start_new_session=True
        ) as process,
    ):
        wait_for(lambda: "held back" in said.read_text() and any(tmp_path.glob("lake/topic=*/partition=*/*.parquet")))
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout is not None
        last = process.stdout.read()
    assert process.returncode == 0
    assert "held back: orders-0: 1 offset from 1 on behind the transaction of left-open (producer " in said.read_text()
    assert "Traceback" not in said.read_text()
    assert ": 1 records, 1 of them now, in " in last
    assert rows(tmp_path / "lake") == [(0, "first")]
    summary = json.loads((tmp_path / "lake/_squall/summary.json").read_text())
    assert summary["held back by"][0]["transactional_id"] == "left-open"
    open_one.abort_transaction()
