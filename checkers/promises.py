"""Names the promise that a finding breaks, and where that promise is written. For losses, the guarantee matrix names it
instead.
"""

from __future__ import annotations

from squall.checkers.anomalies import duplicate, send_reorder
from squall.checkers.anomalies.anomaly import JEPSEN, AnomalyDefinition, AnomalyFamily, HistoryNeed

IDEMPOTENCE, ONE_IN_FLIGHT = "idempotence", "one request in flight"
ORDER = {
    IDEMPOTENCE: "Kafka documentation, producer configuration `enable.idempotence`; KIP-98",
    ONE_IN_FLIGHT: "Kafka documentation, producer configuration `max.in.flight.requests.per.connection`",
}
"""Maps each setting that promises the order of a producer's records to where that is written."""
GROUPS = "consumer groups"
ABOUT_GROUPS = frozenset({HistoryNeed.MEMBERS, HistoryNeed.POSITIONS, HistoryNeed.OUTPUTS})
"""Lists what a history must contain to show an anomaly of consumer groups, such as committed positions. An anomaly that
needs one of these breaks a promise to consumer groups (`GROUPS`).
"""
OF_FAMILY = {
    AnomalyFamily.DATA: "replicated log",
    AnomalyFamily.READERS: "reads in the log's order",
    AnomalyFamily.GROUPS: GROUPS,
    AnomalyFamily.TRANSACTIONS: "transactions",
    AnomalyFamily.LIVENESS: "progress after healing",
}


def broken_by(anomaly: AnomalyDefinition, order: str) -> tuple[str, str]:
    """Return the promise that an anomaly breaks, such as "transactions", and the document that makes the promise, such
    as a KIP. `order` is the setting that promises the order of a producer's records: IDEMPOTENCE or ONE_IN_FLIGHT.
    """
    if anomaly in send_reorder.ANOMALIES:
        return order, ORDER[order]
    row = GROUPS if ABOUT_GROUPS & {*anomaly.needs} else OF_FAMILY[anomaly.family]
    return IDEMPOTENCE if anomaly in duplicate.ANOMALIES else row, anomaly.source.removeprefix(f"{JEPSEN}; ")
