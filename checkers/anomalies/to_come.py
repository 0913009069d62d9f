"""Anomalies of groups and of transactions, which nothing looks for yet.

Each moves to a module of its own when its finder is written.
"""

from __future__ import annotations

from checkers.anomalies.anomaly import Anomaly, Check, Family

_R, _T = Family.READERS, Family.TRANSACTIONS
_GROUPS = "Kafka documentation, consumer: a group resumes at its committed offsets; KIP-848"
_EOS = "KIP-98: Exactly Once Delivery and Transactional Messaging"

ANOMALIES = (
    Anomaly("lost-position", _R, "a committed position is later reported lower, or as never committed", _GROUPS),
    Anomaly(
        "commit-ahead", _R, "after a restart or rebalance a consumer resumes beyond a record it never got", _GROUPS
    ),
    Anomaly("dual-ownership", _R, "two live members of a group hold one partition at the same time", _GROUPS),
    Anomaly("uncommitted-offset", _T, "offsets of an aborted transaction became the group's position", _EOS),
    Anomaly("eos-duplicate", _T, "consume-transform-produce: one input, two committed outputs", _EOS),
    Anomaly("eos-loss", _T, "consume-transform-produce: an input whose offset was committed has no output", _EOS),
)

CHECK = Check(__name__, ANOMALIES, exists=False)
