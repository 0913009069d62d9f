"""Checks what takes too long after healing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.checkers.anomalies.stuck import ProgressAfterHealing, liveness, progress_after_healing, read
from squall.checkers.history.tables import ClientProcess, ObservedPartition
from squall.checkers.metrics import FRESH_GAP, HEALED_GAP, OVERALL, READER_GAP, MeasurementRow, StuckLimits


@pytest.mark.parametrize(("seconds", "stuck"), [(None, 0), (0.5, 2), (2.0, 0)])
def test_only_what_takes_longer_than_the_plan_allows_is_a_finding(seconds: float | None, stuck: int) -> None:
    measures = [
        MeasurementRow(HEALED_GAP, OVERALL, 0, (9e9, 0.0)),
        MeasurementRow(HEALED_GAP, 4, 0, (1e9, 0.0)),
        MeasurementRow(READER_GAP, 7, 4, (1e9, 0.0)),
    ]
    findings = liveness(measures, StuckLimits(seconds, seconds))
    assert len(findings) == stuck
    if findings:
        producer, consumer = findings
        assert (producer.anomaly, producer.evidence, producer.proc) == ("stuck-producer", "load", -1)
        assert producer.witnesses[0].part == 4
        assert (consumer.anomaly, consumer.witnesses[0].part, consumer.proc) == ("stuck-consumer", 4, 7)


@pytest.mark.parametrize(
    ("served_s", "found"),
    [
        (2, [("client", 28)]),
        (12, [("load", 12), ("client", 18)]),
        (22, [("load", 22)]),
        (None, [("load", 30)]),
    ],
)
def test_from_the_first_write_of_a_fresh_client_on_the_loads_clients_stand_still(
    served_s: int | None, found: list[tuple[str, int]]
) -> None:
    """A gap of 30 s begins at 100 s. A new client is acknowledged `served_s` later; at most 10 s are permitted."""
    measures = [MeasurementRow(HEALED_GAP, 4, 0, (30e9, 100e9))]
    if served_s is not None:
        measures.append(MeasurementRow(FRESH_GAP, 4, 0, ((30 - served_s) * 1e9, (100 + served_s) * 1e9)))
    findings = liveness(sorted(measures, reverse=True), StuckLimits(10, 10))
    assert [(each.evidence, each.witnesses[0].other // 10**9) for each in findings] == found
    assert {each.anomaly for each in findings} == {"stuck-producer"}


PARTITIONS = [ObservedPartition(part, "t", part, "delete", -1) for part in range(2)]
LIMITS = StuckLimits(15, 15)


def info(**other: Any) -> dict[str, Any]:
    """Return run.json of a successful run, with the fields of `other` replaced."""
    written = {"ok": True, "limit_s": 15, "took_s": 0.1, "lacking": {}}
    whole = {"process": 9, "round": 1, "isolation": 0, "records": 4, "missing": {}, "waiting": [], "idle_s": 0}
    polled = {"ok": True, "readers": 1, "partitions": 2, "limit_s": 15, "took_s": 0.1, "behind": []}
    sound = {
        "trouble": None,
        "converged": {"ok": True},
        "writes_after_healing": written,
        "reads_after_healing": polled,
        "final_reads": [whole],
    }
    return {**sound, **other}


def hung(idle_s: float, **other: Any) -> list[dict[str, Any]]:
    """Return the final reads of a run in which one waited for t-1 until its time was over."""
    read = {"process": 9, "missing": {"t-1": "TIMED_OUT"}, "waiting": ["t-1"], "idle_s": idle_s}
    return [{**read, **other}]


def test_what_takes_writes_and_is_read_after_healing_is_no_finding() -> None:
    assert progress_after_healing(info(), PARTITIONS, LIMITS) == ProgressAfterHealing([], [], {})


def test_a_partition_that_takes_no_write_after_healing_is_a_stuck_producer() -> None:
    lacking = {"t-1": "NOT_ENOUGH_REPLICAS; leader 2, ISR [2]"}
    found = progress_after_healing(
        info(writes_after_healing={"ok": False, "limit_s": 15, "took_s": 15.0, "lacking": lacking}), PARTITIONS, LIMITS
    )
    (finding,) = found.findings
    assert (finding.anomaly, finding.evidence, finding.parts) == ("stuck-producer", "writes", ((1, 1),))
    assert finding.witnesses[0].other == 15_000_000_000
    assert found.notes == ["t-1 took no write within 15 s after healing: NOT_ENOUGH_REPLICAS; leader 2, ISR [2]"]


@pytest.mark.parametrize(("idle_s", "count"), [(14.9, 0), (15.0, 1)])
def test_a_final_read_that_gets_nothing_for_as_long_as_the_plan_allows_is_a_stuck_consumer(
    idle_s: float, count: int
) -> None:
    found = progress_after_healing(info(final_reads=hung(idle_s)), PARTITIONS, LIMITS)
    assert [(each.anomaly, each.evidence, each.proc, each.parts) for each in found.findings] == [
        ("stuck-consumer", "final", 9, ((1, 1),))
    ][:count]
    assert not found.passed_over


def behind(idle_s: float) -> dict[str, Any]:
    """A reader of the workload that did not poll what was written to t-1 after healing."""
    about = {"process": 4, "client": "confluent", "place": "t-1", "position": 7, "goal": 8, "why": "leader 2"}
    return {"ok": False, "limit_s": 15, "took_s": 20.0, "behind": [{**about, "idle_s": idle_s}]}


def test_a_reader_of_the_workload_that_gets_nothing_for_as_long_as_the_plan_allows_is_a_stuck_consumer() -> None:
    found = progress_after_healing(info(reads_after_healing=behind(15.0)), PARTITIONS, LIMITS)
    (finding,) = found.findings
    assert (finding.anomaly, finding.evidence, finding.proc) == ("stuck-consumer", "live", 4)
    assert (finding.parts, finding.witnesses[0].other) == (((1, 1),), 15_000_000_000)
    assert found.notes == [
        "reader 4 (confluent) got nothing for 15.0 s after healing: t-1 at 7, wanted 8; leader 2",
    ]


def test_of_a_group_the_notes_name_the_group_and_no_reader_of_it() -> None:
    """The harness waits for a group as a whole, under its first process."""
    told = behind(15.0)
    told["behind"].append({**told["behind"][0], "place": "t-0", "position": -1})
    members = [ClientProcess(4, "reader", "program", "", "", {"group": "g"})]
    assert progress_after_healing(info(reads_after_healing=told), PARTITIONS, LIMITS, members).notes == [
        "group g (confluent) got nothing for 15.0 s after healing: t-1 at 7, wanted 8; leader 2",
        "group g (confluent) got nothing for 15.0 s after healing: t-0 never read, wanted 8; leader 2",
    ]


def test_a_reader_that_still_gets_nothing_when_fresh_ones_got_everything_has_the_evidence_client() -> None:
    told = behind(15.0)
    told["behind"][0]["outlasted"] = True
    assert [
        each.evidence for each in progress_after_healing(info(reads_after_healing=told), PARTITIONS, LIMITS).findings
    ] == ["client"]


def test_a_reader_of_the_workload_that_is_slow_is_no_finding_and_leaves_the_run_unknown() -> None:
    found = progress_after_healing(info(reads_after_healing=behind(3.0)), PARTITIONS, LIMITS)
    assert not found.findings
    (behind_at_the_end,) = found.behind
    assert behind_at_the_end.startswith("reader 4 (confluent) was slow: 20 s after the writes after healing")


def test_a_reader_that_lacks_what_it_does_not_wait_for_is_not_stuck() -> None:
    reads = hung(0.0, missing={"t-1": "OFFSET_OUT_OF_RANGE"}, waiting=[])
    assert progress_after_healing(info(final_reads=reads), PARTITIONS, LIMITS).findings == []


@pytest.mark.parametrize(
    ("other", "passed_over"),
    [
        ({"trouble": "Toxiproxy ended"}, {"stuck-producer", "stuck-consumer"}),
        ({"writes_after_healing": None}, {"stuck-producer", "stuck-consumer"}),
        ({"harness": ["Toxiproxy ended"], "final_reads": []}, {"stuck-producer", "stuck-consumer"}),
        ({"reads_after_healing": None, "final_reads": []}, {"stuck-consumer"}),
        ({"converged": {"ok": False}}, {"stuck-consumer"}),
        ({"converged": {"ok": False}, "reads_after_healing": behind(15.0)}, {"stuck-consumer"}),
        ({"final_reads": None}, {"stuck-consumer"}),
    ],
)
def test_what_could_not_show_is_not_looked_for(other: dict[str, Any], passed_over: set[str]) -> None:
    found = progress_after_healing(info(**{"final_reads": hung(20.0), **other}), PARTITIONS, LIMITS)
    assert set(found.passed_over) == passed_over
    assert not found.findings


@pytest.mark.parametrize("text", [None, "", "[]", '{"writes_after_healing": 3}', '{"converged": {"ok": true}'])
def test_a_run_json_that_says_nothing_of_it_leaves_both_out(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    assert read(tmp_path, PARTITIONS, LIMITS) == ProgressAfterHealing()
