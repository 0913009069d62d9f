"""Work that runs beside judging: started early, finished when its result is needed, and done once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from rich.console import Console

from squall.chaos.runs import judgement
from squall.chaos.runs.background_calls import BackgroundCalls
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.toolchain.java import JavaRuntime
from squall.checkers.stages import LOOK
from tests.support.histories.builder import HistoryBuilder

LIMIT_S = 30


def test_it_goes_on_beside_whoever_began_it() -> None:
    gate, done = threading.Event(), threading.Event()

    def wait() -> None:
        assert gate.wait(LIMIT_S)
        done.set()

    background = BackgroundCalls(wait)
    background.begin()
    assert not done.is_set()
    gate.set()
    background.finish()
    assert done.is_set()


def test_it_is_done_once_and_in_order() -> None:
    done: list[int] = []
    background = BackgroundCalls(lambda: done.append(1), lambda: done.append(2))
    background.settle()
    assert done == [], "nobody began it"
    for _ in range(2):
        background.begin()
        background.finish()
    assert done == [1, 2]


def test_what_one_of_them_raises_is_raised_where_the_results_are_wanted() -> None:
    def fail() -> None:
        raise OSError("no luck")

    background = BackgroundCalls(fail, lambda: pytest.fail("it goes on"))
    background.begin()
    background.settle()
    with pytest.raises(OSError, match="no luck"):
        background.finish()


@pytest.mark.parametrize("code", [0, 1])
def test_what_a_judging_does_beside_spark_begins_when_spark_looks_for_anomalies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    called, order = threading.Event(), []

    def run(
        command: Sequence[str], log: Path, limit_s: float, show: Callable[[str], AbstractContextManager[None]]
    ) -> int:
        log.write_text("no luck\n")
        if code == 0:
            with show(LOOK):
                assert called.wait(LIMIT_S), "beside Spark, and not after it"
        order.append("ends")
        return code

    monkeypatch.setattr(judgement, "java", lambda say: JavaRuntime(tmp_path, 21))
    monkeypatch.setattr(judgement, "class_archive_here", lambda there: None)
    monkeypatch.setattr(judgement, "run_staged", run)
    h = HistoryBuilder()
    h.final([(0, h.sent(h.producer(), 0))])
    directory = RunDirectory(tmp_path)
    directory.history.write_bytes(b"".join(h.lines()))

    def beside() -> None:
        order.append("beside")
        called.set()

    written = judgement.judge(directory, Console(quiet=True), beside=beside)
    assert order == (["beside", "ends"] if code == 0 else ["ends", "beside"])
    assert json.loads(directory.verdict.read_text()) == written
    assert any("Spark ended with code 1: no luck" in reason for reason in written["reasons"]) == bool(code)
