"""The image squall/squall: the harness in a container simulates, runs brokers and judges, without network and root."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall.chaos.toolchain.engine import DockerEngine
from squall.chaos.toolchain.images import ImageNames, harness_image
from squall.chaos.toolchain.places import commit
from tests.support.lacks import skip_without

USER = 1234
"""A user id that the image does not have, like that of the machine's user."""
LOSES = ("--acks", "1", "--min-isr", "1", "--faults", "kill,partition", "--expect", "safe")


class HarnessImage:
    """Runs commands in the image, with one folder for all run directories."""

    def __init__(self, image: str, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o777)
        bounds = ("--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        files = ("--read-only", "--tmpfs", "/tmp", "-v", f"{folder}:/work", "--user", f"{USER}:{USER}")
        self.command = ("docker", "run", "--rm", *bounds, *files, image)

    def __call__(self, *words: str, code: int = 0) -> str:
        """Run a command, assert its exit code, and return its output."""
        done = subprocess.run([*self.command, *words], capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def harness(found: tuple[DockerEngine, ImageNames], tmp_path: Path) -> Iterator[HarnessImage]:
    if shutil.which("docker") is None:
        skip_without("the docker program", "install Docker's command line")
    yield HarnessImage(harness_image(found[0], lambda line: None), tmp_path)


def test_it_simulates_judges_and_explains_and_its_runs_stay(harness: HarnessImage) -> None:
    said = harness("--version")
    assert f"commit     {commit() or 'unknown'}\n" in said
    assert "Java       not here\n" in said
    assert "lost-write" in harness("sim", "--seed", "1", *LOSES, code=1)
    (run,) = (each for each in (harness.folder / "runs").iterdir() if each.name.endswith("-seed1"))
    assert (run / "plan.toml").stat().st_uid == USER
    assert run.name in harness("runs")
    judged = harness("verify", "runs/latest", "--engine", "reference", "--expect", "safe", code=1)
    assert "The reference engine searched the history." in judged
    assert "lost-write" in harness("explain", "runs/latest")
    assert "sim --seed" in harness(), "help"


def test_its_own_user_is_not_root_and_writes_into_its_volume(harness: HarnessImage) -> None:
    image = harness.command[-1]
    asked = ["docker", "run", "--rm", "--entrypoint", "sh", image, "-c", "id -u; pwd; touch here && ls"]
    assert subprocess.run(asked, capture_output=True, text=True).stdout.split() == ["1000", "/work", "here"]
    inside = subprocess.run(["docker", "inspect", image], capture_output=True, text=True, check=True).stdout
    assert json.loads(inside)[0]["Config"]["Volumes"] == {"/work": {}}


def test_docker_stop_ends_it_as_ctrl_c_does(harness: HarnessImage) -> None:
    name = f"squall-stopped-{harness.folder.name}"
    command = [*harness.command[:3], "--name", name, *harness.command[3:], "sim", "--seeds", "0..100000", "--jobs", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as started:
        assert started.stderr is not None
        assert started.stderr.readline(), "it ended by itself"
        subprocess.run(["docker", "stop", "-t", "60", name], capture_output=True, check=True)
        started.stderr.read()
    assert started.returncode == 130


@pytest.mark.night("plays a run of real brokers in a container: a minute")
def test_brokers_run_as_its_processes(harness: HarnessImage) -> None:
    words = ("run", "--seed", "7", "--time", "10", "--faults", "kill", "--engine", "reference")
    done = subprocess.run([*harness.command, *words], capture_output=True, text=True)
    # Whether the fault lands in time is this machine's business, and `unknown` says that it did not.
    assert done.returncode in (0, 2), done.stdout + done.stderr
    assert "The reference engine searched the history." in done.stdout
