"""Defines the reasons, in words, why a cell of the guarantee matrix permits a finding, and the mechanism that each
reason needs.
"""

from __future__ import annotations

from collections.abc import Mapping

from squall.checkers import mechanisms
from squall.checkers.mechanisms import AnomalyMechanism

REPLACED = "this follows from the loss of a record: another record gets its offset"
FOLLOWS = "this follows from the loss of a record that readers got"
ACKS_0_LOST = "nobody waits for an answer: the record may never have arrived"
ACKS_0_ORDER = "a batch may be lost on the way, and later batches are appended all the same"
ACKS_0_CORRUPT = "the damaged replica leads, and no other has the record"
ACKS_1_LOST = "only the leader had the record, and another replica leads now"
LAST_LOST = "there may have been one in-sync replica only, and it lost what it had not synced"
ALL_LOST = "every in-sync replica lost what it had not synced: Kafka relies on replication, not on fsync"
DAMAGED_LOST = "the damaged replica may have been the only one in sync"
DAMAGED_ALONE = "the damaged replica had the record, and perhaps no other replica did"
SERVED_DAMAGED = (
    "Apache Kafka serves a damaged batch as it is: a leader verifies no checksum when it answers a Fetch, and when it "
    "starts only after an unclean shutdown, and only from its recovery point on, where it cuts the log at the damage"
)
SEGMENT_LOST = "a segment inside the log was lost with its file: readers continue after the hole"
"""Is the reason why readers may skip records; it applies only to a log that lost a file
(`fault_classes.logs_with_holes`).
"""

UNCLEAN_LOST = "a replica that was not in sync may lead: the records that it lacks are lost"
SENT_AGAIN = "a send whose answer was lost is sent again, and the broker cannot tell that it has the record already"
REORDERED = "a batch that failed is sent again after the ones in flight with it, or they went to another leader"
BEFORE_101 = "a follower that truncates to its high watermark drops what was committed, and keeps what was not"
SEVERAL_MOMENTS = (
    "the broker reads the high watermark first, then the last stable offset, then the log: each may be newer"
)
REQUESTED = "somebody asked for a leader that was not in sync: the records that it lacks are lost"
UNCOMMITTED = "read_uncommitted returns what is not committed"
BURST = "a burst throws every follower out of the ISR"
DOUBLED = "the broker refused one copy of a request, and appended the other copy a moment later"
DELAYED_END = (
    "the client sent EndTxn twice for an earlier transaction, and the first request may have come late: with "
    "transactions V1 it then ends this transaction, which has the same epoch"
)

BY_TIME_BEHIND = "auto-commit of any client: the output may be written before the position after its input is committed"
BY_TIME_AHEAD = (
    "auto-commit: librdkafka and aiokafka commit in the background what they have returned to the application, whose "
    "output may not be written yet; Java's consumer, kafka-python and Squall's client commit in poll(), so with them "
    "it takes a member that polls again before it has written its outputs"
)
BEFORE = "the member commits a position before it writes the outputs: if it ends in between, nobody writes them"
AFTER = "the member commits a position after it wrote the outputs: if it ends in between, they are written again"
LOSS_IS_SHOWN = "this run is there to show it"

WAITS_FOR_A_MARKER = (
    "the coordinator lost records of epochs: a producer gets an old epoch again, partitions that know a newer epoch "
    "refuse its marker, and until the marker is written the producer may begin no other transaction"
)
"""Is the reason why a producer may be stuck; it applies only to partitions to which transactions write."""
LOST_IN_TRANSACTIONS = {
    **dict.fromkeys(("torn-txn", "lost-txn"), "records of the transaction were lost, or its marker was"),
    **dict.fromkeys(("poll-skip", "int-poll-skip"), "a marker, which no reader gets, stands where a record was lost"),
    **dict.fromkeys(
        ("G1a", "dirty-read", "G1c", "zombie-write"),
        "the coordinator lost records of epochs and decisions: a producer gets an epoch again with which it wrote "
        "before, and its commits also commit what an earlier transaction of that epoch has left open",
    ),
    **{f"stuck-producer/{each}": WAITS_FOR_A_MARKER for each in ("load", "producer", "transactional id")},
}
"""Gives the reason for each anomaly that is also permitted if records of transactions may be lost."""

LEFT_OPEN = dict.fromkeys(
    ("hanging-txn", "stuck-consumer"),
    "the marker of a transaction, or the coordinator's record of the transaction, was lost: nobody ends it any more",
)
"""Maps each anomaly of readers that wait for the last stable offset to the reason that permits the anomaly. The reason
applies if records of transactions may be lost.
"""

LEFT_UNSTABLE = {
    "stuck-group": "the marker of a transaction that holds positions, or the coordinator's record of the transaction, "
    "was lost: nobody ends it any more, and until then the coordinator reports no position to the group"
}
"""Gives the reason for `stuck-group`, an anomaly of groups that commit positions in transactions. The anomaly is
permitted if records may be lost (KIP-447: UNSTABLE_OFFSET_COMMIT).
"""

LOST_IN_GROUPS = dict.fromkeys(
    ("lost-position", "commit-ahead", "dual-ownership", "uncommitted-offset", "eos-duplicate"),
    "the coordinator lost records of positions, members or decisions, or the group's input was lost",
)
"""Gives the reason for each anomaly of consumer groups that is permitted if a record may be lost after readers got it.
"""
LOST_OUTPUT = {"eos-loss": "the output was lost, or the record of its transaction was"}

HALF_LOST = "a record had two copies, and only the acknowledged copy was lost"
"""Is the reason for `wrong-offset`. It applies to configurations that permit both losses and duplicates."""

MECHANISMS: Mapping[str, AnomalyMechanism] = {
    **dict.fromkeys((ACKS_0_LOST, ACKS_0_ORDER), mechanisms.ARRIVAL),
    **dict.fromkeys((ACKS_1_LOST, UNCLEAN_LOST, REQUESTED, BEFORE_101), mechanisms.LATER_EPOCH),
    **dict.fromkeys((LAST_LOST, ALL_LOST), mechanisms.POWER_LOSS),
    **dict.fromkeys((DAMAGED_LOST, DAMAGED_ALONE, ACKS_0_CORRUPT, SEGMENT_LOST, SERVED_DAMAGED), mechanisms.DAMAGE),
    REPLACED: mechanisms.REPLACED,
    FOLLOWS: mechanisms.SECOND_HAND,
    SENT_AGAIN: mechanisms.RETRY,
    HALF_LOST: mechanisms.HALF_LOST,
    REORDERED: mechanisms.OVERTAKEN,
    **dict.fromkeys(
        (
            WAITS_FOR_A_MARKER,
            *LOST_IN_TRANSACTIONS.values(),
            *LEFT_OPEN.values(),
            *LEFT_UNSTABLE.values(),
            *LOST_IN_GROUPS.values(),
            *LOST_OUTPUT.values(),
        ),
        mechanisms.COORDINATOR,
    ),
    **dict.fromkeys((BY_TIME_BEHIND, AFTER), mechanisms.GOT_AGAIN),
    **dict.fromkeys((BY_TIME_AHEAD, BEFORE), mechanisms.UNFINISHED),
    **dict.fromkeys((SEVERAL_MOMENTS, DOUBLED, DELAYED_END, UNCOMMITTED, BURST, LOSS_IS_SHOWN), mechanisms.ITSELF),
}
"""Maps each reason to the mechanism that must have happened for the reason to explain a finding."""


def mechanism_of(reason: str) -> AnomalyMechanism:
    """Return the mechanism that must have happened if a finding is permitted for this reason, which is one of
    `PermittedAnomalies.ways`.
    """
    return MECHANISMS[reason]
