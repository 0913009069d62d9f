"""Checks which Apache Kafka is taken, with jars that are only names."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.errors import PreconditionError
from squall.chaos.toolchain import kafka
from squall.chaos.toolchain.cache import cache_folder


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a Java 17 and nothing else."""
    folder = tmp_path / "bin"
    program(folder / "java", f"java.home = {tmp_path}\njava.specification.version = 17")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("SQUALL_CACHE", str(tmp_path / "cache"))
    for name in ("JAVA_HOME", "KAFKA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4242)
    return tmp_path


def program(path: Path, says: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}'\n")
    path.chmod(0o755)


def jars(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    (folder / f"kafka_2.13-{version}.jar").touch()
    return folder


def test_the_distribution_that_kafka_home_names_is_taken(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libs = jars(ground / "dist/libs", "4.1.0")
    monkeypatch.setenv("KAFKA_HOME", str(ground / "dist"))
    found = kafka.apache_kafka(lambda line: pytest.fail(line))
    assert found.version == "4.1.0"
    assert found.command("kafka.Kafka", ["f"], flags=["-Xmx1g"])[1:] == [
        "-Xmx1g",
        "-cp",
        f"{libs}/*",
        "kafka.Kafka",
        "f",
    ]


def test_a_second_version_is_another_one(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars(ground / "dist/libs", "4.1.0")
    jars(ground / "newer/libs", "4.3.1")
    monkeypatch.setenv("KAFKA_HOME", str(ground / "dist"))
    first = kafka.apache_kafka(lambda line: pytest.fail(line))
    assert kafka.second_kafka(str(ground / "newer"), first).version == "4.3.1"
    with pytest.raises(PreconditionError, match="it is Apache Kafka 4.1.0 too"):
        kafka.second_kafka(str(ground / "dist"), first)
    with pytest.raises(PreconditionError, match="holds no libs/kafka_"):
        kafka.second_kafka(str(ground), first)


def test_jars_in_the_cache_are_taken_without_fetching(ground: Path) -> None:
    assert not kafka.kafka_is_here()
    jars(cache_folder() / f"kafka-{kafka.VERSION}", kafka.VERSION)
    assert kafka.kafka_is_here()
    assert kafka.apache_kafka(lambda line: pytest.fail(line)).version == kafka.VERSION


def test_an_old_kafka_is_refused_by_its_version(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars(ground / "dist/libs", "3.9.1")
    monkeypatch.setenv("KAFKA_HOME", str(ground / "dist"))
    with pytest.raises(PreconditionError, match=r"holds Apache Kafka 3\.9\.1: 4\.0 or newer is needed"):
        kafka.apache_kafka(lambda line: None)


def test_a_kafka_home_without_jars_is_refused(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(ground))
    with pytest.raises(PreconditionError, match=r"holds no libs/kafka_\*\.jar"):
        kafka.apache_kafka(lambda line: None)


def test_without_jars_and_without_maven_the_refusal_says_how_to_get_it(ground: Path) -> None:
    with pytest.raises(
        PreconditionError,
        match=r"set KAFKA_HOME .* or install Maven.*\n"
        r"get it: as root: apt-get install -y maven; then: \./squall setup --kafka$",
    ):
        kafka.apache_kafka(lambda line: None)
    assert not kafka.kafka_is_here(), "a fetch that failed leaves nothing that looks whole"


def test_all_that_is_missing_is_told_at_once_with_one_line_that_gets_it(ground: Path) -> None:
    (ground / "bin/java").unlink()
    with pytest.raises(PreconditionError) as refused:
        kafka.apache_kafka(lambda line: None)
    *_, needed_java, needed_jars, get_it = str(refused.value).splitlines()
    assert needed_java.startswith("  a whole Java (17, 21, 25)")
    assert needed_jars.startswith("  Apache Kafka's jars")
    assert get_it == "get it: as root: apt-get install -y default-jre-headless maven; then: ./squall setup --kafka"


def test_of_jars_without_java_only_java_is_missing(ground: Path) -> None:
    jars(cache_folder() / f"kafka-{kafka.VERSION}", kafka.VERSION)
    assert kafka.kafka_lacks() == []
    (ground / "bin/java").unlink()
    with pytest.raises(PreconditionError, match=r"get it: as root: apt-get install -y default-jre-headless; then: "):
        kafka.apache_kafka(lambda line: None)
