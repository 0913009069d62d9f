"""Forked processes give every task its result, whatever becomes of one of them, and none of them stays."""

import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from squall.chaos.runs import workers
from squall.chaos.runs.workers import SHARE, forked


def died(task: int, why: str) -> tuple[int, str]:
    return task, why


def pids(task: int) -> tuple[int, str]:
    return task, str(os.getpid())


@pytest.mark.parametrize("jobs", [1, 3])
def test_each_task_has_its_result_and_no_process_has_more_than_its_share(jobs: int) -> None:
    found = list(forked(pids, range(2 * SHARE + 3), jobs, died))
    assert sorted(task for task, _ in found) == list(range(2 * SHARE + 3))
    by_process = [pid for _, pid in found]
    assert str(os.getpid()) not in by_process
    assert max(map(by_process.count, by_process)) <= SHARE
    assert len(set(by_process)) >= 3


def test_towards_the_end_shares_get_smaller_so_that_nobody_waits_for_one_process() -> None:
    by_process = [pid for _, pid in forked(pids, range(20), 2, died)]
    assert max(map(by_process.count, by_process)) == 5
    assert min(map(by_process.count, by_process)) == 1


def kills_itself_at_two(task: int) -> tuple[int, str]:
    if task == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return task, "done"


def test_a_process_that_is_killed_takes_one_task_with_it_and_the_others_are_done() -> None:
    found = dict(forked(kills_itself_at_two, range(6), 1, died))
    assert found.pop(2) == "its process was ended by SIGKILL"
    assert found == dict.fromkeys([0, 1, 3, 4, 5], "done")


def test_a_process_that_ends_in_the_middle_of_a_result_is_told_as_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(self: Connection, result: tuple[int, str]) -> None:
        whole(self, result)
        if result[0] == 1:
            os.write(self.fileno(), (1000).to_bytes(4, "big") + b"the first of a thousand bytes")
            os._exit(7)

    whole = Connection.send
    monkeypatch.setattr(Connection, "send", torn)
    found = dict(forked(lambda task: (task, "done"), range(4), 1, died))
    assert found == {0: "done", 1: "done", 2: "its process ended with 7", 3: "done"}


def raises_at_one(task: int) -> tuple[int, str]:
    assert task != 1, "one is too many"
    return task, "done"


def test_what_the_work_raises_is_told_and_ends_its_process(capfd: pytest.CaptureFixture[str]) -> None:
    assert dict(forked(raises_at_one, range(3), 1, died)) == {0: "done", 1: "its process ended with 1", 2: "done"}
    assert "one is too many" in capfd.readouterr().err


def never_ends(task: int) -> tuple[int, str]:
    if task:
        signal.pause()
    return task, str(os.getpid())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_parent_ends_them_and_a_signal_to_all_of_them_does_not(number: signal.Signals) -> None:
    results: Iterator[tuple[int, str]] = forked(never_ends, range(2), 1, died)
    _, pid = next(results)
    os.kill(int(pid), number)  # ignored: the next line would otherwise find it gone
    assert os.waitpid(int(pid), os.WNOHANG) == (0, 0)
    results.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_a_signal_to_end_that_comes_while_a_process_is_forked_is_the_parents() -> None:
    with workers._signals_blocked():
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # the process of the tests may have other threads
        assert signal.SIGINT in signal.sigpending()
        held = signal.sigtimedwait({signal.SIGINT}, 0)
    assert held is not None
