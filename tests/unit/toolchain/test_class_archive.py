"""The archive of Spark's classes: made once for each Java and PySpark, and never the reason why a run stops."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from squall.chaos.errors import HarnessError
from squall.chaos.toolchain import class_archive
from squall.chaos.toolchain.java import JavaRuntime

SEVENTEEN = JavaRuntime(Path("/opt/java-17"), 17, "java.runtime.version = 17.0.15+6")


@pytest.fixture(autouse=True)
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PySpark of two jars, and an empty cache."""
    monkeypatch.setenv("SQUALL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "pyspark"
    (folder / "jars").mkdir(parents=True)
    for name in ("one.jar", "two.jar"):
        (folder / "jars" / name).write_text(name)
    monkeypatch.setattr(class_archive, "_spark", lambda: folder)
    return folder


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """In the place of both JVMs: writes the file that each is to write, and is the list of their command lines."""
    return _in_place_of_the_jvms(monkeypatch, lambda: None)


def _in_place_of_the_jvms(monkeypatch: pytest.MonkeyPatch, before: Callable[[], None]) -> list[list[str]]:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> str:
        before()
        commands.append(command)
        if "squall.spark_analysis.class_list" in command:
            Path(command[4]).write_text("java/lang/Object\n")
            return ""
        options = command[command.index("--driver-java-options") + 1].split()
        file = next(each.partition("=")[2] for each in options if each.startswith("-XX:SharedArchiveFile="))
        Path(file).write_text("classes")
        return ""

    monkeypatch.setattr(class_archive, "run", run)
    return commands


def made(java: JavaRuntime = SEVENTEEN) -> Path:
    file = class_archive.class_archive(java, lambda line: None)
    assert file is not None
    return file


def test_it_is_made_once_and_found_afterwards(jvm: list[list[str]]) -> None:
    assert class_archive.class_archive_here(SEVENTEEN) is None
    file = made()
    assert file.read_text() == "classes"
    assert made() == file == class_archive.class_archive_here(SEVENTEEN)
    assert len(jvm) == 2, "one JVM lists the classes, one writes the archive"
    assert [each.name for each in file.parent.iterdir()] == [class_archive.FILE]


def test_none_is_made_for_a_java_that_does_not_take_it(jvm: list[list[str]]) -> None:
    says: list[str] = []
    assert class_archive.class_archive(JavaRuntime(Path("/opt/java-21"), 21), says.append) is None
    assert class_archive.class_archive_here(JavaRuntime(Path("/opt/java-21"), 21)) is None
    assert (says, jvm) == ([], [])


def test_another_java_has_another_one(jvm: list[list[str]]) -> None:
    others = [
        JavaRuntime(Path("/opt/java-21"), 17, SEVENTEEN.build),
        JavaRuntime(SEVENTEEN.home, 17, "java.runtime.version = 17.0.16+8"),
    ]
    assert len({made(), *map(made, others)}) == 3


def test_it_is_made_anew_when_a_jar_changes(jvm: list[list[str]], spark: Path) -> None:
    before = made()
    (spark / "jars/three.jar").touch()
    assert class_archive.class_archive_here(SEVENTEEN) is None
    after = made()
    os.utime(spark / "jars/two.jar", (1, 1))
    assert len({before, after, made()}) == 3


def test_two_at_once_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()

    def before() -> None:
        began.set()
        assert go_on.wait(10)

    commands = _in_place_of_the_jvms(monkeypatch, before)
    found: list[Path] = []
    both = [threading.Thread(target=lambda: found.append(made())) for _ in range(2)]
    for each in both:
        each.start()
    assert began.wait(10)
    go_on.set()
    for each in both:
        each.join(10)
    assert len(found) == 2
    assert len(set(found)) == 1
    assert len(commands) == 2


def test_what_fails_is_said_and_is_not_tried_again_before_a_day_is_over(
    monkeypatch: pytest.MonkeyPatch, jvm: list[list[str]]
) -> None:
    tries = []

    def fails(command: list[str], **_: object) -> str:
        tries.append(command)
        raise HarnessError("the JVM ended with 1:\nno space for the archive")

    says: list[str] = []
    with monkeypatch.context() as broken:
        broken.setattr(class_archive, "run", fails)
        assert class_archive.class_archive(SEVENTEEN, says.append) is None
        assert class_archive.class_archive(SEVENTEEN, says.append) is None
    assert class_archive.class_archive_here(SEVENTEEN) is None
    assert len(tries) == 1
    assert sum("no space for the archive" in line for line in says) == 2
    failure = next(class_archive.cache_folder().glob(f"*/{class_archive.FAILURE}"))
    long_ago = time.time() - class_archive.TRY_AGAIN_S - 1
    os.utime(failure, (long_ago, long_ago))
    assert made().exists()


def test_a_cache_that_cannot_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jvm: list[list[str]]
) -> None:
    (tmp_path / "cache").write_text("a file")
    says: list[str] = []
    assert class_archive.class_archive(SEVENTEEN, says.append) is None
    assert says[-1].startswith("Spark starts without an archive of its classes: ")
    assert class_archive.class_archive_here(SEVENTEEN) is None


def test_those_that_nobody_used_for_long_are_removed(jvm: list[list[str]]) -> None:
    unused, used = JavaRuntime(Path("/opt/java-1"), 17), JavaRuntime(Path("/opt/java-2"), 17)
    files = [made(unused), made(used)]
    for file in files:
        long_ago = time.time() - class_archive.UNUSED_S - 1
        os.utime(file.parent, (long_ago, long_ago))
    assert class_archive.class_archive_here(used) == files[1]
    made()
    assert [file.exists() for file in files] == [False, True]
