"""A damaged history is nobody's fault but the file's: the verdict is unknown, and says in which file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from checkers.in_memory import Judgement, judge_bytes
from checkers.verdict import UNKNOWN, VALID
from tests.support.histories.builder import MS, HistoryBuilder, generate
from tests.support.histories.nemesis_lines import NEMESIS

PLAN: dict[str, Any] = {
    "workload": {"acks": -1, "min_isr": 2, "replication_factor": 3},
    "limits": {"stuck_s": 15},
    "faults": [{"action": "kill"}, {"action": "partition"}],
}
LINES = 200


@cache
def sound() -> tuple[bytes, ...]:
    """The lines of a history in which nothing is wrong, with sends, polls, seeks, failures and final reads."""
    return tuple(generate(5, sends=32).sealed())


def judged(lines: list[bytes]) -> Judgement:
    converged = {"ok": True, "took_s": 1, "lacking": {}}
    return judge_bytes("r", b"".join(lines), NEMESIS, PLAN, info={"converged": converged})


def is_unknown(lines: list[bytes]) -> bool:
    """And says where."""
    verdict = judged(lines).verdict
    where = [reason for reason in verdict.reasons if reason.startswith("history.jsonl: line ")]
    return verdict.verdict == UNKNOWN and bool(where)


def test_the_whole_history_is_valid() -> None:
    assert judged(list(sound())).verdict.verdict == VALID
    assert LINES <= len(sound()) < LINES + 40


def test_without_any_one_of_its_lines_a_history_is_unknown() -> None:
    lines = list(sound())
    believed = [number + 1 for number in range(len(lines)) if not is_unknown(lines[:number] + lines[number + 1 :])]
    assert not believed


def test_with_any_one_of_its_lines_twice_a_history_is_unknown() -> None:
    lines = list(sound())
    believed = [number + 1 for number in range(len(lines)) if not is_unknown(lines[: number + 1] + lines[number:])]
    assert not believed


def test_with_two_neighbours_exchanged_nothing_is_invented() -> None:
    """Some change nothing that is said, such as two acknowledgements of one moment. None is the cluster's fault."""
    lines = list(sound())
    for number in range(len(lines) - 1):
        swapped = [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]
        assert judged(swapped).verdict.verdict in (VALID, UNKNOWN), f"lines {number + 1} and {number + 2}"


def test_a_history_of_before_there_was_a_last_line_is_still_judged() -> None:
    assert judged(generate(5, sends=41).lines()).verdict.verdict == VALID


# ---------------------------------------------------------------------------------------------------- single values


def _ack(change: Callable[[dict[str, Any]], object]) -> list[bytes]:
    """The history with one acknowledgement changed."""
    lines = list(sound())
    number = next(i for i, line in enumerate(lines) if b'"e":"c"' in line and b'"st":0' in line and b'"ts"' in line)
    line = json.loads(lines[number])
    change(line)
    lines[number] = json.dumps(line).encode() + b"\n"
    return lines


CHANGES: dict[str, dict[str, Any]] = {
    "an acknowledgement before its send": {"t": 0},
    "a negative time": {"t": -5},
    "a time behind the end of the run": {"t": 1 << 50},
    "an offset that is true": {"off": True},
    "an offset that is half": {"off": 0.5},
    "a status that is true": {"st": True},
    "a time that is a text": {"t": "7"},
    "an operation that is true": {"op": True},
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_no_number_or_no_order_of_times_is_unknown(what: str) -> None:
    assert is_unknown(_ack(lambda line: line.update(CHANGES[what])))


@pytest.mark.parametrize("place", range(7))
def test_what_a_poll_got_is_numbers(place: int) -> None:
    lines = list(sound())
    number = next(i for i, line in enumerate(lines) if b'"got":[[0,' in line and json.loads(line)["got"][0][5])
    line = json.loads(lines[number])
    entry = line["got"][0]
    if place == 5:
        entry[5][0][0] = False
    else:
        entry[place] = True
    lines[number] = json.dumps(line).encode() + b"\n"
    assert is_unknown(lines)


def test_an_invocation_before_the_run_began_is_unknown() -> None:
    lines = [sound()[0].replace(b'"mono_ns":0', b'"mono_ns":%d' % (50 * MS)), *sound()[1:]]
    assert is_unknown(lines)


@pytest.mark.parametrize("depth", [1_100, 100_000])
def test_a_line_that_is_nested_deep_is_unknown(depth: int) -> None:
    lines = list(sound())
    lines.insert(len(lines) // 2, b'{"e":"x","t":0,"kind":"note","deep":' + b"[" * depth + b"]" * depth + b"}\n")
    assert is_unknown(lines)


def test_what_a_history_proves_before_it_is_cut_stays_proven() -> None:
    h = HistoryBuilder()
    value = h.sent(h.producer(), 0)
    h.final([(0, value), (1, value)])
    assert [each.anomaly for each in judged(h.sealed()[:-1]).findings] == ["duplicate"]
    assert judged(h.sealed()[:-1]).verdict.verdict == "invalid"
