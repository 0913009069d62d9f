"""The installed package with the lowest version of each dependency, and with the newest that pip finds."""

from __future__ import annotations

from pathlib import Path

import pytest

import squall.spark
from tests.support.installed import Installed, lowest

pytestmark = pytest.mark.night("makes environments with pip and runs clusters: minutes")
SIMULATED = ("sim", "--acks", "1", "--min-isr", "1", "--faults", "kill,partition", "--expect", "safe", "--seed")
LOSES = "1"
"""A seed that loses records."""
TEST = """
import pytest

@pytest.mark.squall_cluster(nodes=1)
def test_a_cluster_is_there(squall_cluster):
    squall_cluster.create_topic("orders", replication_factor=1, min_insync_replicas="1")
    assert squall_cluster.leader("orders") == 1
"""


@pytest.fixture(scope="module", params=["lowest", "newest"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment with every extra and a run directory, which all tests here use."""
    folder, words = tmp_path_factory.mktemp(request.param), ["--upgrade", "--upgrade-strategy", "eager"]
    if request.param == "lowest":
        (folder / "lowest.txt").write_text("".join(f"{name}=={version}\n" for name, version in lowest().items()))
        words = ["-c", str(folder / "lowest.txt")]
    made = Installed(folder, "[all]", *words)
    done = made.squall(*SIMULATED, LOSES)
    assert done.returncode == 1, done.stdout + done.stderr
    assert (made.home / "runs/latest/report.html").read_text().count("<svg") > 1, done.stdout
    return made


def passes(installed: Installed, *words: str, code: int = 0, path: bool = False) -> str:
    done = installed.squall(*words, path=path)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout


def test_pip_finds_no_conflict(installed: Installed) -> None:
    checked = installed.python("-m", "pip", "check")
    assert checked.returncode == 0, checked.stdout


def test_a_run_is_judged_told_drawn_compared_queried_and_packed(installed: Installed) -> None:
    passes(installed, *SIMULATED, "2", code=1)
    one, other = sorted(str(each) for each in (installed.home / "runs").glob("*-seed[12]"))[-2:]
    lossy = next(each for each in (one, other) if each.endswith(f"-seed{LOSES}"))
    assert "lost-write" in passes(installed, "verify", lossy, "--engine", "reference", "--expect", "safe", code=1)
    assert "lost" in passes(installed, "explain", lossy, "lost-write")
    passes(installed, "runs")
    passes(installed, "runs", one, other)
    assert "<svg" in (installed.home / "runs/compared.html").read_text()
    passes(installed, "report", lossy)
    assert "report.html" in passes(installed, "export", lossy)
    assert "lost-write" in passes(installed, "query", lossy, "select name from findings")
    assert "VALID" in passes(installed, "verify", lossy, "--engine", "reference", "--expect", "loss")


def test_the_fixture_has_a_cluster(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(TEST)
    done = installed.python("-m", "pytest", "-q", path=True, where=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("client", ["confluent", "aiokafka", "kafka-python"])
def test_a_cluster_takes_the_load_of_a_client_library(installed: Installed, client: str) -> None:
    words = ("run", "--client", client, "--faults", "none", "--time", "3", "--warmup", "1", "--seed", "7")
    assert "VALID" in passes(installed, *words, "--engine", "reference", path=True)


def test_spark_judges(installed: Installed) -> None:
    (run,) = (installed.home / "runs").glob(f"*-seed{LOSES}")
    asks = "import squall.spark as s; print(*s.__all__)"
    assert installed.python("-c", asks).stdout.split() == squall.spark.__all__
    told = passes(installed, "verify", str(run), "--expect", "safe", code=1, path=True)
    assert "Spark searched the history." in told
    assert "lost-write" in told
