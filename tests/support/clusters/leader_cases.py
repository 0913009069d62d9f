"""Test cases for the invariants of a leader's decisions and responses: each has a situation that breaks one, and the
nearest situation that does not.
"""

from __future__ import annotations

from squall.broker.log.config import LogConfig
from squall.chaos.runtimes.sim.invariants.broker_sessions import BrokerSilence
from squall.chaos.runtimes.sim.invariants.leaders import (
    RESEND_MS,
    IsrRemoval,
    LatestOffsetResponse,
    SettingsInForce,
    UnsentProposals,
)
from tests.support.clusters.quorum_cases import Arguments, Case


def removal(behind_ms: int, *, at_end: bool = False) -> Arguments:
    return (IsrRemoval(2, behind_ms, 1_500, at_end),)


def settings(retention_ms: int = 1_000, min_isr: int = 2, lag_ms: int = 1_500) -> Arguments:
    log = LogConfig(retention_ms=retention_ms)
    return (SettingsInForce(log, LogConfig(retention_ms=1_000), min_isr, 2, lag_ms, 1_500),)


def silent(for_ms: int) -> Arguments:
    return (BrokerSilence(2, for_ms, 9_000),)


LEADERS: dict[str, list[Case]] = {
    "removed-after-the-lag-time": [
        ("one ms too early", removal(1_500), removal(1_501)),
        ("one that has everything", removal(9_000, at_end=True), removal(9_000)),
    ],
    "proposal-is-sent-again": [
        ("one ms too late", (UnsentProposals(1, RESEND_MS + 1),), (UnsentProposals(1, RESEND_MS),))
    ],
    "silent-broker-is-fenced": [("one ms too long", silent(9_001), silent(9_000))],
    "fenced-after-its-session": [("one ms too early", silent(9_000), silent(9_001))],
    "listed-offset-is-committed": [("one beyond", (LatestOffsetResponse(8, 7),), (LatestOffsetResponse(7, 7),))],
    "settings-in-force": [
        ("another retention", settings(retention_ms=999), settings()),
        ("another min ISR", settings(min_isr=1), settings()),
        ("another lag time", settings(lag_ms=1_499), settings()),
    ],
}
