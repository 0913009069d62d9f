"""Anomalies of groups and of transactions, which nothing looks for yet.

Each moves to a module of its own when its finder is written.
"""

from __future__ import annotations

from checkers.anomalies.anomaly import JEPSEN, Anomaly, Check, Family

_R, _T = Family.READERS, Family.TRANSACTIONS
_GROUPS = "Kafka documentation, consumer: a group resumes at its committed offsets; KIP-848"
_EOS = "KIP-98: Exactly Once Delivery and Transactional Messaging"

ANOMALIES = (
    Anomaly("lost-position", _R, "a committed position is later reported lower, or as never committed", _GROUPS),
    Anomaly(
        "commit-ahead", _R, "after a restart or rebalance a consumer resumes beyond a record it never got", _GROUPS
    ),
    Anomaly("dual-ownership", _R, "two live members of a group hold one partition at the same time", _GROUPS),
    Anomaly(
        "G1a",
        _T,
        "read_committed returns a value of a transaction that aborted or definitely failed",
        JEPSEN,
        jepsen="G1a",
    ),
    Anomaly(
        "dirty-read",
        _T,
        "read_committed returned a value before its commit was invoked",
        JEPSEN,
        jepsen="precommitted-read",
    ),
    Anomaly("torn-txn", _T, "after the final read, some of a transaction's records are visible and some are not", _EOS),
    Anomaly("lost-txn", _T, "a committed transaction of which nothing is visible", _EOS),
    Anomaly("G1c", _T, "a cycle of write-read edges among transactions", JEPSEN, jepsen="G1c"),
    Anomaly("uncommitted-offset", _T, "offsets of an aborted transaction became the group's position", _EOS),
    Anomaly("eos-duplicate", _T, "consume-transform-produce: one input, two committed outputs", _EOS),
    Anomaly("eos-loss", _T, "consume-transform-produce: an input whose offset was committed has no output", _EOS),
    Anomaly("zombie-write", _T, "a fenced producer's record became visible", _EOS),
    Anomaly(
        "hanging-txn", _T, "the last stable offset stands still longer than the transaction time-out, all healed", _EOS
    ),
)

CHECK = Check(__name__, ANOMALIES, exists=False)
