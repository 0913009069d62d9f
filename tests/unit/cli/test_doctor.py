"""`squall doctor`: what is here, what is missing, what that costs and how to get it, on a machine that has nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall.chaos.commands.doctor import command
from squall.chaos.toolchain import lookout

GIB = lookout.GIB


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty PATH, an empty cache and no engine."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("SQUALL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setattr("os.getuid", lambda: 4242)
    for name in ("JAVA_HOME", "KAFKA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def told() -> Result:
    return CliRunner().invoke(command, [], standalone_mode=False)


def program(path: Path, says: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}'\n")
    path.chmod(0o755)


def test_a_machine_with_nothing_is_told_what_each_thing_costs_and_how_to_get_it(nothing: Path) -> None:
    said = told().output
    assert said.count("not here") == 7, said
    for each in (
        "the first run fetches one for Spark",
        "the first run builds it with Go from a wheel",
        "no --runtime docker, its tests are skipped",
        "get it: as root: compose/engine.sh",
        "as root: apt-get install -y docker-compose",
        "no --target kafka, its tests are skipped",
        "as root: apt-get install -y default-jre-headless maven; then: ./squall setup --kafka",
        "get it: ./squall setup --java",
        "get it: ./squall setup --toxiproxy",
        "a night has no Allure page, only its results\n                    get it: as root: apt-get install -y npm",
    ):
        assert each in said, said
    assert not (nothing / "cache").exists(), "looking changes nothing"


def test_it_is_one_screen(nothing: Path) -> None:
    assert told().output.count("\n") <= 30


def test_a_run_can_be_had_where_everything_can_be_fetched(nothing: Path) -> None:
    assert told().return_value == 0


def test_what_is_there_is_told_with_its_version_and_place(nothing: Path) -> None:
    program(nothing / "bin/java", f"java.home = {nothing}/java\njava.specification.version = 21")
    program(nothing / "bin/toxiproxy-server", "toxiproxy-server version 2.12.0")
    jars = nothing / "cache/kafka-4.3.1"
    jars.mkdir(parents=True)
    (jars / "kafka_2.13-4.3.1.jar").touch()
    said = told().output
    assert f"21 ({nothing}/java)" in said
    assert f"2.12.0 ({nothing}/bin/toxiproxy-server)" in said
    assert "Apache Kafka      4.3.1" in said
    assert said.count("not here") == 4, "the engine, Chromium, Allure, and what brings compose files up"


def test_where_node_is_a_night_fetches_allure(nothing: Path) -> None:
    for name in ("node", "npm"):
        program(nothing / "bin" / name, "")
    assert "the first night fetches it with npm: 53 MB" in told().output
    (nothing / "cache/allure-3.18.0").mkdir(parents=True)
    assert "Allure            3.18.0\n" in told().output


@pytest.mark.parametrize(
    ("version", "optimised", "better", "costs", "get"),
    [
        ((3, 12), True, "", "", ""),
        ((3, 12), False, "/usr/bin/python3", "5 to 20 % more CPU", "SQUALL_PYTHON=/usr/bin/python3"),
        ((3, 12), False, "", "5 to 20 % more CPU", "distribution"),
        ((3, 15), True, "", "newer than 3.11 to 3.14", ""),
    ],
)
def test_python(version: tuple[int, int], optimised: bool, better: str, costs: str, get: str) -> None:
    part = lookout.python_part(version, "it", optimised=optimised, better=better)
    assert costs in part.costs and bool(costs) is bool(part.costs)
    assert get in part.get and bool(get) is bool(part.get)


def test_limits_that_are_too_low_are_told_and_others_are_not() -> None:
    fine = lookout.limit_parts(2, 8 * GIB, (9 * GIB, "/"), 1024)
    assert [part.costs for part in fine] == [""] * 4
    low = lookout.limit_parts(1, 2 * GIB, (GIB, "/home"), 256)
    assert all(part.costs for part in low)
    assert low[-1].get == "ulimit -n 1024"
