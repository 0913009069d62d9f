"""A damaged history is the fault of the file alone: the verdict is unknown, and says in which file and line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from random import Random
from typing import Any
from zlib import crc32

import pytest

from squall.checkers.history.seal import NOTE
from squall.checkers.in_memory import RunJudgement, judge_bytes
from squall.checkers.verdict import INVALID, UNKNOWN, VALID
from tests.support.effort import stride
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


def judged(lines: list[bytes], info: Mapping[str, Any] | None = None) -> RunJudgement:
    converged = {"ok": True, "took_s": 1, "lacking": {}}
    return judge_bytes("r", b"".join(lines), NEMESIS, PLAN, info={"converged": converged, **(info or {})})


def is_unknown(lines: list[bytes]) -> bool:
    """Return whether the verdict is unknown and names the place of the damage."""
    verdict = judged(lines).verdict
    where = [reason for reason in verdict.reasons if reason.startswith("history.jsonl: line ")]
    return verdict.verdict == UNKNOWN and bool(where)


def test_the_whole_history_is_valid() -> None:
    assert judged(list(sound())).verdict.verdict == VALID
    assert LINES <= len(sound()) < LINES + 40


def test_without_any_one_of_its_lines_a_history_is_unknown() -> None:
    lines = list(sound())
    tried = range(0, len(lines), stride(7))
    believed = [number + 1 for number in tried if not is_unknown(lines[:number] + lines[number + 1 :])]
    assert not believed


def test_with_any_one_of_its_lines_twice_a_history_is_unknown() -> None:
    lines = list(sound())
    tried = range(0, len(lines), stride(7))
    believed = [number + 1 for number in tried if not is_unknown(lines[: number + 1] + lines[number:])]
    assert not believed


def test_with_two_neighbours_exchanged_nothing_is_invented() -> None:
    """Some exchanges change nothing, such as that of two acknowledgements at the same time. None may look like the
    cluster's fault.
    """
    lines = list(sound())
    for number in range(0, len(lines) - 1, stride(7)):
        swapped = [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]
        assert judged(swapped).verdict.verdict in (VALID, UNKNOWN), f"lines {number + 1} and {number + 2}"


def lossy() -> list[bytes]:
    """The lines of a history whose acknowledged record no final read returns."""
    h = HistoryBuilder()
    p = h.producer()
    h.sent(p, 0)
    after = 1, h.sent(p, 1)
    h.final([after])
    return h.sealed()


@pytest.mark.parametrize("cut", [lambda lines: lines[:-1], lambda lines: [*lines[:-1], b"garbage\n", lines[-1]]])
def test_a_history_without_its_last_line_proves_nothing_of_a_run_that_ended(
    cut: Callable[[list[bytes]], list[bytes]],
) -> None:
    """Check that what a killed harness wrote proves what it shows; a run that ended had its last line."""
    ended = {"ended_ns": 1, "phases": [], "heal": {}, "final_reads": []}
    assert judged(lossy(), ended).verdict.verdict == INVALID
    assert judged(cut(lossy())).verdict.verdict == INVALID
    verdict = judged(cut(lossy()), ended).verdict
    assert verdict.verdict == UNKNOWN
    assert any("the history was changed or cut afterwards" in each for each in verdict.reasons), verdict.reasons


def test_a_history_of_before_there_was_a_last_line_is_still_judged_and_the_verdict_says_so() -> None:
    verdict = judged(generate(5, sends=41).lines()).verdict
    assert verdict.verdict == VALID
    assert NOTE in verdict.notes
    assert NOTE not in judged(list(sound())).verdict.notes


@pytest.mark.parametrize("key", ["writes_after_healing", "reads_after_healing"])
def test_a_header_that_no_longer_promises_the_last_line_is_unknown(key: str) -> None:
    later = {key: {"ok": True, "limit_s": 15, "took_s": 1, "lacking": {}, "behind": []}}
    assert judged(list(sound()), later).verdict.verdict == VALID
    header, *lines = sound()[:-1]
    verdict = judged([header.replace(b',"ends":true', b""), *lines], later).verdict
    assert verdict.verdict == UNKNOWN
    assert any(each.startswith("history.jsonl: line 1: the header does not promise") for each in verdict.reasons)


# ------------------------------------------------------------------------------------------------- single bytes


@cache
def digested() -> tuple[bytes, ...]:
    """Return the lines of that history with the checksum that recorders now write."""
    return tuple(with_digest(generate(5, sends=32)))


def with_digest(builder: HistoryBuilder) -> list[bytes]:
    """The history of which the last line holds the CRC-32 of those before it."""
    header, *lines, last = builder.sealed()
    lines = [header[:-2] + b',"seal":"crc32"}\n', *lines]
    return [*lines, last[:-2] + b',"crc32":%d}\n' % crc32(b"".join(lines))]


def with_other_digits(lines: Sequence[bytes], seed: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield, for each line, its number and the history with one digit of it changed."""
    rng = Random(seed)
    for number, line in enumerate(lines):
        at = rng.choice([place for place, char in enumerate(line) if chr(char).isdigit()])
        other = rng.choice([digit for digit in b"0123456789" if digit != line[at]])
        yield number + 1, [*lines[:number], line[:at] + bytes([other]) + line[at + 1 :], *lines[number + 1 :]]


@pytest.mark.parametrize("seed", range(3))
def test_with_any_digit_changed_a_history_is_unknown(seed: int) -> None:
    assert judged(list(digested())).verdict.verdict == VALID
    last = len(digested())
    for number, lines in islice(with_other_digits(digested(), seed), seed % stride(7), None, stride(7)):
        verdict = judged(lines).verdict
        # A last line that says otherwise when the run ended says nothing else.
        expected = (UNKNOWN, VALID) if number == last else (UNKNOWN,)
        assert verdict.verdict in expected, f"line {number}: {verdict.reasons}"


def test_without_the_digest_some_changed_digits_look_like_the_clusters_fault() -> None:
    """So it is the digest that finds them."""
    assert any(judged(lines).verdict.verdict == "invalid" for _, lines in with_other_digits(sound(), 0))


@pytest.mark.parametrize("lost", [b',"crc32":', b',"seal":"crc32"'])
def test_a_promise_of_the_digest_without_it_is_unknown_and_so_is_a_digest_of_other_lines(lost: bytes) -> None:
    lines = [line.replace(lost, b',"gone":' if lost.endswith(b":") else b"") for line in digested()]
    assert is_unknown(lines)


def test_a_history_without_its_last_line_has_no_digest_and_proves_what_it_shows() -> None:
    h = HistoryBuilder()
    value = h.sent(h.producer(), 0)
    h.final([(0, value), (1, value)])
    assert judged(with_digest(h)[:-1]).verdict.verdict == "invalid"


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


@pytest.mark.parametrize("name", ["sned", "", "poll ", "SEND"])
def test_an_operation_of_an_unknown_name_is_unknown_and_no_phantom(name: str) -> None:
    """Nothing is known of what was done under that name, so what is read later may well have been sent by it."""
    lines = list(sound())
    for number in (i for i, line in enumerate(lines) if b'"f":"send"' in line):
        changed = lines[number].replace(b'"f":"send"', b'"f":"%s"' % name.encode())
        verdict = judged([*lines[:number], changed, *lines[number + 1 :]]).verdict
        assert verdict.verdict == UNKNOWN
        said = f"history.jsonl: line {number + 1}: an operation of the unknown name {name!r}; the "
        assert f"{said}{len(lines) - number - 1} lines after it were not read" in verdict.reasons


OFFSETS: tuple[Any, ...] = (None, "4", 0.5, True, -1, 1 << 63, [])


def listed(which: str, off: Any, **more: Any) -> list[bytes]:
    """Return the history with an additional ListOffsets operation."""
    h = generate(5, sends=32)
    reader = h.reader()
    asked = h.operation(reader, "list_offsets", which=which, **{"part": 0, **more})
    asked.completion.update({} if off is None else {"off": off}, epoch=0)
    return h.sealed()


@pytest.mark.parametrize("which", ["latest", "lso", "earliest"])
def test_an_offset_that_was_listed_is_one_that_a_log_has(which: str) -> None:
    assert judged(listed(which, 50)).verdict.verdict == VALID
    for off in OFFSETS:
        lines = listed(which, off)
        verdict = judged(lines).verdict
        answer = next(i for i, line in enumerate(lines) if b'"e":"c"' in line and line.endswith(b'"epoch":0}\n'))
        assert verdict.verdict == UNKNOWN, off
        assert any(each.startswith(f"history.jsonl: line {answer + 1}: ") for each in verdict.reasons), off


def test_no_record_may_be_as_new_as_a_timestamp() -> None:
    assert judged(listed("timestamp", -1)).verdict.verdict == VALID


@pytest.mark.parametrize("asked", [{"which": "latset"}, {"which": None}, {"part": -1}])
def test_what_is_listed_is_known(asked: dict[str, Any]) -> None:
    which, more = asked.get("which", "latest"), {name: value for name, value in asked.items() if name != "which"}
    assert is_unknown(listed(which, 50, **more))


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
