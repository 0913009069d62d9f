"""RealEnv's clocks, randomness, threads and trace."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
import trio

from squall.broker.env import Env
from squall.broker.real_clock import CLOCK_LOOK_INTERVAL_S, RealClock
from squall.broker.real_env import RealEnv


class FakeTime:
    """time.monotonic and time.time under the test's hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mono, self.wall = 1000.0, 5_000_000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.mono)
        monkeypatch.setattr(time, "time", lambda: self.wall)

    def advance(self, seconds: float) -> None:
        self.mono += seconds
        self.wall += seconds


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


def say(path: Path, text: str) -> None:
    """Replace the file as the nemesis does."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def test_without_a_file_the_clock_is_true(fake: FakeTime, tmp_path: Path) -> None:
    for clock in (RealClock(), RealClock(str(tmp_path / "missing"))):
        assert clock.mono() == 1000.0
        assert clock.wall_ms() == 5_000_000_000


def test_an_offset_moves_wall_time_and_leaves_monotonic_time(fake: FakeTime, tmp_path: Path) -> None:
    path = tmp_path / "offset"
    say(path, "-86400000\n")
    clock = RealClock(str(path))
    assert clock.wall_ms() == 5_000_000_000 - 86_400_000
    assert clock.mono() == 1000.0


def test_the_file_is_looked_at_no_more_often_than_each_50_ms(fake: FakeTime, tmp_path: Path) -> None:
    path = tmp_path / "offset"
    clock = RealClock(str(path))
    clock.wall_ms()
    say(path, "250")
    fake.advance(CLOCK_LOOK_INTERVAL_S / 2)
    assert clock.wall_ms() == int(fake.wall * 1000)
    fake.advance(CLOCK_LOOK_INTERVAL_S)
    assert clock.wall_ms() == int(fake.wall * 1000 + 250)


def test_removing_the_file_heals_the_clock(fake: FakeTime, tmp_path: Path) -> None:
    path = tmp_path / "offset"
    say(path, "777 1.0")
    clock = RealClock(str(path))
    clock.wall_ms()
    path.unlink()
    fake.advance(1)
    assert clock.wall_ms() == int(fake.wall * 1000)


def test_a_rate_bends_both_clocks_from_the_moment_it_is_seen(fake: FakeTime, tmp_path: Path) -> None:
    path = tmp_path / "offset"
    clock = RealClock(str(path))
    clock.mono()
    fake.advance(10)
    say(path, "0 1.5")
    assert clock.mono() == 1010.0
    fake.advance(10)
    assert clock.mono() == 1025.0
    assert clock.wall_ms() == 5_000_025_000
    say(path, "0 1.0")
    fake.advance(2)
    assert clock.mono() == 1028.0
    fake.advance(1)
    assert clock.mono() == 1029.0


def test_a_half_written_file_changes_nothing_until_it_parses(fake: FakeTime, tmp_path: Path) -> None:
    path = tmp_path / "offset"
    say(path, "100")
    clock = RealClock(str(path))
    assert clock.wall_ms() == 5_000_000_100
    for text in ("", "1.5x", "5 0"):
        say(path, text)
        fake.advance(1)
        assert clock.wall_ms() == int(fake.wall * 1000 + 100)


@pytest.mark.trio
async def test_a_fast_node_waits_less_real_time(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    path = tmp_path / "offset"
    say(path, "0 2.0")
    env: Env = RealEnv("node-1", clock_offset_path=str(path))
    began = trio.current_time()
    await env.sleep(10)
    assert trio.current_time() - began == pytest.approx(5)
    with env.timeout(4) as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() - began == pytest.approx(7)


@pytest.mark.trio
async def test_cpu_runs_in_another_thread_and_returns_the_result() -> None:
    env: Env = RealEnv("node-1")
    assert await env.cpu(threading.get_ident) != threading.get_ident()
    assert await env.cpu(divmod, 7, 2) == (3, 1)


def test_the_seed_fixes_the_random_source() -> None:
    assert RealEnv("a", seed=7).rng.random() == RealEnv("b", seed=7).rng.random()
    assert RealEnv("a").rng.random() != RealEnv("a").rng.random()


def test_each_trace_line_says_when_who_and_what(tmp_path: Path, fake: FakeTime) -> None:
    path = tmp_path / "trace.jsonl"
    env: Env = RealEnv("broker-1", incarnation=3, trace_path=str(path))
    env.trace("became_leader", topic="t", isr=(1, 2), id=b"\x01\xff")
    env.trace("node_stopped")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {
        "t": 1000.0,
        "w": 5_000_000_000,
        "n": "broker-1",
        "i": 3,
        "e": "became_leader",
        "topic": "t",
        "isr": [1, 2],
        "id": "01ff",
    }
    assert lines[1]["e"] == "node_stopped"


def test_a_second_incarnation_appends_to_the_same_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    for incarnation in (1, 2):
        RealEnv("broker-1", incarnation, trace_path=str(path)).trace("node_started")
    assert [json.loads(line)["i"] for line in path.read_text().splitlines()] == [1, 2]


def test_lines_that_the_disk_refused_are_counted_in_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.jsonl"
    env = RealEnv("broker-1", trace_path=str(path))

    def refuse(fd: int, data: bytes) -> int:
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        env.trace("a")
        env.trace("b")
    env.trace("c")
    assert json.loads(path.read_text())["lost_lines"] == 2
    env.close()
    env.trace("d")
