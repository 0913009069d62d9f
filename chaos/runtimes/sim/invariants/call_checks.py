"""Checks brokers' responses and ISR proposals when they are made, as `broker_calls` observes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.chaos.runtimes.sim.invariants.partition_checks import check

if TYPE_CHECKING:
    from squall.broker.protocol.hot.types import FetchResponsePartition
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replication.partition import Partition
    from squall.chaos.runtimes.sim.invariants.partition_checks import Report
    from squall.chaos.runtimes.sim.invariants.table import CheckTrigger
    from squall.chaos.runtimes.sim.invariants.txn_watch import TransactionWatch
    from squall.chaos.runtimes.sim.invariants.watched import WatchedReplicas


class CallChecks:
    """Checks what `broker_calls` observes inside the brokers, for example Fetch responses and ISR proposals. A replica
    that the invariant checker does not know is skipped.
    """

    def __init__(self, report: Report, replicas: WatchedReplicas, txns: TransactionWatch) -> None:
        self._report, self._replicas, self._txns = report, replicas, txns

    def found(self, trigger: CheckTrigger, found: Any, state: Partition) -> None:
        """Check the invariants of `trigger` (a kind of event) for one replica. `found`: the value to check, for example
        a `LatestOffsetResponse`. `state`: the replica's state machine.
        """
        replica = self._replicas.of(state)
        if replica is not None:
            check(self._report, trigger, found, node=replica.node.id, known=replica.known)

    def found_on(self, trigger: CheckTrigger, found: Any, node: int | None) -> None:
        """Check the invariants of `trigger` (a kind of event) for a value that concerns no replica. `found`: the value,
        for example a `MemberRemoval`. `node`: the id of the node; None if the observed call does not show it.
        """
        check(self._report, trigger, found, node=node)

    def fetched(self, hosted: HostedPartition, offset: int, answer: FetchResponsePartition) -> None:
        """Check the list of aborted transactions in a Fetch response for one partition, and note the log start offset
        that the response has. `offset`: the requested offset.
        """
        replica = self._replicas.of(hosted.state)
        if replica is None or replica.log is not hosted.log or replica.copy.generation != hosted.log.generation:
            return
        named, node = replica.known.named, replica.node.id
        if answer.log_start_offset > named.get(node, 0):
            named[node] = answer.log_start_offset
        if answer.aborted is not None and answer.records:
            self._txns.answered(replica, offset, hosted.log.bound_of(answer.records, offset), answer.aborted)
