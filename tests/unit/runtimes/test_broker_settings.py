"""Checks what brokers' settings mean in a cluster of few brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.broker.config import BROKER_SETTINGS
from squall.chaos.runtimes.broker_settings import INTERNAL, fitted, notes, too_high

OFFSETS, TXN_FACTOR = "offsets.topic.replication.factor", "transaction.state.log.replication.factor"
TXN_MIN_ISR = "transaction.state.log.min.isr"


@pytest.mark.parametrize(
    ("nodes", "filled_in"),
    [
        (1, {OFFSETS: "1", TXN_FACTOR: "1", TXN_MIN_ISR: "1"}),
        (2, {OFFSETS: "2", TXN_FACTOR: "2"}),
        (3, {}),
    ],
)
def test_what_nobody_gave_asks_for_at_most_the_brokers_that_there_are(nodes: int, filled_in: dict[str, str]) -> None:
    assert fitted({}, nodes) == filled_in
    assert fitted({OFFSETS: "3", "num.partitions": "4"}, nodes) == {**filled_in, OFFSETS: "3", "num.partitions": "4"}


def test_every_default_of_a_broker_that_asks_for_others_is_one_that_is_lowered() -> None:
    asks = {
        name: setting.default
        for name, setting in BROKER_SETTINGS.items()
        if name.endswith((".replication.factor", ".min.isr", "insync.replicas")) and setting.default > 1
    }
    assert asks == INTERNAL


def test_each_setting_that_asks_for_more_brokers_is_a_sentence_with_what_follows_and_what_to_do() -> None:
    given = {OFFSETS: "3", TXN_FACTOR: "2", TXN_MIN_ISR: "3", "default.replication.factor": "x", "num.partitions": "9"}
    without_groups, lowered = too_high(given, 2)
    assert without_groups.startswith(f"{OFFSETS} is 3, and the cluster has 2 brokers, so no group finds")
    assert without_groups.endswith(f": set {OFFSETS}=2, or leave it out")
    assert lowered.startswith(f"{TXN_MIN_ISR} is 3, and the cluster has 2 brokers, so it counts as 2: set")
    assert too_high(given, 3) == []
    (printed,) = too_high({OFFSETS: "3"}, 1)
    assert printed in (Path(__file__).parents[3] / "docs/cluster.md").read_text().splitlines()
    (without_transactions,) = too_high(given, 1, [TXN_FACTOR])
    assert "the cluster has 1 broker, so no producer gets a transactional id" in without_transactions


def test_what_squalls_brokers_ignore_is_said_of_them_alone() -> None:
    given = {"group.share.max.size": "9", "min.insync.replicas": "2"}
    lowered, without_effect = notes(given, 1, ours=True)
    assert lowered.startswith("min.insync.replicas is 2")
    assert without_effect == "ignored, because there are no share groups: group.share.max.size"
    assert notes(given, 1, ours=False) == [lowered]
