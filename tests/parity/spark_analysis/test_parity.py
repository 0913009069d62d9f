"""The reference finders and Spark's queries agree on every history: on each witness and each measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from squall.checkers.anomalies.registry import find_all
from squall.checkers.findings import Witness, findings_of
from squall.checkers.history import conversion
from squall.checkers.history.tables import SEND, History
from squall.checkers.history.values import AFTER_HEALING
from squall.checkers.leaderships import EVER, Leaderships, LeaderTerm
from squall.checkers.measures import measure
from squall.checkers.mechanisms import BY_LOST_RECORDS, MechanismSign
from squall.checkers.metrics import (
    ACKED,
    AFTERWARDS,
    FRESH_GAP,
    GAP,
    LOAD,
    PRODUCER_GAP,
    PRODUCER_SENDS,
    READER_GAP,
    TRANSACTION_GAP,
    TRIED,
    MeasurementRow,
    context_of,
)
from squall.checkers.signs import PowerLossRange, signed
from squall.checkers.signs import circumstances_of as ground_of
from squall.spark_analysis import witnesses
from squall.spark_analysis.jobs import run_queries
from squall.spark_analysis.query import TooManyRows
from squall.spark_analysis.witnesses import FEW, SCHEMA, rows
from tests.support.histories.anomaly_cases import CASES, PLANTS
from tests.support.histories.builder import MS, GeneratedHistory, HistoryBuilder, generate, merged
from tests.support.histories.group_history import GroupHistory
from tests.support.histories.nemesis_lines import NEMESIS, fault_line
from tests.support.histories.spoilers import retire_doubled
from tests.support.histories.tangle import tangle
from tests.support.histories.waiting_writes import add_writes, drawn_writes
from tests.unit.checkers.test_interruptions import CHANGED, again, without_output
from tests.unit.checkers.test_sent_again import KILLED, doubled, half_lost, overtaken, read_at_both, used_again
from tests.unit.checkers.test_single_clients import LONG, of_ids, one_refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2
"""How many partitions a generated history has."""
NIGHT = pytest.mark.night("plans every query anew; the gate has one session")


def compared(
    spark: SparkSession, run_dir: Path, lines: Sequence[bytes], nemesis: bytes = b"", few: int = FEW
) -> list[Witness]:
    """Assert that both engines find the same, and return it. `few` is the number of witnesses that the driver collects
    without counting them first.
    """
    (run_dir / "history.jsonl").write_bytes(b"".join(lines))
    (run_dir / "nemesis.jsonl").write_bytes(nemesis)
    converted = conversion.convert(run_dir)
    history, faults = conversion.read_lines(run_dir)
    ground = ground_of(led_by_three(history), faults, history.partitions, outputs=bool(history.outputs))
    ground = replace(ground, power_lost=lost_by_two(history))
    context, expected = context_of(history, faults), sorted(signed(history, ground, find_all(history)))
    # Spark gets what it gets of a run: no more than the tables hold.
    kept, kept_faults = conversion.load(run_dir, large=False)
    assert context_of(kept, kept_faults) == context
    out = run_dir / "anomalies"
    told = (context, kept.processes, kept.holds.rows(), ground)
    findings, measures = run_queries(spark, run_dir / conversion.FOLDER, out, converted, *told, few=few)
    assert findings == findings_of(expected)
    assert stored(out) == expected
    _same_measures(sorted(measures), measure(history, context))
    return expected


def led_by_three(history: History) -> Leaderships:
    """Return leaderships in which each partition had three successive leaders, the second of which truncated the first
    one's records.
    """
    sends = [row for row in history.records.rows() if row.kind == SEND]
    first, last = min((row.t0 for row in sends), default=0), max((row.t1 for row in sends), default=0)
    rows = []
    for each in history.partitions:
        starts, middle = (0, max(each.seen, 0) // 3, max(each.seen, 0) // 2), (first + last) // 2
        times = ((0, middle), (middle, last), (last, EVER))
        for epoch, (start, (since, until)) in enumerate(zip(starts, times, strict=True)):
            cut, alone = min(starts[epoch + 1 :], default=EVER), (-1, *(until for _, until in times))[epoch]
            rows.append(LeaderTerm(each.part, epoch, start, since, until, cut, alone))
    return Leaderships(tuple(rows), unknown="", moved=True)


def lost_by_two(history: History) -> tuple[PowerLossRange, ...]:
    """Return the losses of two brokers that lost power while records were sent, the second one after a failed fsync."""
    times = [row.t0 for row in history.records.rows() if row.kind == SEND]
    middle = (min(times, default=0) + max(times, default=0)) // 2
    ranges = []
    for each in history.partitions:
        end = max(each.seen, 0)
        ranges += [PowerLossRange(each.part, end // 4, end * 3 // 4, middle, False)]
        ranges += [PowerLossRange(each.part, end // 2, end, middle * 3 // 2, True)]
    return tuple(ranges)


def stored(folder: Path) -> list[Witness]:
    """Return every witness in the files."""
    table = pq.read_table(folder)
    assert (table.schema.names, table.schema.types) == (SCHEMA.names, SCHEMA.types)
    return sorted(map(Witness._make, rows(table)))


def _same_measures(found: Sequence[MeasurementRow], expected: Sequence[MeasurementRow]) -> None:
    assert [each[:3] for each in found] == [each[:3] for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert len(one.numbers) == len(other.numbers)
        assert all(map(math.isclose, one.numbers, other.numbers)), (one, other)


def clean(seed: int) -> GeneratedHistory:
    """A history without anomalies."""
    return generate(seed, cleanup="compact" if seed == 11 else "delete")


def planted(seed: int) -> list[GeneratedHistory]:
    """Return a history for each anomaly, in which it was planted."""
    histories = []
    for plant in PLANTS.values():
        plant(history := generate(seed))
        histories.append(history)
    return histories


@pytest.mark.gate
def test_both_find_every_planted_anomaly_and_nothing_in_the_clean_histories_beside_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Planning Spark's queries is most of the cost, so all histories are judged at once."""
    without = [clean(seed) for seed in range(10, 13)]
    of_clean = len(without) * PARTITIONS
    found = compared(spark, tmp_path, merged([*without, *planted(0)]), NEMESIS)
    assert {witness.anomaly for witness in found} == set(PLANTS)
    assert not [witness for witness in found if 0 <= witness.part < of_clean]
    lost = {MechanismSign(witness.signs) & BY_LOST_RECORDS for witness in found}
    assert lost == {MechanismSign(0), MechanismSign.POWER_LOST, BY_LOST_RECORDS}, "of which kinds the ground has some"


@NIGHT
@pytest.mark.parametrize(
    ("few", "seeds"), [(FEW, range(2)), (10, [2])], ids=["taken as they are", "counted and picked in Spark"]
)
def test_both_find_every_planted_anomaly(spark: SparkSession, tmp_path: Path, few: int, seeds: Sequence[int]) -> None:
    histories = [each for seed in seeds for each in planted(seed)]
    found = compared(spark, tmp_path, merged(histories), NEMESIS, few)
    assert {witness.anomaly for witness in found} == set(PLANTS)
    assert len(list((tmp_path / "anomalies").glob("anomalies.parquet"))) == (few == FEW)


@NIGHT
def test_both_are_silent_on_clean_histories(spark: SparkSession, tmp_path: Path) -> None:
    histories = [clean(seed) for seed in range(10, 18)]
    assert compared(spark, tmp_path, merged(histories), NEMESIS) == []
    kept, faults = conversion.read_lines(tmp_path)
    assert len(context_of(kept, faults).afterwards) == len(histories)  # each has its writes after healing


@NIGHT
def test_both_say_the_same_of_every_short_history(spark: SparkSession, tmp_path: Path) -> None:
    found = compared(spark, tmp_path, merged([case.build() for case in CASES.values()]))
    assert {(each.anomaly, each.evidence) for each in found} == {pair for case in CASES.values() for pair in case.found}


@NIGHT
def test_both_hold_nothing_against_a_copy_whose_acknowledged_place_was_retired(
    spark: SparkSession, tmp_path: Path
) -> None:
    histories = [generate(seed) for seed in range(20, 26)]
    for each in histories:
        retire_doubled(each)
    found = compared(spark, tmp_path, merged(histories), NEMESIS)
    assert {(witness.anomaly, witness.evidence) for witness in found} == {("duplicate", "reads")}
    assert len(found) == len(histories)


@NIGHT
def test_both_know_what_was_sent_again(spark: SparkSession, tmp_path: Path) -> None:
    """A fault is active all the time: it matters only for clients that do not report how often they sent a record."""
    histories = [history(tries) for history in (doubled, overtaken) for tries in (-1, 1, 2)]
    found = compared(spark, tmp_path, merged(histories), KILLED)
    assert [bool(each.signs & MechanismSign.RESENT) for each in sorted(found, key=attrgetter("part"))] == [
        True,
        False,
        True,
    ] * 2
    tampered = fault_line(action="protocol", began_ms=0, ended_ms=9, params={"api": "Produce", "act": "duplicate"})
    assert all(each.signs & MechanismSign.RESENT for each in compared(spark, tmp_path, merged(histories), tampered))


@NIGHT
def test_both_know_which_failed_sends_were_near(spark: SparkSession, tmp_path: Path) -> None:
    cases = {(29, True): True, (31, True): False, (31, False): True}
    histories = [doubled(-1, after=after) for after in cases]
    for seconds in (4, 6, 44):
        histories.append(h := doubled(-1))
        h.tick(seconds * 1000 * MS)
        for _ in range(3):
            h.info(h.send(0))
            h.tick(31_000 * MS)
    # Leaders change when the first half is over.
    histories.append(h := doubled(1))
    h.tick(400_000 * MS)
    h.sent(0, 3)
    found = compared(spark, tmp_path, merged(histories))
    near = [bool(each.signs & MechanismSign.RESENT) for each in sorted(found, key=attrgetter("part"))]
    assert near[:7] == [*cases.values(), True, False, False, False]


@NIGHT
def test_both_know_what_a_later_epoch_took_back(spark: SparkSession, tmp_path: Path) -> None:
    used_again(again := HistoryBuilder())
    read_at_both(twice := HistoryBuilder())
    histories = [again, half_lost(), twice]
    for place in (1, 5, 9):  # where a record was whose offset is not known
        histories.append(h := HistoryBuilder())
        p, acked = h.producer(), []
        for off in range(24):
            if off == place:
                h.ok(h.send(p), -1)
            acked.append((off, h.sent(p, off)))
            if off > 17:
                h.sent(p, off - 16)
        h.final(acked[:18])
    found = compared(spark, tmp_path, merged(histories))
    untold = {
        MechanismSign(each.signs) & (MechanismSign.LATER_EPOCH | MechanismSign.UNPLACED)
        for each in found
        if each.off < 0
    }
    assert untold == {MechanismSign(0), MechanismSign.LATER_EPOCH, MechanismSign.UNPLACED}
    for name in ("stale-ack", "inconsistent-offset"):
        assert {bool(each.signs & MechanismSign.LATER_EPOCH) for each in found if each.anomaly == name} == {True, False}


@NIGHT
def test_both_know_what_was_interrupted(spark: SparkSession, tmp_path: Path) -> None:
    histories = [without_output(end, goes_on=goes_on) for end in (*CHANGED, "kept") for goes_on in (False, True)]
    histories += [without_output("another group's owners"), without_output("kept", goes_on=True, sent=True)]
    histories += [again(second) for second in ("itself", "another member", "another group", "late", "nobody")]
    histories += [again("itself", more=1)]
    found = compared(spark, tmp_path, merged(histories))
    explained = [bool(each.signs & MechanismSign.INTERRUPTED) for each in sorted(found, key=attrgetter("part"))]
    assert explained == [True, False] * 4 + [False] * 3 + [True] + [True, True, False, False, False] + [False] * 2


@NIGHT
def test_both_find_the_same_cycles_among_many_transactions(spark: SparkSession, tmp_path: Path) -> None:
    found = compared(spark, tmp_path, merged([tangle(seed) for seed in range(40)]))
    circles = [each for each in found if each.anomaly == "G1c"]
    alone = [each for each in found if each.anomaly == "dirty-read"]
    assert 10 < len({each.part for each in circles}) < 40, "in some of the histories, not in all of them"
    assert len(alone) > len(circles), "most of what is read too early closes no circle"


@NIGHT
def test_more_edges_than_the_driver_can_search_end_the_analysis(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witnesses, "SEARCHED", 3)
    with pytest.raises(TooManyRows, match="more than 3 rows of wr_edges"):
        compared(spark, tmp_path, merged([tangle(seed) for seed in range(5)]))


@NIGHT
def test_both_say_the_same_of_a_history_cut_short(spark: SparkSession, tmp_path: Path) -> None:
    plants = list(PLANTS.values())[1::2]
    histories = [generate(seed) for seed in range(len(plants))]
    for plant, history in zip(plants, histories, strict=True):
        plant(history)
    text = b"".join(merged(histories))
    compared(spark, tmp_path, [text[: int(len(text) * 0.6)]], NEMESIS)


@NIGHT
def test_both_say_nothing_of_a_history_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    assert compared(spark, tmp_path, []) == []


@NIGHT
def test_both_keep_writes_after_healing_out_of_the_load(spark: SparkSession, tmp_path: Path) -> None:
    h = HistoryBuilder(2)
    h.sent(h.producer(), 0)
    after = h.producer(**{AFTER_HEALING: True})
    h.sent(after, 1)
    h.sent(after, 0, part=1)
    h.send(after, 1)
    compared(spark, tmp_path, h.lines(), NEMESIS)
    kept, faults = conversion.read_lines(tmp_path)
    acked = [each[1:] for each in measure(kept, context_of(kept, faults)) if each.name == ACKED]
    assert acked == [(0, LOAD, (1,)), (0, AFTERWARDS, (1,)), (1, AFTERWARDS, (1,))]


@NIGHT
def test_both_count_a_gap_anew_from_a_fresh_clients_write(spark: SparkSession, tmp_path: Path) -> None:
    h = HistoryBuilder(3)
    load, fresh = h.producer(), h.producer(**{AFTER_HEALING: True})
    for part in range(3):
        h.sent(load, 0, part)
    h.tick(100 * MS)
    open_ones = [h.send(load, part) for part in range(3)]
    for off in (1, 2):
        h.sent(fresh, off, part=1)
    for send in open_ones:
        h.info(send)
    h.sent(fresh, 3, part=2)
    compared(spark, tmp_path, h.lines(), NEMESIS)
    kept, faults = conversion.load(tmp_path)
    assert [each.a for each in measure(kept, context_of(kept, faults)) if each.name == FRESH_GAP] == [1]


@NIGHT
def test_both_measure_the_same_of_writes_that_overlap_touch_and_stand_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    h = HistoryBuilder(60)
    for part in range(60):
        add_writes(h, drawn_writes(part), part)
    compared(spark, tmp_path, h.lines(), fault_line(began_ms=120, ended_ms=140))
    kept, faults = conversion.read_lines(tmp_path)
    measures = measure(kept, context_of(kept, faults))
    assert sum(each.name == GAP and each.numbers[0] > 12 * MS for each in measures) > 5, "some are of several writes"


@NIGHT
def test_both_measure_the_same_of_single_producers_and_transactional_ids(spark: SparkSession, tmp_path: Path) -> None:
    histories = [*(h for h, _, _ in LONG), of_ids(how="aborted"), of_ids(committed=2), one_refused(acked=2, number=2)]
    compared(spark, tmp_path, merged(histories), fault_line(began_ms=8_000, ended_ms=9_000))
    kept, faults = conversion.read_lines(tmp_path)
    names = {each.name for each in measure(kept, context_of(kept, faults))}
    assert {PRODUCER_GAP, TRANSACTION_GAP, PRODUCER_SENDS, TRIED} <= names


@NIGHT
def test_both_take_no_heartbeat_for_a_proof_while_brokers_were_apart(spark: SparkSession, tmp_path: Path) -> None:
    h = GroupHistory(3)
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0, 1: 0, 2: 0})
    h.assigned(two, {0: 0, 1: 0, 2: 0}, 2)
    before, apart = h.tick(), h.tick()
    for part, (beat, commits) in enumerate(((before, False), (apart, False), (apart, True))):
        for proc, gen in ((one, 1), (two, 2)):
            if commits:
                h.commit(proc, {part: 1}, gen=gen)
            h.revoked(proc, [part], beat, gen)
    nemesis = fault_line(action="partition", began_ms=apart // MS, ended_ms=99)
    assert [each.part for each in compared(spark, tmp_path, h.lines(), nemesis)] == [0, 2]


@NIGHT
def test_both_wait_for_readers_and_not_for_producers_that_poll(spark: SparkSession, tmp_path: Path) -> None:
    h = HistoryBuilder()
    producer, reader = h.producer(), h.reader()
    for proc in (producer, reader):
        for _ in range(3):
            h.now += 100 * MS
            h.poll(proc, [], at=3, position=3, hw=9)
    compared(spark, tmp_path, h.lines(), NEMESIS)
    kept, faults = conversion.read_lines(tmp_path)
    waited = {each.a for each in measure(kept, context_of(kept, faults)) if each.name == READER_GAP}
    assert waited == {reader}


@NIGHT
def test_both_let_a_member_wait_only_for_what_it_owns(spark: SparkSession, tmp_path: Path) -> None:
    h = GroupHistory(2)
    one, two, outside = h.member(), h.member(), h.reader()
    for turn in range(3):
        h.assigned(one, {0: 3, 1: 3})
        for _ in range(turn + 2):
            for reader in (one, outside):
                h.now += 100 * MS
                h.poll(reader, [], at=3, position=3, hw=9)
        h.revoked(one, [0])
        h.assigned(two, {0: 3})
        h.now += 2000 * MS
        h.poll(two, [], at=3, position=3, hw=9)
        h.lost(two, [0])
    compared(spark, tmp_path, h.lines(), fault_line(began_ms=1, ended_ms=2))
    kept, faults = conversion.read_lines(tmp_path)
    waited = {each[1:3]: each.numbers for each in measure(kept, context_of(kept, faults)) if each.name == READER_GAP}
    assert waited[one, 0][0] < 1000 * MS < waited[outside, 0][0]


@NIGHT
def test_both_know_who_was_told_of_an_end_that_others_had_heard_to_be_passed(
    spark: SparkSession, tmp_path: Path
) -> None:
    h = HistoryBuilder()
    readers = [h.reader(isolation=isolation) for isolation in (0, 1)]
    other = h.reader()
    for hw, lso, epoch in ((3, 3, 0), (9, 3, 0), (9, 9, 0), (9, 9, 1), (3, 3, 1)):
        h.now += 100 * MS
        h.poll(other, [], at=hw, position=hw, hw=hw, lso=lso, epoch=epoch)
        for reader in readers:
            h.now += 100 * MS
            h.poll(reader, [], at=3, position=3, hw=3, lso=3, epoch=0)
    compared(spark, tmp_path, h.lines(), fault_line(began_ms=1, ended_ms=2))
    kept, faults = conversion.read_lines(tmp_path)
    waited = {each.a: each.numbers for each in measure(kept, context_of(kept, faults)) if each.name == READER_GAP}
    assert waited[readers[0]][0] > waited[readers[1]][0] > 300 * MS, "stable ends are known later"
