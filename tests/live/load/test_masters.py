"""An executor that is killed in mid-load changes nothing, on a cluster in the driver's JVM and on a standalone one."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import pytest

from squall.chaos.toolchain.java import java
from tests.parity.spark_analysis.standalone import Standalone
from tests.support.load.clusters import one_broker
from tests.support.load.filling import fill
from tests.support.load.loads import (
    EXECUTOR,
    kill_whole,
    load_command,
    load_started,
    load_whole,
    processes_with,
    rows_of_lake,
    wait_during,
)
from tests.support.patience import scaled

RECORDS, SIZE = 6_000, 100
SMALL = ("--records-per-batch", "1000", "--records-per-task", "250")
pytestmark = pytest.mark.night("starts clusters of Spark")


@pytest.fixture
def local_cluster() -> Iterator[str]:
    """Two executors of a core each, with files in the folder of the pyspark package: they are removed."""
    spark = util.find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    work = Path(spark.origin).parent / "work"
    before = set(work.glob("app-*"))
    yield "local-cluster[2,1,1024]"
    for folder in set(work.glob("app-*")) - before:
        shutil.rmtree(folder)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "cluster").mkdir()
    cluster = Standalone(tmp_path / "cluster", java(print).home)
    try:
        cluster.start()
        yield cluster.master
    finally:
        cluster.stop()


@pytest.mark.parametrize("kind", ["local_cluster", "standalone"])
def test_an_executor_killed_in_mid_load_changes_nothing(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    master = request.getfixturevalue(kind)
    undisturbed, lake, log = tmp_path / "undisturbed", tmp_path / "lake", tmp_path / "load.log"
    # The mark is in the command lines of this load's executors alone.
    marked = ("--master", master, "--spark-set", f"spark.executor.extraJavaOptions=-Dload={lake}")
    with one_broker("squall") as bootstrap:
        fill(bootstrap, "orders", RECORDS, SIZE, "lz4")
        done = load_whole(load_command(bootstrap, ["orders"], undisturbed), scaled(300))
        assert done.returncode == 0, done.stderr
        load = load_started(load_command(bootstrap, ["orders"], lake, *SMALL, *marked), log)
        try:
            wait_during(load, lambda: any(lake.glob("_squall/ranges/*/*.json")), log, scaled(300))
            executors = list(processes_with(EXECUTOR, str(lake)))
            assert executors, log.read_text()
            assert load.poll() is None, "the load ended before the kill"
            os.kill(executors[0], signal.SIGKILL)
            assert load.wait(scaled(300)) == 0, log.read_text()
        finally:
            if load.poll() is None:
                kill_whole(load)
    assert rows_of_lake(lake) == rows_of_lake(undisturbed)
