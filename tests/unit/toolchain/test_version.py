"""`squall --version`: one line for each thing that a run depends on, in a checkout and in an installed package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from squall.chaos import __version__, cli
from squall.chaos.toolchain import places, version


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty PATH and an empty cache."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("SQUALL_CACHE", str(tmp_path / "cache"))
    for name in ("JAVA_HOME", "KAFKA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages, empty so far."""
    monkeypatch.setattr(places, "ROOT", tmp_path)
    monkeypatch.setattr(places, "COMMIT_OF_WHEEL", tmp_path / "commit")
    monkeypatch.setattr(places, "COMMIT_OF_SDIST", tmp_path / "COMMIT")
    return tmp_path


def test_each_line_names_a_thing_and_its_version(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    said = dict(re.split(r"  +", line) for line in capsys.readouterr().out.splitlines())
    assert [*said] == ["squall", "commit", "Python", "Java", "Spark", "Toxiproxy", "Kafka"]
    assert said["squall"] == __version__
    assert said["Java"] == said["Toxiproxy"] == said["Kafka"] == "not here"


def test_java_is_given_with_its_build_and_kafka_by_its_jars(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = bare / "bin/java"
    java.parent.mkdir()
    said = ["java.home = /j", "java.specification.version = 17", "java.runtime.version = 17.0.9+9-x"]
    java.write_text("#!/bin/sh\nprintf '    %s\\n' " + " ".join(f"'{each}'" for each in said) + "\n")
    java.chmod(0o755)
    (bare / "kafka/libs").mkdir(parents=True)
    (bare / "kafka/libs/kafka_2.13-4.1.0.jar").touch()
    monkeypatch.setenv("KAFKA_HOME", str(bare / "kafka"))
    found = version.versions()
    assert (found["Java"], found["Kafka"]) == ("17.0.9+9-x", "4.1.0")


def test_an_installed_package_has_the_commit_that_it_was_built_from(packages: Path) -> None:
    assert places.commit() == ""
    assert version.versions()["commit"] == "unknown"
    (packages / "commit").write_text("12ab\n")
    assert places.commit() == "12ab"


def test_an_unpacked_sdist_has_its_own_commit_and_none_of_a_repository_around_it(packages: Path) -> None:
    (packages / "pyproject.toml").touch()
    assert places.commit() == ""
    (packages / "COMMIT").write_text("34cd\n")
    assert places.commit() == "34cd"
