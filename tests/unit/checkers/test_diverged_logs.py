"""After two unclean elections a later leader's log may be longer than the one it replaces, and lack its records."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.histories.builder import HistoryBuilder
from tests.unit.checkers.test_sent_again import SETTINGS, judged
from tests.unit.checkers.test_signs import led, losses


@pytest.mark.parametrize(
    ("epochs", "permitted"),
    [
        pytest.param([(0, 0), (1, 1), (4, 9)], True, id="a log without the epoch"),
        pytest.param([(0, 0), (2, 1), (3, 4), (4, 9)], True, id="a log with less of the epoch"),
        pytest.param([(0, 0), (2, 1), (4, 9)], False, id="a log with the whole epoch"),
        pytest.param([(4, 9)], False, id="a log whose earlier epochs may have been deleted"),
        pytest.param(None, False, id="a broker that does not say"),
    ],
)
def test_a_later_leader_explains_the_loss_of_what_its_log_lacked(epochs: Any, permitted: bool) -> None:
    """A record is acknowledged at offset 5 in epoch 2, which began at offset 1; epoch 4 begins at offset 9."""
    h = HistoryBuilder()
    p, other = h.producer(**SETTINGS), h.producer(**SETTINGS)
    h.ok(h.send(p), 5, 1)
    kept = h.ok(h.send(other), 9, 1)
    h.final([(9, kept.val)])
    said = {"recovering": True} if epochs is None else {"recovering": True, "epochs": epochs}
    events = {"1": [led(1, 0, 0, 1), led(1, 2, 1, 2)], "2": [{**led(2, 4, 9, h.sends[1].t0), **said}]}
    assert losses(judged(h, b"", events)) == {5: permitted}


def test_a_later_leader_that_began_below_a_lost_epoch_explains_the_places_that_it_used_again() -> None:
    """Epoch 2 began at offset 4 and had a record at 5; the leader of epoch 4 had lost it, and began at 3."""
    h = HistoryBuilder()
    p, other = h.producer(**SETTINGS), h.producer(**SETTINGS)
    h.ok(h.send(p), 5, 1)
    h.tick()
    stale = h.ok(h.send(other), 3, 1)
    h.final([(3, stale.val)], at=3)
    later = {**led(2, 4, 3, h.now - 2), "recovering": True, "epochs": [(0, 0), (4, 3)]}
    events = {"1": [led(1, 0, 0, 1), led(1, 2, 4, 2)], "2": [later]}
    assert {each.name: each.permitted for each in judged(h, b"", events).anomalies}["stale-ack"] is True


def test_a_leader_from_the_isr_is_not_excused_by_a_log_that_lacks_an_epoch() -> None:
    """A broker whose epoch cache is wrong must not explain its own losses."""
    h = HistoryBuilder()
    p, other = h.producer(**SETTINGS), h.producer(**SETTINGS)
    h.ok(h.send(p), 5, 1)
    kept = h.ok(h.send(other), 9, 1)
    h.final([(9, kept.val)])
    later = {**led(2, 4, 9, h.sends[1].t0), "recovering": False, "epochs": [(0, 0), (1, 1), (4, 9)]}
    assert losses(judged(h, b"", {"1": [led(1, 0, 0, 1), led(1, 2, 1, 2)], "2": [later]})) == {5: False}
