"""Explains in lines of text why a cluster does not converge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from squall.chaos.runtimes.sim.invariants.group_watch import GROUPS_LOG
from squall.chaos.runtimes.sim.invariants.inspection import undecided
from squall.chaos.runtimes.sim.invariants.txn_watch import COORDINATORS_LOG

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.models import ClusterModel, PartitionModel


def convergence_problems(
    nodes: Mapping[int, Any], partitions: Iterable[PartitionModel], cluster: ClusterModel
) -> list[str]:
    """Return a line for each reason why the cluster has not converged. If there is such a reason, or if the number of
    quorum leaders is not 1, a line on each running node's state in the quorum is added.
    """
    lines = [f"node {sim.id} is down" for sim in nodes.values() if sim.node is None]
    running = [sim for sim in nodes.values() if sim.node is not None]
    lines += [f"node {node} is fenced" for node, broker in sorted(cluster.brokers.items()) if broker.fenced]
    lines += [f"node {sim.id} is not registered" for sim in running if sim.id not in cluster.brokers]
    for known in partitions:
        lines += _of_partition(known)
    for sim in running:
        lines += _proposals(sim)
    leaders = sorted({sim.node.control.quorum.leader_id for sim in running if sim.node.control.quorum.is_leader})
    if lines or len(leaders) != 1:
        lines += [_seat(sim) for sim in running]
    return lines


def _of_partition(known: PartitionModel) -> list[str]:
    where, truth = f"{known.topic}-{known.partition}", known.truth
    if truth is None:
        return [f"{where}: nothing is decided"]
    lines = []
    decided = f"leader {truth.leader} in epoch {truth.leader_epoch}.{truth.partition_epoch}, ISR {list(truth.isr)}"
    if truth.elr:
        decided += f", ELR {list(truth.elr)}"
    if truth.leader < 0:
        lines.append(f"{where}: nobody leads; {decided}")
    elif set(truth.isr) != set(truth.replicas):
        lines.append(f"{where}: not in the ISR: {sorted(set(truth.replicas) - set(truth.isr))}; {decided}")
    for node in truth.replicas:
        view = known.views.get(node)
        if view is None:
            lines.append(f"{where}: node {node} runs no replica; {decided}")
        elif view.leader_epoch != truth.leader_epoch:
            lines.append(f"{where}: node {node} is {view.role} in epoch {view.leader_epoch}; {decided}")
        elif view.hw != view.leo or view.leo != known.ledger.end:
            lines.append(
                f"{where}: node {node}, {view.role}, ends at {view.leo}, high watermark {view.hw}, maximal ISR "
                f"{list(view.maximal_isr)}; committed is what is before {known.ledger.end}"
            )
    return lines


def coordinators_write(partitions: Iterable[PartitionModel]) -> bool:
    """Return whether a coordinator has just written a record that is not committed yet."""
    logs = [known for known in partitions if known.topic in (COORDINATORS_LOG, GROUPS_LOG)]
    return any(view.leads and view.leo > view.hw for known in logs for view in known.views.values())


def _proposals(sim: Any) -> list[str]:
    lines = []
    for state, proposal in undecided(sim.node.proposals):
        lines.append(
            f"{state.topic}-{state.index}: node {sim.id} waits for its proposed ISR {list(proposal.members)} "
            f"in epoch {proposal.leader_epoch}.{proposal.partition_epoch}"
        )
    return lines


def _seat(sim: Any) -> str:
    quorum = sim.node.control.quorum
    role = quorum.inspect().role.value
    return (
        f"quorum: node {sim.id} is {role} in epoch {quorum.epoch}, leader {quorum.leader_id}, "
        f"high watermark {quorum.high_watermark} of {quorum.end_offset}, image at {sim.node.feed.image.offset}"
    )
