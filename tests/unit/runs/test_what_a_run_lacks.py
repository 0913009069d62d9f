"""A run that lacks something is refused before anything is fetched or made, and names all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.drivers import host
from squall.chaos.errors import PreconditionError
from squall.chaos.plans.plan import make_plan
from squall.chaos.runs import real
from squall.chaos.toolchain.cache import Say
from squall.checkers.engines import REFERENCE


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty PATH, an empty cache, no engine and no client libraries."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SQUALL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    for name in ("JAVA_HOME", "KAFKA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(host, "find_spec", lambda name: None)
    monkeypatch.setattr("os.getuid", lambda: 0)
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"target": "kafka"}, ("a whole Java", "Apache Kafka's jars", "./squall setup --clients --kafka")),
        ({"runtime": "docker"}, ("no Docker engine", "./squall setup --clients --engine")),
    ],
)
def test_everything_is_told_at_once_and_nothing_was_made(
    nothing: Path, asked: dict[str, str], expected: tuple[str, ...]
) -> None:
    plan = make_plan({**asked, "workload": {"client": "confluent"}})
    with pytest.raises(PreconditionError) as refused:
        real.run_and_judge(plan, nothing / "runs")
    for each in ("--client confluent needs the package", *expected):
        assert each in str(refused.value)
    assert not (nothing / "cache").exists()
    assert not (nothing / "runs").exists()


def test_toxiproxy_is_built_before_the_run_begins(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Building takes minutes on a busy machine, and is no part of starting the cluster."""

    def build(say: Say) -> Path:
        raise PreconditionError("it cannot be built")

    monkeypatch.setattr(real, "toxiproxy_server", build)
    with pytest.raises(PreconditionError, match="it cannot be built"):
        real.run_and_judge(make_plan({"workload": {}}), nothing / "runs", engine=REFERENCE)
    assert list((nothing / "runs").iterdir()) == []


def test_a_run_of_our_own_lacks_nothing_that_is_not_fetched(nothing: Path) -> None:
    assert real.lacks(make_plan({"workload": {}})) == []
