"""The converter accepts or reports any damage of a history, and the steps after it work with the result."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from squall.checkers.anomalies.registry import find_all
from squall.checkers.findings import findings_of
from squall.checkers.history import conversion
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import FAIL
from squall.checkers.measures import measure
from squall.checkers.metrics import context_of, shape
from squall.checkers.verdict import UNKNOWN, VALID, judge
from tests.support.histories.builder import generate
from tests.support.histories.group_history import GroupHistory
from tests.support.histories.nemesis_lines import NEMESIS

ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [-1, 0, 1, 7, 1 << 31, 1 << 63, -(1 << 63), 1 << 70, 0.5, 1e300, "", "x", "3", [], {}, [[]], [None]]
    ),
)


def _lines() -> list[bytes]:
    h = GroupHistory(2, cleanup="compact")
    producer, reader = h.producer(), h.reader()
    value = h.sent(producer, 0, key="k")
    h.info(h.send(producer))
    h.operation(reader, "assign", at={"0": 0, "1": 0})
    h.poll(reader, [(0, value)])
    h.poll(reader, [(1, -1)]).bad = [(0, 1, "checksum")]
    h.list_offsets(reader, 1)
    h.operation(reader, "seek", at={"0": 0})
    h.operation(reader, "admin", what="delete_records", part=0)
    h.event("rebalance", p=reader)
    h.event("note", text="hello")
    h.final([(0, value)])
    h.final([], part=1)
    member = h.member(session_timeout_ms=3000)
    h.joined(member, [0, 1], beat=-1)
    h.assigned(member, {0: 0, 1: 0})
    h.commit(member, {0: 1}, st=FAIL, errs={"0": "OFFSET_METADATA_TOO_LARGE"})
    h.fetched(member, {0: 1, 1: -1})
    h.reset(member, part=0)
    h.revoked(member, [0], h.now)
    h.lost(member, [1])
    h.commit(member, {0: 1}, st=-1)
    return h.lines()


LINES = _lines()


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a JSON value."""
    found = [path] if path else []
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += _places(inner, (*path, key))
    return found


PLACES = [(number, place) for number, line in enumerate(LINES) for place in _places(json.loads(line))]


def _replace(line: bytes, place: tuple[Any, ...], odd: Any) -> bytes:
    value = json.loads(line)
    inner = value
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = odd
    return json.dumps(value).encode() + b"\n"


def _judged(lines: list[bytes], nemesis: bytes) -> str:
    with TemporaryDirectory() as folder:
        run_dir = Path(folder)
        (run_dir / "history.jsonl").write_bytes(b"".join(lines))
        (run_dir / "nemesis.jsonl").write_bytes(nemesis)
        conversion.convert(run_dir)
        kept, faults = conversion.load(run_dir)
        context = context_of(kept, faults)
        metrics = shape(measure(kept, context), context)
        return judge(run_dir, findings_of(find_all(kept)), metrics, expect="safe").verdict


@given(st.sampled_from(PLACES), ODD)
@example((5, ("settings", "round")), True)
@example((len(LINES) - 1, ("at", "0")), -1)
@example((len(LINES) - 1, ("gen",)), 1 << 31)
@example((len(LINES) - 2, ("parts", 0)), 1 << 31)
def test_one_odd_value_anywhere_stops_nothing(where: tuple[int, tuple[Any, ...]], odd: Any) -> None:
    number, place = where
    lines = list(LINES)
    lines[number] = _replace(lines[number], place, odd)
    assert _judged(lines, NEMESIS)


@given(st.data())
def test_one_odd_value_in_the_nemesis_log_stops_nothing(data: st.DataObject) -> None:
    lines = NEMESIS.splitlines(keepends=True)
    number = data.draw(st.integers(0, len(lines) - 1))
    place = data.draw(st.sampled_from(_places(json.loads(lines[number]))))
    lines[number] = _replace(lines[number], place, data.draw(ODD))
    assert _judged(LINES, b"".join(lines))


@given(st.data())
def test_noise_anywhere_stops_nothing_and_is_never_valid(data: st.DataObject) -> None:
    text = b"".join(generate(1, sends=10).lines())
    at = data.draw(st.integers(0, len(text) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=8))
    kept = parse((text[:at] + noise + text[at:]).splitlines(keepends=True))
    find_all(kept)


@given(st.integers(0, 10_000))
def test_a_clean_history_is_silent(seed: int) -> None:
    assert find_all(generate(seed).history()) == []


def test_the_history_that_is_damaged_here_is_judged_at_all() -> None:
    assert _judged(LINES, b"") in (UNKNOWN, VALID, "invalid")
