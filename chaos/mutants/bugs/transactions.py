"""Plants bugs of transactions: their coordinator, and their markers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from squall.broker.coordinators.transactions import ending, records
from squall.broker.coordinators.transactions.rules import TransactionRules
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import (
    MAX_EPOCH,
    V1,
    V2,
    EndTransaction,
    InitProducer,
    TransactionMetadata,
    TxnCoordinatorResult,
    TxnState,
)
from squall.broker.log.producer_rules import ProducerRules, ProducerStateEntry, VerificationStateEntry
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import Record
from squall.broker.replicas.coordinators import coordinator_log
from squall.broker.replicas.coordinators.coordinator_log import CoordinatorLog
from squall.broker.replicas.coordinators.transaction_coordinator import HostedTransactionShard, TransactionCoordinator
from squall.chaos.mutants.hunt_plans import fault, killings
from squall.chaos.mutants.mutant import always, txn_mutant
from squall.chaos.mutants.txn_plans import ABORT, COMMIT, COORDINATOR, LEAVE, TOPIC, series, txn, txn_plan
from squall.chaos.plans.plan import Plan

# The rules as they are while no mutant is planted.
SOUND_IS_VERIFIED = ProducerRules.is_verified
SOUND_DECIDE = ending.decide
SOUND_ERROR_FOR_CLIENTS = coordinator_log.error_for_clients
SOUND_BUMPED = TransactionRules.bumped


# In transactions V1 (before KIP-890) the marker leaves the producer's epoch unchanged. Since KIP-890 part 1, Kafka's
# leaders ask the coordinator before they accept the record; the mutant does not.
def is_verified(self: ProducerRules, asked: VerificationStateEntry | None, epoch: int) -> bool:
    """Return True for clients of V1, without asking the coordinator; decide correctly for clients of V2."""
    return asked is None or not asked.raises_epoch or SOUND_IS_VERIFIED(self, asked, epoch)


@txn_mutant(
    "25",
    "takes late records of a transaction that has ended, without asking its coordinator",
    source="KAFKA-14402, KIP-890 part 1",
    replaces=[(ProducerRules, "is_verified", is_verified)],
    expected="hanging-txn stuck-consumer G1a",
    faults="protocol",
)
def unverified_partitions(seed: int, rng: Random) -> Plan:
    """Return a plan in which a record arrives so late that its client has given up, and has aborted the transaction."""
    faults, transactions = [], [txn(0.05)]  # so that each partition acknowledges a record first
    for round_ in range(2):
        at_s, place = 0.4 + 6.0 * round_, rng.randrange(2)
        late = {"act": "delay", "delay_ms": rng.randint(2600, 3000), "count": 0, "side": "clients"}
        faults.append(fault(at_s, 1.2, "protocol", f"leader:{TOPIC}-{place}", api="Produce", **late))
        transactions.append(txn(at_s + 0.1, partition=1 - place))
    workload = {"generation": 1, "request_timeout_ms": 800, "delivery_timeout_ms": 1500, "transaction_timeout_ms": 4000}
    return txn_plan(seed, faults, transactions, workload=workload)


# With transactions V1 this can happen by design; Kafka fixed it with V2 (KIP-890, part 2). The mutant treats clients
# of V2 as if they used V1. Mutant 26b changes no code: its clients use V1, and its plan claims that this is safe.
def decide(
    rules: TransactionRules, found: TransactionMetadata, request: EndTransaction, now_ms: int, fresh_id: int
) -> TxnCoordinatorResult:
    """Decide an EndTxn as for transactions V1: a client of V2 keeps its epoch."""
    decision = SOUND_DECIDE(rules, found, replace(request, client_version=V1), now_ms, fresh_id)
    if decision.answer.error or request.client_version < V2:
        return decision
    return replace(decision, answer=replace(decision.answer, producer_id=found.producer_id, epoch=found.epoch))


@txn_mutant(
    "26",
    "ends transactions of V2 without a new epoch, so that a late end is taken for that of the next transaction",
    source="KAFKA-17754, Jepsen 2024 (Bufstream)",
    replaces=[(ending, "decide", decide)],
    expected="dirty-read G1a torn-txn lost-txn",
    faults="protocol",
)
def end_without_new_epoch(seed: int, rng: Random) -> Plan:
    """Return the plan `late_end`, with clients of V2."""
    return late_end(seed, rng, generation=2, expect="config")


@txn_mutant(
    "26b",
    "has clients of transactions V1, and is called safe",
    source="KAFKA-17754, KIP-890 part 2",
    expected="dirty-read G1a torn-txn lost-txn",
    faults="protocol",
)
def transactions_v1(seed: int, rng: Random) -> Plan:
    """Return the plan `late_end`, with clients of V1. It counts every anomaly as a failure."""
    return late_end(seed, rng, generation=1, expect="safe")


def late_end(seed: int, rng: Random, *, generation: int, expect: str) -> Plan:
    """Return a plan in which the first EndTxn is late, and its client retries over another connection. When the late
    request arrives, the next transaction is open: half of its records have been sent.

    generation: the clients' transaction version, 1 or 2. expect: "safe" if the plan counts every anomaly as a failure;
    "config": only those that the settings rule out.
    """
    faults, transactions = [], []
    for round_ in range(3):
        at_s = 0.4 + 4.0 * round_
        late = {"act": "delay", "delay_ms": rng.randint(1300, 1600), "count": 1, "side": "clients"}
        faults.append(fault(at_s, 2.5, "protocol", COORDINATOR, api="EndTxn", **late))
        transactions.append(txn(at_s + 0.1))
        end, pause_ms = rng.choice((COMMIT, ABORT)), rng.randint(1500, 1800)
        transactions.append(txn(at_s + 0.2, records=4, pause_ms=pause_ms, end=end))
    return txn_plan(seed, faults, transactions, expect=expect, workload={"generation": generation})


def is_marker_late(self: ProducerRules, entry: ProducerStateEntry, epoch: int, transaction_version: int) -> bool:
    """Return True only for a marker of an older epoch, in transactions V1 and V2. The correct rule for V2 also returns
    True for a marker of the current epoch.
    """
    return epoch < entry.epoch


@txn_mutant(
    "27",
    "takes a late marker of the transaction before for the end of the open one",
    source="KAFKA-19446, KIP-1228",
    replaces=[(ProducerRules, "is_marker_late", is_marker_late)],
    expected="dirty-read G1a torn-txn lost-txn",
    faults="protocol",
)
def marker_of_current_epoch(seed: int, rng: Random) -> Plan:
    """Return a plan in which a coordinator gets no response to a marker that is late, and sends a second marker, which
    arrives first. When the late marker arrives, the next transaction of the producer is open.
    """
    faults, transactions = [], []
    for round_ in range(4):
        at_s = 0.4 + 3.0 * round_
        late = {"act": "delay", "delay_ms": rng.randint(1100, 1300), "count": 1, "side": "peers"}
        faults.append(fault(at_s, 2.0, "protocol", "all", api="WriteTxnMarkers", **late))
        first, second = rng.sample((COMMIT, ABORT), 2)
        transactions.append(txn(at_s + 0.1, producer=0, end=first))
        transactions.append(txn(at_s + 0.2, producer=0, records=4, pause_ms=1200, end=second))
    # Shorter than the delay of markers: the coordinator sends them again before the late ones arrive.
    settings = {"request.timeout.ms": "500"}
    return txn_plan(seed, faults, transactions, settings=settings)


@txn_mutant(
    "28",
    "refuses a marker that is in its log already, and the coordinator gives up",
    source="KAFKA-19999",
    replaces=[(ProducerRules, "is_marker_repeated", always(False))],
    expected="hanging-txn stuck-consumer lost-txn torn-txn",
    faults="protocol",
)
def marker_retry_refused(seed: int, rng: Random) -> Plan:
    """Return a plan in which responses to markers are lost, so that the markers are sent again, while markers for one
    broker do not arrive at all.
    """
    faults, transactions = [], []
    for round_ in range(2):
        at_s = 0.4 + 4.0 * round_
        asked = {"api": "WriteTxnMarkers", "act": "drop", "count": 0, "side": "peers"}
        others = f"not {COORDINATOR}"
        faults.append(fault(at_s, rng.uniform(2.2, 2.6), "protocol", f"random {others}", **asked))
        faults.append(fault(at_s, rng.uniform(0.8, 1.1), "protocol", f"all {others}", stream="back", **asked))
        transactions.append(txn(at_s + rng.uniform(0.1, 0.3), records=3, partitions=3))
    workload = {"partitions": 3, "transaction_timeout_ms": 1500}
    # A marker whose response is lost is sent again after this time.
    return txn_plan(seed, faults, transactions, settings={"request.timeout.ms": "500"}, workload=workload)


# A transaction in epoch 32,767, the highest one, can never be ended: its markers would need a higher epoch. No plan
# has so many transactions, so epochs begin shortly below it here. Kafka used up its epochs faster, because each fence
# raised the epoch twice (KAFKA-19367).
def is_exhausted(self: TransactionCoordinatorShard, epoch: int) -> bool:
    """Return True only at 32,767, the highest epoch. The correct function already returns True at 32,766, so that the
    coordinator keeps the highest epoch for fencing.
    """
    return epoch >= MAX_EPOCH  # Kafka reserves the last epoch: one below it, a new producer id is due


def epoch_of_end(self: TransactionCoordinatorShard, transaction: TransactionMetadata, client_version: int) -> int:
    """Return the next epoch for V2, but at most 32,767, the highest one. For V1 return the current epoch."""
    return min(transaction.epoch + 1, MAX_EPOCH) if client_version >= V2 else transaction.epoch


@txn_mutant(
    "29",
    "gives the last epoch of a producer id to a client",
    source="KAFKA-20090, KAFKA-19367",
    replaces=[
        (TransactionRules, "first_epoch", always(MAX_EPOCH - 6)),
        (TransactionRules, "is_last_epoch", always(False)),
        (TransactionRules, "is_exhausted", is_exhausted),
        (TransactionRules, "epoch_of_end", epoch_of_end),
    ],
    expected="hanging-txn stuck-consumer lost-txn torn-txn",
)
def last_epoch_given_away(seed: int, rng: Random) -> Plan:
    """Return a plan with more transactions of V2 than there are epochs left."""
    return txn_plan(seed, [], series(rng, 2.5), time_s=3.0, workload={"transaction_timeout_ms": 1000})


# When a transaction times out, the coordinator fences its producer with the highest epoch, 32,767. Then the client
# sends a late abort, and the response gives this epoch to the client. Squall's swarm (its random plans) found this.
# Epochs begin at 32,766 here, so that the first fence uses up the highest epoch.
def may_end(self: TransactionCoordinatorShard, transaction: TransactionMetadata, request: EndTransaction) -> bool:
    """Return whether the epoch of an EndTxn is valid. Unlike the correct function, accept an EndTxn even after a fence
    has raised the transaction to epoch 32,767, the highest. So a client's abort after the time-out counts as a retry.
    """
    retry, state = self.is_retry_of_end(transaction, request), transaction.state
    if state in (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT):
        return retry or request.epoch == transaction.epoch
    return request.epoch == transaction.epoch


@txn_mutant(
    "29b",
    "takes a late abort for a retry of its time-out, and gives the client the last epoch",
    source="KAFKA-20090",
    replaces=[
        (TransactionRules, "first_epoch", always(MAX_EPOCH - 1)),
        (TransactionRules, "is_last_epoch", always(False)),
        (TransactionRules, "may_end", may_end),
    ],
    expected="stuck-producer stuck-consumer hanging-txn lost-txn torn-txn",
)
def last_epoch_to_late_abort(seed: int, rng: Random) -> Plan:
    """Return a plan in which the first transaction stays open until it times out; then its client aborts it, and begins
    another.
    """
    late = txn(0.1, pause_ms=rng.randint(1800, 2400), pause_at=2, end=ABORT)
    after = [txn(0.3 + 0.2 * number, records=rng.randint(1, 3)) for number in range(4)]
    return txn_plan(seed, [], [late, *after], time_s=4.0, workload={"transaction_timeout_ms": 1000})


def when_committed(self: CoordinatorLog, offset: int, call: Callable[[ErrorCode], None]) -> None:
    """Call `call` at once, when the record may be in the local log only. The correct function waits until the record is
    committed.
    """
    call(ErrorCode.NONE if self.is_ours() else ErrorCode.NOT_COORDINATOR)


@txn_mutant(
    "37",
    "acknowledges the end of a transaction, and writes its markers, before the decision is replicated",
    source="Redpanda #3003, #3039, Jepsen 2022",
    replaces=[(CoordinatorLog, "when_committed", when_committed)],
    expected="torn-txn lost-txn G1a hanging-txn",
    faults="kill pause",
)
def answers_before_commit(seed: int, rng: Random) -> Plan:
    """Return a plan with three rounds. In each, transactions end while two brokers are paused, and the third broker
    dies before they continue. Each broker dies once, so the coordinator does, too.
    """
    faults, transactions = [], []
    for round_, node in enumerate(rng.sample((1, 2, 3), 3)):
        at_s = 0.5 + 4.0 * round_
        held_s = rng.uniform(0.3, 0.4)
        for other in (1, 2, 3):
            if other != node:
                faults.append(fault(at_s + held_s, 0.6, "pause", f"node:{other}"))
        faults.append(fault(at_s + held_s + 0.4, 1.0, "kill", f"node:{node}"))
        for producer in range(3):
            pause_ms = rng.randint(450, 650)
            transactions.append(txn(at_s, producer=producer, pause_ms=pause_ms, pause_at=2))
            transactions.append(txn(at_s + 2.5, producer=producer))
    return txn_plan(seed, faults, transactions, workload={"producers": 3})


def _replay(self: TransactionCoordinator, shard: HostedTransactionShard, record: Record) -> None:
    """Replay the record without the partitions of open transactions."""
    written = None if record.key is None else records.decode(record.key, record.value)
    if written is None:
        return
    found = written.transaction
    if found is not None and found.state == TxnState.ONGOING:
        written = replace(written, transaction=replace(found, partitions=()))
    shard.machine.replay(written, record.offset)


@txn_mutant(
    "49",
    "forgets the partitions of open transactions when another coordinator takes over",
    source="Redpanda #6018",
    replaces=[(TransactionCoordinator, "_replay", _replay)],
    expected="lost-txn torn-txn hanging-txn lost-write G1a",
    faults="kill",
)
def partitions_in_memory(seed: int, rng: Random) -> Plan:
    """Return a plan in which transactions pause so long that their coordinators die in the middle of them."""
    kills = killings(rng, rounds=3)
    transactions = series(rng, kills[-1]["at_s"], producers=2, every_s=0.6, aborts=0.2, pauses_ms=(600, 900, 1200))
    return txn_plan(seed, kills, transactions, workload={"producers": 2, "transaction_timeout_ms": 6000})


def error_for_clients(error: int) -> ErrorCode:
    """Return INVALID_TXN_STATE, which means that the commit has failed, if this broker has lost its leadership.
    Translate other errors as the correct function does.
    """
    return ErrorCode.INVALID_TXN_STATE if error == ErrorCode.NOT_LEADER_OR_FOLLOWER else SOUND_ERROR_FOR_CLIENTS(error)


@txn_mutant(
    "50",
    "refuses a commit that is in its log when it is replaced, and the next coordinator carries it out",
    source="Redpanda PR 3616",
    replaces=[(coordinator_log, "error_for_clients", error_for_clients)],
    expected="G1a",
    faults="partition stop",
)
def commit_told_as_failed(seed: int, rng: Random) -> Plan:
    """Return a plan with three rounds. In each, a commit reaches the followers. Then a network partition drops all
    fetches of followers, so the coordinator does not learn that the commit is replicated. Meanwhile a broker shuts down
    in a controlled way: another one in each round, and in one of them the coordinator.
    """
    faults, transactions = [], []
    for round_, node in enumerate(rng.sample((1, 2, 3), 3)):
        at_s = 0.5 + 3.5 * round_
        cut_s = at_s + rng.uniform(0.3, 0.4)
        faults.append(fault(cut_s, 0.9, "partition", "all", side="replication", manner="drop"))
        faults.append(fault(cut_s + rng.uniform(0.12, 0.2), 0.8, "stop", f"node:{node}"))
        for producer in range(3):
            pause_ms = int((cut_s - at_s) * 1000) + rng.randint(20, 90)
            transactions.append(txn(at_s, producer=producer, pause_ms=pause_ms, pause_at=2))
    settings = {"replica.fetch.wait.max.ms": "500", "replica.lag.time.max.ms": "2000"}
    return txn_plan(seed, faults, transactions, settings=settings, workload={"producers": 3})


# Each attempt to fence a producer raises its epoch again. Once the epoch was 32,767, the highest one, Kafka's
# coordinator could not fence the producer any more, and its transaction stayed open. Epochs begin shortly below the
# highest one here.
def fenced_epoch_59(self: TransactionCoordinatorShard, transaction: TransactionMetadata) -> int:
    """Return the next epoch, and store it in memory even if the record of the fence is never written. Raise ValueError
    if the epoch is already 32,767, the highest one (Kafka raised IllegalStateException).
    """
    raised = transaction.epoch + 1
    if raised > MAX_EPOCH:
        raise ValueError(f"cannot fence {transaction.transactional_id}: its epoch would overflow")
    self.transactions[transaction.transactional_id] = replace(transaction, epoch=raised)
    return raised


def is_timed_out(self: TransactionCoordinatorShard, transaction: TransactionMetadata, now_ms: int) -> bool:
    """Do what the correct function does, but return False if the epoch is 32,767, the highest one: a fence would need a
    higher epoch, so the transaction stays open.
    """
    late = transaction.started_ms + transaction.timeout_ms < now_ms
    return transaction.state == TxnState.ONGOING and late and transaction.epoch < MAX_EPOCH


@txn_mutant(
    "59",
    "raises the epoch in memory for each fence that it tries to write",
    source="KAFKA-9666",
    replaces=[
        (TransactionRules, "first_epoch", always(MAX_EPOCH - 12)),
        (TransactionRules, "fenced_epoch", fenced_epoch_59),
        (TransactionRules, "is_timed_out", is_timed_out),
    ],
    expected="hanging-txn stuck-consumer",
    faults="kill",
)
def failed_fence_bumps(seed: int, rng: Random) -> Plan:
    """Return a plan in which a client leaves its transaction open, and the coordinator's log accepts no records: a
    replica is gone, and all three must be in sync. The coordinator tries to fence again and again.
    """
    open_s = rng.uniform(1.0, 1.4)
    down = fault(open_s + rng.uniform(0.1, 0.3), rng.uniform(6.0, 7.0), "kill", f"node:{rng.randint(1, 3)}")
    transactions = [
        *series(rng, 0.8, every_s=0.3),
        txn(open_s, producer=1, records=1, partition=rng.randrange(2), end=LEAVE, pause_ms=1500),
        txn(open_s + 1.0, producer=1, records=2),
    ]
    settings = {"transaction.state.log.min.isr": "3"}
    workload = {"producers": 2, "transaction_timeout_ms": 1000}
    return txn_plan(seed, [down], transactions, settings=settings, workload=workload)


@txn_mutant(
    "60",
    "lets a transaction begin while markers of the one before are being written",
    source="KAFKA-12671, ydb PR 52731",
    replaces=[(TransactionRules, "may_begin", always(True)), (TransactionCoordinatorShard, "_check", always(None))],
    expected="lost-txn torn-txn G1a dirty-read lost-write",
    faults="protocol",
)
def next_begins_too_early(seed: int, rng: Random) -> Plan:
    """Return a plan in which one transaction follows right after the other, and markers come late."""
    late = {"act": "delay", "delay_ms": rng.randint(200, 400), "count": 0, "side": "peers"}
    faults = [fault(0.2, 4.0, "protocol", "all", api="WriteTxnMarkers", **late)]
    transactions = []
    for round_ in range(4):
        at_s = 0.4 + round_
        first, second = rng.sample((COMMIT, ABORT), 2)
        transactions.append(txn(at_s, records=2, end=first))
        transactions.append(txn(at_s + 0.01, records=4, pause_ms=rng.randint(300, 600), end=second))
    return txn_plan(seed, faults, transactions)


UNVERIFIED = {
    "squall.bootstrap.features": "transaction.version=0",
    "transaction.partition.verification.enable": "false",
}
"""Holds the settings of a cluster from before KIP-890. In it, only the fencing of old epochs keeps a stopped producer
from writing on.
"""


def fenced_epoch_90(self: TransactionRules, transaction: TransactionMetadata) -> int:
    """Return the current epoch for the abort of an open transaction. The correct function returns a higher epoch, which
    fences the old producer.
    """
    return transaction.epoch


def bumped(self: TransactionRules, transaction: TransactionMetadata, request: InitProducer) -> tuple[int, int] | None:
    """Do what the correct function does, but keep the epoch for a new producer if the previous transaction was aborted.
    The correct function raises it. The result is the epoch, and the epoch before its latest bump, such as (8, 7); None:
    the producer is fenced.
    """
    if request.producer_id < 0 and transaction.state == TxnState.COMPLETE_ABORT:
        return transaction.epoch, transaction.last_epoch
    return SOUND_BUMPED(self, transaction, request)


@txn_mutant(
    "90",
    "does not raise the epoch of a transactional id whose open transaction it aborts for a new producer",
    source="KIP-98: InitProducerId fences all earlier producers of its id",
    replaces=[(TransactionRules, "fenced_epoch", fenced_epoch_90), (TransactionRules, "bumped", bumped)],
    expected="zombie-write",
    faults="zombie",
)
def takeover_keeps_epoch(seed: int, rng: Random) -> Plan:
    """Return a plan in which a producer is stopped inside a transaction, and continues once a successor has taken over
    its transactional id. The successor first writes to another partition. Later it writes to the producer's partition,
    and its marker there also ends the producer's transaction.
    """
    times = [0.1 + 0.3 * n + rng.uniform(0.0, 0.1) for n in range(20)]
    transactions = [txn(at_s, records=1, partition=int(at_s < 4.5)) for at_s in times]
    stopped = fault(rng.uniform(0.8, 1.4), rng.uniform(0.8, 1.4), "zombie", "producer")
    return txn_plan(seed, [stopped], transactions, time_s=7.0, settings=UNVERIFIED, workload={"generation": 1})
