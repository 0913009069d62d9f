"""Operations around faults and findings: all of a partition, in the right lanes, with their words and witnesses."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from squall.reports import operations_section
from squall.reports.operations import COLOURS
from squall.reports.operations_read import read_operations
from squall.reports.page import render
from squall.reports.run_files import read_run
from tests.unit.reports.conftest import LOST, at

SEND, READ, EMPTY = 0, 1, 2
Row = tuple[int, int, int, int, int, int, float, float]
"""kind, st, process, operation, offset, value, from, to: in seconds of the run directories of `conftest`."""


def write_records(run_dir: Path, rows: Sequence[Row], final: Sequence[int] = ()) -> None:
    """history/records.parquet of partition 0. final: processes of final readers."""
    columns = {
        "kind": pa.array([row[0] for row in rows], pa.int8()),
        "st": pa.array([row[1] for row in rows], pa.int8()),
        "proc": pa.array([row[2] for row in rows], pa.int32()),
        "part": pa.array([0 for _ in rows], pa.int32()),
        "op": pa.array([row[3] for row in rows], pa.int64()),
        "off": pa.array([row[4] for row in rows], pa.int64()),
        "val": pa.array([row[5] for row in rows], pa.int64()),
        "t0": pa.array([at(row[6]) for row in rows], pa.int64()),
        "t1": pa.array([at(row[7]) if row[7] >= 0 else -1 for row in rows], pa.int64()),
        "final": pa.array([int(row[2] in final) for row in rows], pa.int8()),
    }
    (run_dir / "history").mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), run_dir / "history" / "records.parquet")


AROUND: list[Row] = [
    (SEND, 0, 3, 9, 60, LOST, 4.4, 4.41),
    (SEND, 1, 3, 10, -1, LOST + 1, 4.402, 4.5),
    (SEND, 2, 4, 11, -1, (4 << 40) + 1, 4.5, 4.6),
    (READ, 0, 5, 12, 58, LOST - 2, 4.41, 4.42),
    (READ, 0, 5, 12, 59, LOST - 1, 4.41, 4.42),
    (EMPTY, 0, 5, 13, -1, -1, 4.43, 4.9),
    (SEND, 0, 3, 14, 61, LOST + 5, 9.0, 9.1),
]


def test_operations_of_a_stretch_are_read_with_all_that_a_poll_got(lost_dir: Path) -> None:
    write_records(lost_dir, AROUND)
    found = read_operations(read_run(lost_dir), 0, 2.0, 3.0)
    assert [(each.op, each.role, each.outcome) for each in found] == [
        (9, "producer", "ok"), (10, "producer", "fail"), (12, "reader", "read"), (13, "reader", "empty"),
        (11, "producer", "info"),
    ]  # fmt: skip
    assert found[0].text.endswith("process 3   send of record 7 of process 3 (operation 9): acknowledged at offset 60")
    assert found[2].text.endswith("poll: offsets 58 to 59 (2 records)") and found[3].text.endswith("poll: nothing")
    assert found[1].text.endswith("failed for certain") and found[4].text.endswith("unknown outcome")


def test_what_was_under_way_before_the_stretch_is_in_it(lost_dir: Path) -> None:
    write_records(lost_dir, AROUND)
    assert [each.op for each in read_operations(read_run(lost_dir), 0, 2.7, 2.8)] == [13]


def test_the_page_shows_operations_around_the_witness_which_leads_to_its_own(lost_dir: Path) -> None:
    write_records(lost_dir, AROUND)
    text = render(lost_dir).read_text()
    assert '<h2 id="operations">' in text and "around the record of lost-write (reads)" in text
    ((first, colour),) = re.findall(r'<a href="#(witness-[\w-]+)"><rect id="op-9"[^>]* fill="([^"]+)"', text)
    assert f'id="{first}"' in text and colour == COLOURS["ok"]
    assert '<text x="110" y=' in text and ">process 3, sends<" in text and ">process 5, reads<" in text


def test_a_valid_run_shows_operations_around_its_faults(run_dir: Path) -> None:
    write_records(run_dir, [(SEND, 0, 3, 100 + n, n, (3 << 40) + n, 4.9 + n / 10, 4.95 + n / 10) for n in range(5)])
    text = render(run_dir).read_text()
    assert re.search(r"appends-0-0, 2.60 to \d+.\d+ s: around kill → broker 1", text)
    assert len(re.findall(r'id="op-\d+"', text)) == 5 and "broker 2 leads, epoch 1" in text


def test_sends_in_flight_at_once_stand_below_each_other(lost_dir: Path) -> None:
    write_records(lost_dir, AROUND)
    text = render(lost_dir).read_text()
    rows = {op: re.search(rf'id="op-{op}" x="[\d.]+" y="([\d.]+)"', text) for op in (9, 10)}
    assert rows[9] and rows[10] and float(rows[10][1]) > float(rows[9][1])


MANY: list[Row] = [
    (SEND, 0, 3, 1000 + n, n, (3 << 40) + 1000 + n, 4.1 + n / 1000, 4.105 + n / 1000) for n in range(900)
]


def test_every_operation_is_shown_and_those_near_the_middle_have_boxes_of_their_own(lost_dir: Path) -> None:
    write_records(lost_dir, [*MANY, AROUND[0]])
    text = render(lost_dir).read_text()
    assert "901 operations. " in text and "have no room" not in text
    assert len(re.findall(r"send of record \d+ of process 3 \(operation \d+\)", text.split("<pre>", 1)[1])) >= 901
    first, *others = text.split('<svg class="operations"')[1:]
    boxes = re.findall(r'<rect id="op-(\d+)"', first.split("</svg>")[0])
    assert len(boxes) == operations_section.SINGLE_AT_MOST and "9" in boxes
    together = re.findall(rf'<path d="([^"]+)" fill="{re.escape(COLOURS["ok"])}"', first)
    assert sum(each.count("M") for each in together) == 901 - len(boxes)
    again = [each for other in others for each in re.findall(r'<rect id="op-(\d+)"', other)]
    assert not set(again) & set(boxes), "a name stands once on a page"


def test_what_has_no_room_is_counted_and_the_page_says_where_it_is(
    lost_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations_section, "SECTION_BYTES", 40_000)
    write_records(lost_dir, [*MANY, AROUND[0]])
    text = render(lost_dir).read_text()
    found = re.search(r"(\d+) operations; (\d+) more, .* history.jsonl has them, at t from (\d+) to (\d+)\.", text)
    assert found is not None
    shown, left, first, last = map(int, found.groups())
    assert shown + left == 901 and shown < 120 and first < last
    assert at(4.0) <= first and last <= at(5.1)
    assert 'id="op-9"' in text, "the one in question has room first"


def test_a_long_fault_without_room_for_all_of_it_has_its_begin_and_its_end(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Row] = [(SEND, 0, 3, n, n, (3 << 40) + n, 4.0 + n / 100, 4.005 + n / 100) for n in range(1600)]
    write_records(run_dir, rows)
    nemesis = run_dir / "nemesis.jsonl"
    faults = [json.loads(line) for line in nemesis.read_text().splitlines()]
    for fault in faults:
        if (fault.get("ended") or -1) >= 0:
            fault["ended"] += 6_000_000_000
    nemesis.write_text("".join(json.dumps(fault) + "\n" for fault in faults))
    whole = render(run_dir).read_text().count('<details class="operations"')
    monkeypatch.setattr(operations_section, "SECTION_BYTES", 100_000)
    text = render(run_dir).read_text()
    assert text.count('<details class="operations"') == whole + 1
    assert len(text) < 1_500_000


@pytest.mark.usefixtures("drawn")
def test_a_run_of_many_faults_stays_a_page(lost_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations_section, "WINDOWS_AT_MOST", 1)
    write_records(lost_dir, AROUND)
    text = render(lost_dir).read_text()
    assert text.count('<details class="operations"') == 1
    assert re.search(r"\d+ more stretches are not shown here. history.jsonl has every operation.", text)


def test_a_damaged_history_leaves_the_section_out_and_nothing_else(lost_dir: Path) -> None:
    write_records(lost_dir, AROUND)
    path = lost_dir / "history" / "records.parquet"
    path.write_bytes(path.read_bytes()[:200])
    text = render(lost_dir).read_text()
    assert '<h2 id="operations">' not in text and '<h2 id="checks">' in text
