"""The anomalies as data: what each one is, how Jepsen's Kafka test calls it, and what proves it.

Some anomalies can be seen with different evidence, and a configuration that may lose records also permits what such a
loss looks like from further away: an offset given to a second record, an acknowledgement below an earlier one. It never
permits the same thing among the final reads, where the cluster has converged. So a finding carries its evidence:

- `final`: the final reads alone show it;
- `reads`: an earlier read is needed to see it;
- `acks`: an acknowledgement is needed to see it.

`checkers.guarantees` permits a name (`duplicate`) or a name with one kind of evidence (`inconsistent-offset/acks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

FINAL = "final"
READS = "reads"
ACKS = "acks"


class Family(StrEnum):
    """What an anomaly is about."""

    DATA = "data"
    READERS = "readers"
    TRANSACTIONS = "transactions"
    LIVENESS = "liveness"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One kind of wrong."""

    name: str
    family: Family
    definition: str
    jepsen: str = ""
    """Its name in jepsen.tests.kafka; empty where that has none."""
    other: str = ""
    """What a witness's `other` field holds; empty where it is -1."""
    needs_final_read: bool = False
    """Without a final read that got this far it can neither be found nor be ruled out."""
    found_by: str = ""
    """The module of checkers that finds it; empty where no finder exists yet."""


_RECORDS, _READERS, _TOLD = "reference.records", "reference.readers", "reference.told"
_D, _R, _T, _L = Family.DATA, Family.READERS, Family.TRANSACTIONS, Family.LIVENESS

_ALL = (
    Anomaly(
        "lost-write",
        _D,
        "acknowledged, or proven by a reader to have been committed; in no final read; at or below the highest offset "
        "that any reader saw",
        jepsen="lost-write",
        other="the highest offset that any reader saw",
        needs_final_read=True,
        found_by=_RECORDS,
    ),
    Anomaly(
        "unseen",
        _D,
        "acknowledged, in no final read, above the highest offset that any reader saw: missing at the tail",
        jepsen="unseen",
        other="the highest offset that any reader saw",
        needs_final_read=True,
        found_by=_RECORDS,
    ),
    Anomaly(
        "duplicate",
        _D,
        "one value at two offsets of a partition",
        jepsen="duplicate",
        other="the lowest offset it was read at",
        found_by=_RECORDS,
    ),
    Anomaly(
        "inconsistent-offset",
        _D,
        "one offset of a partition with two values, in reads or between an acknowledgement and reads",
        jepsen="inconsistent-offsets",
        other="the value that displaced this one",
        found_by=_RECORDS,
    ),
    Anomaly("phantom", _D, "a value that nobody sent, or in a partition that it was not sent to", found_by=_RECORDS),
    Anomaly("corrupt", _D, "payload, key, headers or timestamp differ from what was sent", found_by=_RECORDS),
    Anomaly(
        "wrong-offset",
        _D,
        "the acknowledged offset is not where the value is found",
        other="where it was found",
        found_by=_RECORDS,
    ),
    Anomaly(
        "send-reorder",
        _D,
        "one producer's records to a partition stand in another order than they were handed over in",
        jepsen="nonmonotonic-send",
        other="the offset of the record handed over before it",
        found_by=_RECORDS,
    ),
    Anomaly(
        "stale-ack",
        _D,
        "an acknowledged offset is not above every offset acknowledged before that send was invoked",
        other="the highest offset acknowledged before",
        found_by=_RECORDS,
    ),
    Anomaly(
        "replica-divergence",
        _D,
        "the logs of two replicas differ below both high watermarks",
        other="the node whose log differs",
        found_by="replica_logs",
    ),
    Anomaly(
        "poll-skip",
        _R,
        "a poll skips over records that stand behind those of the poll before it",
        jepsen="poll-skip",
        other="the offset read before",
        found_by=_READERS,
    ),
    Anomaly(
        "nonmonotonic-poll",
        _R,
        "a poll does not go on behind the poll before it",
        jepsen="nonmonotonic-poll",
        other="the offset read before",
        found_by=_READERS,
    ),
    Anomaly(
        "int-poll-skip",
        _R,
        "one poll skips over records",
        jepsen="int-poll-skip",
        other="the offset read before",
        found_by=_READERS,
    ),
    Anomaly(
        "int-nonmonotonic-poll",
        _R,
        "one poll goes back",
        jepsen="int-nonmonotonic-poll",
        other="the offset read before",
        found_by=_READERS,
    ),
    Anomaly("lost-position", _R, "a committed position is later reported lower, or as never committed"),
    Anomaly("commit-ahead", _R, "after a restart or rebalance a consumer resumes beyond a record it never got"),
    Anomaly("dual-ownership", _R, "two live members of a group hold one partition at the same time"),
    Anomaly(
        "offset-regression",
        _R,
        "high watermark or last stable offset, as told to one client by one leader epoch, goes back; or the latest "
        "offset, by whichever epoch",
        other="the offset told before",
        found_by=_TOLD,
    ),
    Anomaly(
        "lso-violation",
        _R,
        "last stable offset above the high watermark, or a read_committed read at or above the one it came with",
        other="the high watermark, or the offset that was read",
        found_by=_TOLD,
    ),
    Anomaly("G1a", _T, "read_committed returns a value of a transaction that aborted or definitely failed", "G1a"),
    Anomaly("dirty-read", _T, "read_committed returned a value before its commit was invoked", "precommitted-read"),
    Anomaly("torn-txn", _T, "after the final read, some of a transaction's records are visible and some are not"),
    Anomaly("lost-txn", _T, "a committed transaction of which nothing is visible"),
    Anomaly("G1c", _T, "a cycle of write-read edges among transactions", "G1c"),
    Anomaly("uncommitted-offset", _T, "offsets of an aborted transaction became the group's position"),
    Anomaly("eos-duplicate", _T, "consume-transform-produce: one input, two committed outputs"),
    Anomaly("eos-loss", _T, "consume-transform-produce: an input whose offset was committed has no output"),
    Anomaly("zombie-write", _T, "a fenced producer's record became visible"),
    Anomaly("hanging-txn", _T, "the last stable offset stands still longer than the transaction time-out, all healed"),
    Anomaly(
        "stuck-producer",
        _L,
        "no acknowledgement for longer than the plan allows, after healing",
        other="for how many ns",
        found_by="liveness",
    ),
    Anomaly(
        "stuck-consumer",
        _L,
        "a reader makes no progress for longer than the plan allows, after healing",
        other="for how many ns",
        found_by="liveness",
    ),
    Anomaly(
        "not-converged",
        _L,
        "ISR not full, or a member not rejoined, longer than the plan allows, after healing",
        found_by="convergence",
    ),
)

CATALOG: dict[str, Anomaly] = {anomaly.name: anomaly for anomaly in _ALL}
"""Every anomaly by name, in the order in which reports list them."""

FOUND: tuple[str, ...] = tuple(name for name, anomaly in CATALOG.items() if anomaly.found_by)
"""Those that a finder exists for: only these are ruled out by a `valid` verdict."""

LOSS: tuple[str, ...] = ("lost-write", "unseen")
"""An acknowledged record is gone."""
