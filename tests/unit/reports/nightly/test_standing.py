"""Checks what is new, known and gone among the findings of nights."""

from __future__ import annotations

from squall.reports.nightly.standing import BROKEN, KNOWN, NEW, cards, compare_findings, places_tested, ran_again
from tests.support.nightly.rows import finding, run


def test_a_finding_is_new_in_its_first_night_and_known_in_the_next() -> None:
    rows = [finding(name="n2"), finding(name="n3")]
    (first,), gone = compare_findings(rows[:1], ["n1", "n2"])
    assert (first.state, first.nights, gone) == (NEW, ("n2",), [])
    (again,), _ = compare_findings(rows, ["n1", "n2", "n3"])
    assert (again.state, again.nights) == (KNOWN, ("n2", "n3"))


def test_a_finding_that_is_not_there_any_more_is_gone() -> None:
    found, (gone,) = compare_findings([finding(name="n1")], ["n1", "n2"])
    assert found == []
    assert gone.nights == ("n1",)
    assert ran_again(gone, places_tested([run(name="n2")]))
    assert not ran_again(gone, places_tested([run(name="n2", verdict="unknown")]))
    assert not ran_again(gone, places_tested([run(name="n2", configuration="acks=1")]))


def test_a_finding_of_a_later_night_is_nobodys_before() -> None:
    assert compare_findings([finding(name="n3")], ["n1", "n2"]) == ([], [])


def test_what_a_configuration_permits_is_no_finding_until_a_night_forbids_it() -> None:
    permitted = finding(name="n1", permitted=True)
    assert compare_findings([permitted], ["n1"]) == ([], [])
    forbidden = finding(name="n2", permitted=True, unexpected=True)
    (found,), _ = compare_findings([permitted, forbidden], ["n1", "n2"])
    assert found.state == NEW


def test_what_nobody_knows_whether_it_is_permitted_is_no_finding() -> None:
    assert compare_findings([finding(permitted=None)], ["n1"]) == ([], [])


def test_the_same_under_another_promise_or_of_another_target_is_another_finding() -> None:
    rows = [finding(name="n1"), finding(name="n2", promise="acks=all, min ISR 1"), finding(name="n2", target="kafka")]
    found, gone = compare_findings(rows, ["n1", "n2"])
    assert [each.state for each in found] == [NEW, NEW]
    assert len(gone) == 1


def test_a_retried_run_counts_once_for_each_attempt() -> None:
    (found,), _ = compare_findings([finding(), finding(attempt=2), finding("two")], ["n1"])
    assert found.runs == 3


def test_findings_of_one_cause_stand_on_one_card_the_lost_records_first() -> None:
    shadow = finding(anomaly="stale-ack", evidence="acks", fingerprint="f2", count=99)
    other = finding(anomaly="phantom", fingerprint="f3", cause="nothing that the brokers' traces tell", place="")
    found, _ = compare_findings([shadow, other, finding()], ["n1"])
    first, second = cards(found, ["n1"])
    assert first.anomalies == ("lost-write", "stale-ack (acks)")
    assert second.anomalies == ("phantom",)
    assert first.state == NEW


def test_a_card_has_its_nights_in_their_order_and_not_in_that_of_their_names() -> None:
    order = ["red", "red2", "acc", "acc2"]
    rows = [finding(name=name) for name in ("red", "acc2")]
    rows += [finding(name=name, anomaly="duplicate", fingerprint="f2") for name in ("acc", "acc2")]
    gone = [finding(name=name, fingerprint=name) for name in ("red", "acc")]
    found, left = compare_findings([*rows, *gone], order)
    (card,) = cards(found, order)
    assert card.nights == ("red", "acc", "acc2")
    assert [each.nights for each in left] == [("acc",), ("red",)], "the latest first"


def test_findings_of_one_cause_stand_on_one_card_whichever_fault_came_last() -> None:
    rows = [finding(), finding("two", anomaly="duplicate", fingerprint="f2", place="healing, after partition")]
    found, _ = compare_findings(rows, ["n1"])
    assert len(cards(found, ["n1"])) == 1
    unknown = [{**row, "cause": "nothing that the brokers' traces tell"} for row in rows]
    found, _ = compare_findings(unknown, ["n1"])
    assert len(cards(found, ["n1"])) == 2, "nothing says that they are of one thing"


def test_what_a_broken_invariant_brings_with_it_stands_on_its_card_and_is_one_finding_under_every_promise() -> None:
    cause = f"{BROKEN}the rule"
    rows = [finding("one", anomaly="invariant weak-isr", fingerprint="f1", cause=cause, place=""),
            finding("two", anomaly="invariant weak-isr", fingerprint="f1", cause=cause, place="", promise="acks=1"),
            finding("two", anomaly="lso-violation", fingerprint="f2", cause=cause, promise="acks=1")]  # fmt: skip
    found, _ = compare_findings(rows, ["n1"])
    assert sorted(each.runs for each in found) == [1, 2]
    (card,) = cards(found, ["n1"])
    assert card.anomalies == ("invariant weak-isr", "lso-violation")
    tonight = {**rows[2], "item": "one", "promise": rows[0]["promise"], "night": "n2"}
    again, _ = compare_findings([*rows, tonight], ["n1", "n2"])
    assert [each.state for each in again] == [KNOWN]
