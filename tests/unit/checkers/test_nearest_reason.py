"""Of several reasons that permit a finding the one is reported whose mechanism was seen nearest to its records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from squall.checkers import reasons
from squall.checkers.findings import Finding
from squall.checkers.guarantees import RunConfiguration, guarantee_for
from squall.checkers.history.tables import LATE_END
from squall.checkers.mechanisms import MechanismSign
from squall.checkers.permissions import PermissionContext, explained
from squall.checkers.signs import RunCircumstances
from squall.checkers.verdict import VALID
from tests.support.histories.builder import MS, HistoryBuilder
from tests.unit.checkers.test_sent_again import ALONE, SETTINGS, judged
from tests.unit.checkers.test_signs import led

CONFIG = RunConfiguration(acks=1, replication_factor=3, idempotence=False)
OF_LOSS = "this follows from the loss of a record: another record gets its offset"
TWO_LED = MechanismSign.LED_ANEW | MechanismSign.SEVERAL_LED | MechanismSign.DISTURBED | MechanismSign.MOVED


@pytest.mark.parametrize(
    ("anomaly", "evidence", "signs", "config", "reason"),
    [
        ("send-reorder", "acks", TWO_LED | MechanismSign.LATER_EPOCH, CONFIG, OF_LOSS),
        ("send-reorder", "acks", TWO_LED | MechanismSign.RESENT, CONFIG, reasons.REORDERED),
        ("send-reorder", "reads", TWO_LED | MechanismSign.LATER_EPOCH, CONFIG, reasons.REORDERED),
        ("duplicate", "reads", TWO_LED | MechanismSign.RESENT, replace(CONFIG, unclean=True), reasons.SENT_AGAIN),
        ("G1a", "", TWO_LED, replace(CONFIG, isolation=0, transaction_version=2), reasons.UNCOMMITTED),
        ("G1a", LATE_END, TWO_LED, replace(CONFIG, transaction_version=1), reasons.DELAYED_END),
    ],
)
def test_the_reason_is_that_of_the_nearest_sign(
    anomaly: str, evidence: str, signs: MechanismSign, config: RunConfiguration, reason: str
) -> None:
    finding = Finding(anomaly, evidence, 0, 1, (), ((0, 1),), int(signs))
    grounds = PermissionContext(frozenset(), frozenset(), RunCircumstances(), nemesis_read=True)
    permitted, why, _ = explained(guarantee_for(config, ["P"]), finding, grounds)
    assert (permitted, why) == (True, reason)


def test_a_record_that_was_lost_is_not_told_as_sent_again_and_one_that_was_is_counted_apart() -> None:
    """The second leader's epoch starts at 1: what the first one acknowledged at 1 and 2 is gone."""
    h = HistoryBuilder(2)
    p = h.producer(**SETTINGS)
    kept = [(off, h.ok(h.send(p), off, 1).val) for off in range(3)][:1]
    kept.append((1, h.sent(p, 1)))
    h.final(kept)
    early, late = h.send(p, 1), h.send(p, 1)
    h.ok(late, 0, 1)
    h.ok(early, 1, 2)
    h.final([(0, late.val), (1, early.val)], part=1)
    of_other = [{**each, "partition": 1} for each in ALONE["1"]]
    found = judged(h, events={"1": [*ALONE["1"], *of_other], "2": [led(2, 1, 1, 2 * MS)]})
    told = {each.evidence: (each.count, each.why) for each in found.anomalies if each.name == "send-reorder"}
    assert told == {"acks": (1, OF_LOSS), "final": (1, reasons.REORDERED)}
    assert found.verdict == VALID
