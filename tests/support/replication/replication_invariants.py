"""The invariants of `World`, with their names in the published specifications of Kafka's replication."""

from __future__ import annotations

from squall.broker.replication import Partition
from tests.support.replication.replication_world import Node, World


def check_invariants(world: World) -> None:
    """Assert the invariants that hold after every step, even while messages are lost or late and nodes are down."""
    running = {b: node.partition for b, node in world.nodes.items() if node.partition is not None}
    for broker, partition in running.items():
        node = world.nodes[broker]
        assert partition.log_end_offset == len(node.log)
        assert 0 <= partition.high_watermark <= partition.log_end_offset
        assert node.log.epochs == sorted(set(node.log.epochs)), "epoch cache is monotone"
    if world.forgiving:
        return
    _check_acknowledged(world)
    for broker, partition in running.items():
        if partition.is_leader:
            _check_leader(world, world.nodes[broker], partition)
    committed = sorted(running.items(), key=lambda item: item[1].high_watermark)
    for (low, partition), (high, _) in zip(committed, committed[1:], strict=False):
        prefix = partition.high_watermark
        same = world.nodes[low].log.entries[:prefix] == world.nodes[high].log.entries[:prefix]
        assert same, f"committed prefixes of {low} and {high} differ"


def _check_acknowledged(world: World) -> None:
    for value, offset in world.acked.items():
        for member in world.controller.keepers():
            log = world.nodes[member].log
            assert offset < len(log), f"{value} was acknowledged at {offset}; {member} of the ISR ends at {len(log)}"
            assert log.entries[offset][1] == value, f"{member} of the ISR has another record than {value} at {offset}"


def _check_leader(world: World, node: Node, partition: Partition) -> None:
    state = world.controller.state
    assert partition.leader_id == node.id
    assert node.id in partition.isr, "LeaderInIsr"
    assert set(partition.isr) <= set(partition.maximal_isr), "the maximal ISR lacks a committed member"
    place = node.id, node.incarnation, partition.leader_epoch
    assert partition.high_watermark >= world.led.get(place, 0), "high watermark went back"
    world.led[place] = partition.high_watermark
    if partition.leader_epoch == state.leader_epoch:
        assert set(state.isr) <= set(partition.maximal_isr), "ReplicationQuorumSuperset"
    committed = node.log.entries[: partition.high_watermark]
    for member in world.controller.keepers():
        same = world.nodes[member].log.entries[: partition.high_watermark] == committed
        assert same, f"StrongIsr: {member} lacks what {node.id} committed in epoch {partition.leader_epoch}"


def check_converged(world: World) -> None:
    """Assert, after `World.settle`, that all logs are equal, fully committed and in sync, and have every acknowledged
    record.
    """
    world.forgiving = False
    check_invariants(world)
    leader = world.nodes[world.controller.state.leader]
    for node in world.nodes.values():
        assert node.log.entries == leader.log.entries, f"{node.id} differs from the leader {leader.id}"
        assert node.running.high_watermark == len(leader.log), f"not all is committed on {node.id}"
    assert set(world.controller.state.isr) == set(world.nodes), "somebody is not in the ISR"
    assert leader.running.maximal_isr == leader.running.isr == world.controller.state.isr
