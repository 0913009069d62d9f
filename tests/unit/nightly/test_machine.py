"""Checks what this machine lacks for a run, in one line."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.chaos.nightly import machine
from squall.chaos.nightly.items import PlannedRun, plan_night
from squall.chaos.nightly.machine import missing_for
from squall.chaos.nightly.matrix import MatrixError, make_matrix


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Forget what this machine has, which is asked once for each process."""
    machine._client.cache_clear()
    yield
    machine._client.cache_clear()


def item(command: str, *clients: str) -> PlannedRun:
    """A run of the workload `command`."""
    axes = {"workload": "command", "command": command}
    return plan_night(make_matrix({"runs": [{"axes": axes, "faults": ["kill"], "clients": clients}]}), 1).items[0]


def test_a_program_under_test_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert missing_for(item("./my-producer --fast"), "") == "the program ./my-producer is not there"
    assert missing_for(item("sh my_producer.py"), "") == "my_producer.py is not there"
    assert missing_for(item("sh --in=x.py"), "") == "", "an option is the program's own affair"
    (tmp_path / "my_producer.py").touch()
    assert missing_for(item("sh my_producer.py"), "") == ""


def test_a_library_that_a_program_needs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("squall.chaos.drivers.host.find_spec", lambda name: None if name == "aiokafka" else found(name))
    assert "needs the package aiokafka" in missing_for(item("sh", "aiokafka"), "")


def test_a_library_that_nobody_knows_is_a_mistake_of_the_matrix() -> None:
    with pytest.raises(MatrixError, match=r"runs.0.clients: there is no 'confluence': confluent, aiokafka"):
        make_matrix({"runs": [{"clients": ["confluence"]}]})
