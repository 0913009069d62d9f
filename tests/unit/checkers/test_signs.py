"""A loss is permitted by what happened to that very record: a later leader epoch that starts at or below its offset."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from squall.checkers import leaderships, mechanisms, signs
from squall.checkers.anomalies.registry import find_all
from squall.checkers.fault_traits import FORGETS_SYNCS
from squall.checkers.findings import findings_of
from squall.checkers.history import conversion
from squall.checkers.history.tables import OK, SEND, History, ObservedPartition, RecordedFault, RecordRow
from squall.checkers.in_memory import judge_bytes
from squall.checkers.leaderships import EVER, Leaderships, LeaderTerm
from squall.checkers.measures import measure
from squall.checkers.mechanisms import MechanismSign
from squall.checkers.metrics import context_of, shape
from squall.checkers.verdict import INVALID, UNKNOWN, VALID, Verdict, judge
from tests.support.histories.builder import HistoryBuilder
from tests.support.histories.nemesis_lines import MS, fault_line

PLAN_TOML = """
[workload]
acks = 1
min_isr = 1
replication_factor = 3
idempotence = false
max_in_flight = 1
[limits]
stuck_s = 15
"""
PLAN: dict[str, Any] = {
    "workload": {"acks": 1, "min_isr": 1, "replication_factor": 3, "idempotence": False, "max_in_flight": 1},
    "limits": {"stuck_s": 15},
}
Events = Mapping[str, list[dict[str, Any]]]
SECOND = 7
"""The offset at which the epoch of the second leader starts."""


class Run:
    """Ten records are acknowledged. At `elected` another leader takes over from offset SECOND on, and three more are
    acknowledged.
    """

    def __init__(
        self,
        missing: Sequence[int] = (),
        *,
        elected: bool = True,
        cut_off: bool = False,
        unsent_at: int = -1,
        acks: int = 1,
    ) -> None:
        self.h, self._acks = HistoryBuilder(), acks
        producer = self.h.producer(client="program", acks=acks, idempotence=False, max_in_flight=1)
        began = self.h.tick()
        sent, moments = {}, {}
        for off in range(10):
            if off == unsent_at:
                self.h.ok(self.h.send(producer), -1)
            moments[off] = self.h.tick()
            sent[off] = self.h.sent(producer, off)
        if unsent_at == 10:
            self.h.ok(self.h.send(producer), -1)
        handed_over = self.h.tick()
        self.h.tick()
        if elected:
            sent |= {off: self.h.sent(producer, off) for off in range(SECOND, 10)}
        at_end = [(off, val) for off, val in sorted(sent.items()) if off not in missing]
        self.h.final(at_end, end=10, position=10)
        # A leader that is cut off leads on after its successor was elected: it hears of it later.
        won = moments[SECOND] - 1 if cut_off else handed_over
        self.events: dict[str, list[dict[str, Any]]] = {"1": [led(1, 0, 0, began)], "2": [], "3": []}
        if elected:
            self.events["2"].append(led(2, 1, SECOND, won))
            self.events["1"].append({**led(1, 1, 0, handed_over), "e": "became_follower", "leader": 2})

    def judged(self, events: Events | None = None, nemesis: bytes = b"") -> Verdict:
        """From memory."""
        lines, plan = b"".join(self.h.lines()), {**PLAN, "workload": {**PLAN["workload"], "acks": self._acks}}
        plan["faults"] = [{"action": "power_loss"}] if nemesis else []
        return judge_bytes("r", lines, nemesis, plan, traces=self.events if events is None else events).verdict

    def judged_on_disk(self, path: Path, events: Events | None = None, nemesis: bytes = b"") -> Verdict:
        """By way of a run directory, with the brokers' traces."""
        (path / "history.jsonl").write_bytes(b"".join(self.h.lines()))
        (path / "nemesis.jsonl").write_bytes(nemesis)
        planned = '[[faults]]\naction = "power_loss"\n' if nemesis else ""
        (path / "plan.toml").write_text(PLAN_TOML.replace("acks = 1", f"acks = {self._acks}") + planned)
        for node, lines in (self.events if events is None else events).items():
            (path / "nodes" / node).mkdir(parents=True)
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            # A broker that was killed leaves its last line torn.
            (path / "nodes" / node / "trace.jsonl").write_text(text + '{"t":1,"e":"became_lea')
        conversion.convert(path)
        loaded, faults = conversion.load(path)
        led_by = leaderships.read(path, loaded.partitions, (loaded.wall_ms, loaded.mono_ns), {}, loaded.finals)
        ground = signs.circumstances_of(led_by, faults, loaded.partitions)
        found = findings_of(signs.signed(loaded, ground, find_all(loaded)))
        taken, context = measure(loaded, context_of(loaded, faults)), context_of(loaded, faults)
        return judge(path, found, shape(taken, context))


def led(node: int, epoch: int, leo: int, ns: int, partition: int = 0, topic: str = "t") -> dict[str, Any]:
    """A line of a trace: a broker began to lead."""
    where = {"topic": topic, "partition": partition}
    return {"t": ns / 1e9, "n": f"broker-{node}", "i": 1, "e": "became_leader", **where, "epoch": epoch, "leo": leo}


def losses(verdict: Verdict) -> dict[int, bool | None]:
    """Offset of each lost record -> whether that is permitted."""
    return {
        witness.off: each.permitted
        for each in verdict.anomalies
        if each.name in ("lost-write", "unseen")
        for witness in each.witnesses
    }


def test_what_the_next_leader_did_not_have_may_be_lost(tmp_path: Path) -> None:
    run = Run()
    for verdict in (run.judged(), run.judged_on_disk(tmp_path)):
        assert losses(verdict) == {7: True, 8: True, 9: True}
        assert {each.permitted for each in verdict.anomalies} == {True}, "what follows from it, too"


def test_a_record_below_the_start_of_the_next_epoch_may_not(tmp_path: Path) -> None:
    run = Run(missing=[5])
    for verdict in (run.judged(), run.judged_on_disk(tmp_path)):
        assert losses(verdict) == {5: False, 7: True, 8: True, 9: True}
        assert verdict.verdict == INVALID
        assert verdict.reasons[0] == (
            "lost-write: 1, not permitted: acks=1 permits it only where a leader epoch later than that of the leader "
            "that acknowledged the record starts at or below its offset, and that did not happen"
        )


def test_where_nobody_else_led_nothing_may_be_lost(tmp_path: Path) -> None:
    run = Run(missing=[5], elected=False)
    for verdict in (run.judged(), run.judged_on_disk(tmp_path)):
        assert (losses(verdict), verdict.verdict) == ({5: False}, INVALID)


def test_what_the_last_leader_acknowledged_may_not_be_lost() -> None:
    run = Run()
    run.h.sent(0, 10)
    run.h.final([], end=11, at=10, position=11, round_=2)
    assert losses(run.judged())[10] is False


def test_a_leader_that_was_cut_off_may_acknowledge_what_its_successor_lacks() -> None:
    assert losses(Run(cut_off=True).judged()) == {7: True, 8: True, 9: True}


@pytest.mark.parametrize(
    ("place", "permitted"), [(0, False), (SECOND - 1, False), (SECOND, None), (SECOND + 1, True), (10, True)]
)
def test_a_record_without_an_offset_stood_above_what_was_acknowledged_before_and_below_what_was_sent_later(
    tmp_path: Path, place: int, permitted: bool | None
) -> None:
    """As a program answers `ok` without sending anything. Between 6 and 7 it is not known on which side it was."""
    run = Run(unsent_at=place)
    for verdict in (run.judged(), run.judged_on_disk(tmp_path)):
        assert losses(verdict) == {-1: permitted, 7: True, 8: True, 9: True}
        assert verdict.verdict == (VALID if permitted else UNKNOWN if permitted is None else INVALID)
        why = "not known: at which offset the record was: its acknowledgement has none"
        assert any(why in reason for reason in verdict.reasons) is (permitted is None)


def test_where_nobody_else_led_a_record_without_an_offset_may_not_be_lost() -> None:
    assert losses(Run(elected=False, unsent_at=10).judged()) == {-1: False}


def test_at_acks_0_where_no_offset_is_ever_told_a_later_epoch_explains_any_loss() -> None:
    assert mechanisms.ARRIVAL.explains(MechanismSign.UNPLACED)
    assert not mechanisms.LATER_EPOCH.explains(MechanismSign.UNPLACED)


def test_what_a_cut_off_leader_acknowledges_does_not_bound_what_its_successor_did() -> None:
    """The first leader appends below the place at which the second one's log is cut by the third."""
    first, second, third = (
        LeaderTerm(0, 0, 0, 1, 90, 5),
        LeaderTerm(0, 1, 5, 40, 60, 9, 90),
        LeaderTerm(0, 2, 9, 61, EVER),
    )
    by_the_first = _acknowledged(6, 55, 56)
    led_by = Leaderships((first, second, third), "").bounded_by([by_the_first])
    assert led_by.explain_without_offset(0, 45, 50) is None
    assert (
        Leaderships((second._replace(alone=30), third), "").bounded_by([by_the_first]).explain_without_offset(0, 45, 50)
        is False
    )


def _acknowledged(off: int, t0: int, t1: int) -> RecordRow:
    return RecordRow(
        **{**dict.fromkeys(RecordRow._fields, -1), "kind": SEND, "st": OK, "part": 0, "off": off, "t0": t0, "t1": t1}
    )


def test_whoever_led_after_the_last_final_read_took_nothing(tmp_path: Path) -> None:
    """Brokers that stop when the run is over hand their partitions over, too."""
    run = Run(missing=[5], elected=False)
    events = {**run.events, "2": [led(2, 1, 0, run.h.tick())]}
    for verdict in (run.judged(events), run.judged_on_disk(tmp_path, events)):
        assert (losses(verdict), verdict.verdict) == ({5: False}, INVALID)


def test_where_a_trace_is_missing_nobody_knows(tmp_path: Path) -> None:
    run = Run(missing=[5])
    empty = run.judged({node: [] for node in run.events})
    assert losses(empty) == dict.fromkeys((5, 7, 8, 9)), "traces that say nothing exclude nothing"
    assert any("no trace or log names a leader of t-0" in said for said in empty.notes)
    verdict = judge_bytes("r", b"".join(Run().h.lines()), b"", PLAN).verdict
    assert verdict.verdict == UNKNOWN and set(losses(verdict).values()) == {None}
    assert any("no broker's trace or log tells who led" in reason for reason in verdict.reasons)
    (tmp_path / "nodes" / "3").mkdir(parents=True)
    two = {node: lines for node, lines in run.events.items() if node != "3"}
    on_disk = run.judged_on_disk(tmp_path, two)
    assert losses(on_disk) == {5: None, 7: True, 8: True, 9: True}, "what is known explains what it explains"
    assert any("there is no nodes/3/trace.jsonl" in said for said in on_disk.notes)


# ----------------------------------------------------------------------------------------------------------- power loss


def brokers_lost(logs: Mapping[int, Any], began_ms: int = 100) -> bytes:
    """Return a power loss of these brokers at one moment; the values say which records each log lost."""
    nodes = {str(node): {"logs": {"t-0": lost}} if lost != UNTOLD else {} for node, lost in logs.items()}
    said = {"lost": {"nodes": nodes}, "isr": {"t-0": [1, 2, 3]}, "caught_up_ns": (began_ms + 2) * MS}
    return fault_line(0, "power_loss", began_ms, began_ms + 1, resolved=[*logs], evidence=said)


UNTOLD = "untold"


@pytest.mark.parametrize(
    ("logs", "expected", "verdict"),
    [
        ({1: [SECOND, 10], 2: [SECOND, 10]}, {5: False, 7: True, 8: True, 9: True}, INVALID),
        ({1: [10, 12], 2: [9, 10]}, {5: False, 7: False, 8: False, 9: True}, INVALID),
        ({1: [0, SECOND], 2: [10, 12]}, dict.fromkeys((5, 7, 8, 9), False), INVALID),
        ({1: [0, SECOND], 2: UNTOLD}, {5: False, 7: None, 8: None, 9: None}, INVALID),
    ],
    ids=["unsynced", "some of them unsynced", "synced", "untold"],
)
def test_a_record_may_be_lost_with_the_power_of_a_broker_that_had_it_unsynced(
    tmp_path: Path, logs: Mapping[int, Any], expected: dict[int, bool | None], verdict: str
) -> None:
    """And only if a later leader's log ended before it, which that of record 5 did not, whatever brokers lost."""
    run, nemesis = Run(missing=[5], acks=-1), brokers_lost(logs)
    for each in (run.judged(nemesis=nemesis), run.judged_on_disk(tmp_path, nemesis=nemesis)):
        assert (losses(each), each.verdict) == (expected, verdict)


@pytest.mark.parametrize(
    ("logs", "verdict", "why"),
    [
        ({1: [SECOND, 10]}, VALID, ""),
        ({1: [0, SECOND]}, INVALID, "a node lost power before it had synced its copy of the record"),
        ({1: UNTOLD}, UNKNOWN, "not known: nemesis.jsonl does not say which records broker 1 lost with its power"),
    ],
)
def test_the_verdict_of_a_power_loss_is_that_of_its_records(logs: Mapping[int, Any], verdict: str, why: str) -> None:
    found = Run(acks=-1).judged(nemesis=brokers_lost(logs))
    assert found.verdict == verdict
    assert why in "".join(found.reasons)


# --------------------------------------------------------------------------------------------------------- leaderships

PARTITION = ObservedPartition(0, "t", 0, "delete", -1, False)


def test_a_leader_leads_until_it_follows_or_its_broker_starts_anew() -> None:
    # What a simulator adds to a trace says no incarnation.
    led_on = [{"t": 12e-9, "i": 1, "e": "node_ready"}, {"t": 15e-9, "i": 1, "e": "node_stopping"}]
    led_on.append({"t": 20e-9, "e": "appended"})
    crashed = [led(1, 0, 0, 10), *led_on, {"t": 30e-9, "i": 2, "e": "node_ready"}]
    found = leaderships.of_events({"1": crashed, "2": [led(2, 1, 4, 20)]}, [PARTITION])
    assert found.rows == (LeaderTerm(0, 0, 0, 10, 30, 4), LeaderTerm(0, 1, 4, 20, EVER, EVER, 30))
    assert found.moved and not found.unknown


def test_a_trace_that_makes_no_sense_leaves_it_unknown(tmp_path: Path) -> None:
    (tmp_path / "nodes" / "1").mkdir(parents=True)
    for line in ('["became_leader"]', '{"e":"became_leader","t":Infinity}', '{"e":"became_leader"}'):
        (tmp_path / "nodes" / "1" / "trace.jsonl").write_text(line + "\n")
        found = leaderships.read(tmp_path, [PARTITION], (0, 0), {}, [])
        assert found.unknown.startswith("who led cannot be read") and not found.rows


def test_partitions_of_coordinators_tell_that_something_moved() -> None:
    events = {"1": [led(1, 0, 0, 1)], "2": [led(2, 1, 0, 5, topic="__consumer_offsets")]}
    first = {"3": [led(3, 0, 0, 2, topic="__consumer_offsets")]}
    assert leaderships.of_events({**events, **first}, [PARTITION]).moved
    assert not leaderships.of_events(events, [PARTITION]).moved


def test_a_cluster_that_was_asked_tells_of_epochs_and_when_they_were_seen() -> None:
    polled = [
        {"t": 1.0, "e": "polled", "topic": "t", "partition": 0, "leader": 1, "epoch": 3, "isr": [1]},
        {"t": 9.0, "e": "polled", "topic": "t", "partition": 0, "leader": 2, "epoch": 4, "isr": [2]},
    ]
    found = leaderships.of_answers(polled, {"t-0": [[3, 0], [4, 100]]}, [PARTITION])
    first, second = found.rows
    assert (first.start, first.cut, second.start, second.since) == (0, 100, 100, 1_000_000_000)
    assert found.cut_of(0, 100, 2_000_000_000, 3_000_000_000) == 100
    assert found.cut_of(0, 99, 2_000_000_000, 3_000_000_000) == EVER
    untold = leaderships.of_answers(polled, {}, [PARTITION])
    assert "no leader told the epochs of t-0" in untold.unknown and untold.moved


# --------------------------------------------------------------------------------------------------------------- signs


def fault(action: str, its_class: str, began: int, ended: int, said: Mapping[str, Any] | None = None) -> RecordedFault:
    return RecordedFault(0, action, its_class, (), "node:1", (1,), {}, 0, began, ended, said or {"gone": 1}, "")


MINUTE = 60_000_000_000


@pytest.mark.parametrize(
    ("t0", "t1", "disturbed"),
    [(0, MINUTE - 1, False), (2 * MINUTE, -1, True), (2 * MINUTE, 2 * MINUTE, True), (4 * MINUTE, 4 * MINUTE, False)],
)
def test_what_was_on_its_way_while_a_fault_was_on_may_have_been_sent_again(t0: int, t1: int, disturbed: bool) -> None:
    ground = signs.circumstances_of(Leaderships(), [fault("kill", "P", 2 * MINUTE, 2 * MINUTE + 1)], [PARTITION])
    assert bool(ground.signs(0, 5, t0, t1, failed=False) & MechanismSign.DISTURBED) is disturbed


def test_a_producer_whose_sends_failed_may_have_sent_again() -> None:
    assert signs.RunCircumstances().signs(0, 5, 1, 2, failed=True) & MechanismSign.DISTURBED
    assert not signs.RunCircumstances().signs(0, 5, 1, 2, failed=False)


def power_loss(logs: Any, *, ended_ns: int = 105, traits: tuple[str, ...] = ()) -> RecordedFault:
    """Broker 1 lost power."""
    said = {"lost": {"nodes": {"1": {"logs": logs}}, "ended_ns": ended_ns}}
    return replace(fault("power_loss", "W1", 100, 200, said), traits=traits)


@pytest.mark.parametrize(
    ("off", "t0", "lost"),
    [
        *((6, 99, False), (7, 99, True), (9, 99, True), (10, 99, False)),
        *((7, 105, True), (7, 106, False)),
        *((-1, 99, True), (-1, 106, False)),
    ],
)
def test_a_record_was_lost_with_power_by_a_broker_that_had_it_unsynced(off: int, t0: int, lost: bool) -> None:
    """It takes records until its process has ended. It is not known where a record without an offset was."""
    ground = signs.circumstances_of(Leaderships(), [power_loss({"t-0": [7, 10], "other-0": [0, 99]})], [PARTITION])
    assert bool(ground.signs(0, off, t0, 150, failed=False) & MechanismSign.POWER_LOST) is lost
    assert not ground.signs(1, off, t0, 150, failed=False) & MechanismSign.POWER_LOST, "another partition"
    assert not ground.why_unknown(MechanismSign.POWER_LOST)


def test_what_was_lost_after_a_failed_fsync_counts_as_damage() -> None:
    """Of the broker on which it failed, and before the power was lost."""
    for node, began, counts in ((1, 50, True), (2, 50, False), (1, 150, False)):
        failing = replace(fault("disk", "P", began, 60), resolved=(node,), traits=(FORGETS_SYNCS,))
        ground = signs.circumstances_of(Leaderships(), [failing, power_loss({"t-0": [7, 10]})], [PARTITION])
        for off in (6, 7):
            found = ground.signs(0, off, 40, 45, failed=False)
            assert bool(found & MechanismSign.SYNC_FAILED) is (counts and off == 7), (node, began, off)
            assert mechanisms.DAMAGE.explains(found) is (counts and off == 7)


@pytest.mark.parametrize("logs", [None, 7, {"t-0": 7}, {"t-0": [1]}, {"t-0": ["a", "b"]}, [["t-0", 7, 10]]])
def test_a_power_loss_that_does_not_say_what_it_took_leaves_it_unknown(logs: Any) -> None:
    ground = signs.circumstances_of(Leaderships(unknown=""), [power_loss(logs)], [PARTITION])
    why = "nemesis.jsonl does not say which records broker 1 lost with its power"
    assert [
        ground.why_unknown(sign)
        for sign in (MechanismSign.POWER_LOST, MechanismSign.SYNC_FAILED, MechanismSign.LATER_EPOCH)
    ] == [why, why, ""]


def test_a_damaged_file_is_one_of_its_partition() -> None:
    said = {"damaged": {"path": "data/t-1/00000000000000000000.log"}}
    other = ObservedPartition(1, "t", 1, "delete", -1, False)
    ground = signs.circumstances_of(Leaderships(), [fault("damage", "D", 100, 200, said)], [PARTITION, other])
    assert ground.signs(1, 5, 50, 60, failed=False) & MechanismSign.DAMAGED
    assert not ground.signs(0, 5, 50, 60, failed=False) & MechanismSign.DAMAGED


def test_witnesses_have_the_signs_of_their_send() -> None:
    run = Run(missing=[5])
    history: History = run.h.history()
    ground = signs.circumstances_of(leaderships.of_events(run.events, history.partitions), [], history.partitions)
    found = {
        each.off: MechanismSign(each.signs)
        for each in signs.signed(history, ground, find_all(history))
        if each.off == 5
    }
    assert found == {
        5: MechanismSign.MOVED | MechanismSign.LED_ANEW | MechanismSign.DISTURBED | MechanismSign.RESENT
    }, "the leader changed soon after"
