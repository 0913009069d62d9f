"""Plants bugs of reads at read_committed: the last stable offset, and aborted transactions."""

from __future__ import annotations

from random import Random

from squall.broker.apis.fetch import DelayedFetch, FetchApi
from squall.broker.apis.fetch_session import PartitionRequest
from squall.broker.log import reads
from squall.broker.log.indexes import AbortedTxn
from squall.broker.log.log import Log
from squall.broker.log.producer_rules import ProducerRules
from squall.broker.protocol.hot import FetchResponsePartition
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.broker.replication import Partition
from squall.broker.replication.rules import READ_COMMITTED, PartitionRules
from squall.chaos.mutants.hunt_plans import fault, killings
from squall.chaos.mutants.mutant import always, txn_mutant
from squall.chaos.mutants.txn_plans import COMMIT, series, txn, txn_plan
from squall.chaos.plans.plan import Plan

# The rules as they are while no mutant is planted.
SOUND_FIRST_UNSTABLE_OFFSET = HostedPartition.first_unstable_offset
SOUND_WAKE = DelayedFetch.wake
SOUND_READ = FetchApi._read
SOUND_LAST_STABLE_OFFSET = PartitionRules.last_stable_offset

BEFORE, NOW = "high_watermark_before", "high_watermark_now"


def first_unstable_offset(self: HostedPartition) -> int | None:
    """Return None, as if no transaction were open, if the first open transaction begins at or above the previous value
    of the high watermark. Otherwise return the correct offset.
    """
    seen, high_watermark = vars(self.log), self.state.high_watermark
    if seen.get(NOW) != high_watermark:
        seen[BEFORE], seen[NOW] = seen.get(NOW, 0), high_watermark
    first = SOUND_FIRST_UNSTABLE_OFFSET(self)
    return None if first is not None and first >= seen[BEFORE] else first


@txn_mutant(
    "30",
    "compares open transactions with the high watermark before it moved, and reads up to where it is now",
    source="KAFKA-9807",
    replaces=[(HostedPartition, "first_unstable_offset", first_unstable_offset)],
    expected="G1a dirty-read offset-regression",
)
def two_high_watermarks(seed: int, rng: Random) -> Plan:
    """Return a plan in which readers fetch again and again while transactions begin and are aborted."""
    return txn_plan(seed, [], series(rng, 2.0), time_s=2.5, workload={"poll_pause_ms": 0})


READ_UNCOMMITTED = 0


def wake(self: DelayedFetch) -> None:
    """Wake the fetch, and turn it into a read_uncommitted fetch."""
    self.isolation = READ_UNCOMMITTED
    SOUND_WAKE(self)


def _read(
    self: FetchApi, fetch: DelayedFetch, want: PartitionRequest, left: int, first: bool
) -> FetchResponsePartition:
    """Do what the correct function does, but leave the list of aborted transactions empty if the fetch has waited. The
    consumer then returns aborted records.
    """
    out = SOUND_READ(self, fetch, want, left, first)
    return out._replace(aborted=[]) if out.aborted and fetch.slot.parked is fetch else out


@txn_mutant(
    "31",
    "answers a fetch that has waited as if it were read_uncommitted",
    source="KAFKA-5355",
    replaces=[(DelayedFetch, "wake", wake)],
    expected="dirty-read G1a lso-violation",
)
def delayed_fetch_loses_isolation(seed: int, rng: Random) -> Plan:
    """Return a plan in which readers wait for more records while transactions begin, and many are aborted. Readers
    hardly pause, so most fetches wait.
    """
    return txn_plan(seed, [], series(rng, 2.0), time_s=2.5, workload={"poll_pause_ms": 0})


@txn_mutant(
    "31b",
    "leaves the aborted transactions out of the answer to a fetch that has waited",
    source="KAFKA-5376",
    replaces=[(FetchApi, "_read", _read)],
    expected="G1a",
)
def delayed_fetch_loses_aborted(seed: int, rng: Random) -> Plan:
    """Return a plan as that of mutant 31, at other times."""
    return txn_plan(seed, [], series(rng, 2.0), time_s=2.5, workload={"poll_pause_ms": 0})


@txn_mutant(
    "32",
    "moves the last stable offset past a transaction whose marker is not replicated yet",
    source="Kafka, ProducerStateManager.unreplicatedTxns",
    replaces=[(ProducerRules, "is_undecided", always(False))],
    expected="offset-regression",
    faults="protocol partition kill",
)
def unreplicated_markers_ignored(seed: int, rng: Random) -> Plan:
    """Return a plan in which markers come late, and reach a leader from which followers cannot fetch any more. Readers
    ask this leader for the last stable offset, then it dies. The next leader gets the markers late as well. This
    happens to each broker once.
    """
    faults, transactions = [], []
    for round_, number in enumerate(rng.sample((1, 2, 3), 3)):
        at_s, node = 0.3 + 6.0 * round_, f"node:{number}"
        late = {"act": "delay", "delay_ms": 1500, "count": 0, "side": "peers"}
        faults.append(fault(at_s, 5.0, "protocol", "all", api="WriteTxnMarkers", **late))
        faults.append(fault(at_s + 0.4, 2.4, "partition", node, side="replication", manner="drop"))
        faults.append(fault(at_s + rng.uniform(2.3, 2.6), 1.0, "kill", node))
        transactions.append(txn(at_s + 0.1, records=6, partitions=6))
    workload = {"partitions": 6, "readers": 8, "poll_pause_ms": 0, "transaction_timeout_ms": 10_000}
    settings = {"replica.lag.time.max.ms": "6000"}
    return txn_plan(seed, faults, transactions, settings=settings, workload=workload)


def last_stable_offset_37b(self: Partition, first_unstable_offset: int | None) -> int:
    """Return an offset that includes the first record of the oldest open transaction."""
    if first_unstable_offset is None:
        return self.high_watermark
    return min(self.high_watermark, first_unstable_offset + 1)


def read_limit_by_stable_offset(self: Partition, isolation: int, first_unstable_offset: int | None) -> int:
    """Return the end of a consumer's read: with read_committed the last stable offset, which a mutant gets wrong."""
    return self.last_stable_offset(first_unstable_offset) if isolation == READ_COMMITTED else self.high_watermark


@txn_mutant(
    "37b",
    "lets readers of committed data read the first record of an open transaction",
    source="Redpanda #3036, Jepsen 2022",
    replaces=[
        (PartitionRules, "last_stable_offset", last_stable_offset_37b),
        (PartitionRules, "read_limit", read_limit_by_stable_offset),
    ],
    expected="dirty-read G1a",
)
def stable_offset_off_by_one(seed: int, rng: Random) -> Plan:
    """Return a plan with transactions that pause, so that readers fetch while they are open; many are aborted."""
    return txn_plan(seed, [], series(rng, 2.0), time_s=2.5)


def last_stable_offset_48(self: Partition, first_unstable_offset: int | None) -> int:
    """Return the log start offset until a record of this leader's own epoch is committed."""
    if 0 < self.epoch_start_offset and self.high_watermark <= self.epoch_start_offset:
        return self.log_start_offset
    return SOUND_LAST_STABLE_OFFSET(self, first_unstable_offset)


@txn_mutant(
    "48",
    "tells a last stable offset right after an election that is below what the leader before had told",
    source="Redpanda PR 7544",
    replaces=[
        (PartitionRules, "last_stable_offset", last_stable_offset_48),
        (PartitionRules, "read_limit", read_limit_by_stable_offset),
    ],
    expected="offset-regression",
    faults="kill",
)
def stable_offset_goes_back(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders die. There are few transactions, and readers ask each new leader for the latest
    offset soon after its election.
    """
    kills = killings(rng, rounds=3)
    workload = {"producers": 1, "readers": 4, "poll_pause_ms": 0}
    return txn_plan(seed, kills, series(rng, kills[-1]["at_s"], every_s=0.8), workload=workload)


def aborted_transactions(self: Log, offset: int, end_offset: int) -> list[AbortedTxn]:
    """Return the aborted transactions of the newest segment only."""
    return reads.aborted_transactions(self.segments[-1:], offset, end_offset)


@txn_mutant(
    "72",
    "leaves out the aborted transactions of all segments but the newest",
    source="Redpanda PR 23008 (2024)",
    replaces=[(Log, "aborted_transactions", aborted_transactions)],
    expected="G1a",
)
def aborted_of_old_segments(seed: int, rng: Random) -> Plan:
    """Return a plan with segments so small that a few transactions fill a segment."""
    load = {"producers": 2, "topic_settings": {"segment.bytes": "2048"}}
    return txn_plan(seed, [], series(rng, 3.0, producers=2), workload=load, time_s=3.5)


def read_limit_89(self: Partition, isolation: int, first_unstable_offset: int | None) -> int:
    """Return the high watermark for every isolation level."""
    return self.high_watermark


@txn_mutant(
    "89",
    "gives records of open transactions to readers of committed data",
    source="KoP #1283 (2022), PR 1856 (2023)",
    replaces=[(PartitionRules, "read_limit", read_limit_89)],
    expected="G1c",
)
def open_transactions_read(seed: int, rng: Random) -> Plan:
    """Return a plan with pairs of transactions that run at the same time. Each of the two sends a record, polls twice,
    and commits.
    """
    pairs = []
    for round_ in range(5):
        at_s = 0.3 + 0.8 * round_
        for producer in range(2):
            steps = f"send {producer}, pause {rng.randint(80, 140)}, poll, poll, pause {rng.randint(80, 140)}"
            pairs.append([round(at_s + rng.uniform(0.0, 0.03), 3), producer, steps, 100, COMMIT])
    return txn_plan(seed, [], pairs, time_s=5.0, workload={"producers": 2, "isolation": "read_committed"})
