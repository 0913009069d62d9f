"""After `kill -9` of the harness no process survives. `squall clean` ends the processes that are provably a run's, and
no others.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from squall.chaos.cli import run as squall
from squall.chaos.runtimes.real.proc import ProcessId, identify, namespace
from squall.chaos.runtimes.real.processes import registry
from squall.chaos.runtimes.real.processes.child import until
from tests.live.process.conftest import STUB
from tests.support.patience import LONG_S

HARNESS = """
import sys, trio
from pathlib import Path
from squall.chaos.runtimes.real.processes import registry
from squall.chaos.runtimes.process.runtime import ProcessRuntime

async def main():
    runtime = ProcessRuntime(Path(sys.argv[1]), program=tuple(sys.argv[2:]))
    await runtime.start()
    await runtime.pause(2)
    (mine,) = registry.runs()
    print(*(each.process.pid for each in mine.processes), flush=True)
    await trio.sleep_forever()

trio.run(main)
"""

pytestmark = pytest.mark.gate


@pytest.fixture
def own_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty registry of runs, in a cache folder that shares only Toxiproxy with the usual one."""
    from squall.chaos.toolchain.cache import cache_folder

    tools, own = cache_folder(), tmp_path / "cache"
    own.mkdir()
    for tool in tools.glob("toxiproxy-*"):
        (own / tool.name).symlink_to(tool)
    monkeypatch.setenv("SQUALL_CACHE", str(own))
    return own


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Yield an OS process that is marked as belonging to the run "gone"."""
    popen = subprocess.Popen(["sleep", "60"], env={**os.environ, registry.MARK: "gone"})
    yield popen
    popen.kill()
    popen.wait()


def leave_behind(what: ProcessId, harness: ProcessId, **more: object) -> None:
    """Write a registry file like that of a harness that was killed."""
    entry: dict[str, object] = {"run": "gone", "folder": "/nowhere", "harness": asdict(harness), "ports": []}
    entry |= {"namespace": namespace(), **more}
    entry["processes"] = [{"what": "broker 1", "process": asdict(what)}]
    path = registry._runs_folder() / "gone.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(entry))


def asdict(process: ProcessId) -> dict[str, object]:
    return {"pid": process.pid, "start_ticks": process.start_ticks, "boot": process.boot}


def known(popen: subprocess.Popen[bytes]) -> ProcessId:
    process = identify(popen.pid)
    assert process is not None
    return process


def dead() -> ProcessId:
    """Return the id of a harness process that has ended."""
    with subprocess.Popen(["sleep", "60"]) as popen:
        process = known(popen)
        popen.kill()
    return process


@pytest.fixture
def harness(own_registry: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a harness with three stub brokers, one of them paused; it prints the pids of its processes."""
    command = [sys.executable, "-c", HARNESS, str(tmp_path / "run"), *STUB]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path.cwd()) as popen:
        yield popen
        popen.kill()


async def test_no_process_survives_the_harness_being_killed_not_even_a_paused_broker(
    harness: subprocess.Popen[bytes],
) -> None:
    assert harness.stdout is not None
    pids = [int(pid) for pid in (await trio.to_thread.run_sync(harness.stdout.readline)).split()]
    assert len(pids) == 4
    assert all(identify(pid) for pid in pids)
    harness.send_signal(signal.SIGKILL)
    assert await until(lambda: harness.poll() is not None and not any(identify(pid) for pid in pids), LONG_S)
    assert squall(["clean"]) == 0
    assert registry.runs() == []


def test_clean_ends_what_an_ended_run_left_and_forgets_the_run(
    own_registry: Path, sleeper: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    leave_behind(known(sleeper), dead())
    assert squall(["clean"]) == 0
    assert sleeper.wait(LONG_S) == -signal.SIGKILL
    assert f"broker 1 (pid {sleeper.pid})" in capsys.readouterr().out
    assert registry.runs() == []


def test_the_next_run_ends_what_an_ended_run_left_and_forgets_the_run(
    own_registry: Path, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    leave_behind(known(sleeper), dead())
    registry.RunRegistration("next", tmp_path).close()
    assert sleeper.wait(LONG_S) == -signal.SIGKILL
    assert registry.runs() == []


def test_the_next_run_leaves_alone_what_it_cannot_know(
    own_registry: Path, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    leave_behind(known(sleeper), dead(), namespace="pid:[1]")
    registry.RunRegistration("next", tmp_path).close()
    leave_behind(known(sleeper), dead(), hurt=["of-somebody-else"])
    registry.RunRegistration("next", tmp_path).close()
    assert sleeper.poll() is None
    assert len(registry.runs()) == 1


def test_clean_leaves_a_run_alone_whose_harness_is_alive(own_registry: Path, sleeper: subprocess.Popen[bytes]) -> None:
    alive = identify(os.getpid())
    assert alive is not None
    leave_behind(known(sleeper), alive)
    assert squall(["clean"]) == 0
    assert sleeper.poll() is None
    assert len(registry.runs()) == 1


def test_clean_never_ends_a_process_that_got_the_pid_later(
    own_registry: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    process = known(sleeper)
    leave_behind(ProcessId(process.pid, process.start_ticks - 1, process.boot), dead())
    assert squall(["clean"]) == 0
    assert sleeper.poll() is None


def test_clean_never_ends_a_process_that_does_not_say_it_is_of_the_run(own_registry: Path) -> None:
    with subprocess.Popen(["sleep", "60"], env={}) as other:
        leave_behind(known(other), dead())
        assert squall(["clean"]) == 0
        assert other.poll() is None
        other.kill()
