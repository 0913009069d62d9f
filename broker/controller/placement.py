"""Places the replicas of new partitions: leaders and followers spread evenly, across racks, live brokers first
(mechanism C1 in docs/mechanisms.md).

The unfenced brokers form a ring, in which the racks take turns (`ring`). They lead the new partitions in the order of
the ring, from a random start. A partition's followers are brokers some places after its leader, if possible in other
racks. The number of places grows by one each time every broker has led a partition. Otherwise all partitions of a
leader would have the same followers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.controller.decision import Refusal
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from squall.broker.cluster.image import Broker, ClusterImage
    from squall.broker.controller.decision import Command


def place(command: Command, count: int, replication_factor: int) -> list[tuple[int, ...]]:
    """Return the replicas of `count` new partitions, leader first. Raises Refusal (INVALID_REPLICATION_FACTOR).

    Brokers in controlled shutdown, or with all log directories cordoned, are not used. Fenced brokers are used only if
    there are too few others, and never as leaders.
    """
    assert count > 0
    assert replication_factor > 0
    brokers = [broker for broker in command.image.brokers.values() if not broker.cordoned]
    usable = [broker for broker in brokers if not broker.in_controlled_shutdown]
    if len(usable) < replication_factor:
        raise _impossible(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(usable)} broker(s) are registered.",
        )
    live = ring([broker for broker in usable if not broker.fenced])
    if not live:
        raise _impossible(replication_factor, "All brokers are currently fenced.")
    spare = ring([broker for broker in usable if broker.fenced])
    assert len(live) + len(spare) == len(usable)
    # A new random start per request: otherwise the first broker would lead all topics of one partition.
    start = command.rng.randrange(len(live))
    shift = command.rng.randrange(len(live))
    return [_replicas(live, spare, start + nth, shift, replication_factor) for nth in range(count)]


def _replicas(live: list[Broker], spare: list[Broker], nth: int, shift: int, wanted: int) -> tuple[int, ...]:
    turn, at = divmod(nth, len(live))
    leader = live[at]
    assert not leader.fenced
    others = live[at + 1 :] + live[:at]
    if others:
        # Each round over the leaders begins with other followers: else the same brokers would share all partitions.
        distance = (shift + turn) % len(others)
        others = others[distance:] + others[:distance]
    others += spare[nth % len(spare) :] + spare[: nth % len(spare)] if spare else []
    assert wanted <= 1 + len(others)
    chosen = [leader]
    while len(chosen) < wanted:
        racks = {broker.rack for broker in chosen}
        follower = next((broker for broker in others if broker.rack is None or broker.rack not in racks), others[0])
        chosen.append(follower)
        others.remove(follower)
    replicas = tuple(broker.id for broker in chosen)
    assert len(set(replicas)) == wanted
    return replicas


def ring(brokers: list[Broker]) -> list[Broker]:
    """Return the brokers in an order in which racks take turns: the lowest id of each rack, then the second lowest, and
    so on. For example, rack a with the brokers 1 and 2, and rack b with 3, give 1, 3, 2.
    """
    racks: dict[str, list[Broker]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks.setdefault(broker.rack or "", []).append(broker)
    order: list[Broker] = []
    for turn in range(max((len(members) for members in racks.values()), default=0)):
        order += [members[turn] for _, members in sorted(racks.items()) if turn < len(members)]
    assert len(order) == len(brokers)
    return order


def _impossible(replication_factor: int, why: str) -> Refusal:
    message = f"Unable to replicate the partition {replication_factor} time(s): {why}"
    return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def check_manual(image: ClusterImage, replicas: tuple[int, ...], replication_factor: int | None) -> None:
    """Refuse a manual assignment that is empty, repeats a broker or names an unknown one, or does not have
    `replication_factor` replicas (None permits any number).
    """
    if not replicas:
        raise _refuse_manual("includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _refuse_manual(f"includes broker {broker_id}, but no such broker is registered.")
        if broker_id == previous:
            raise _refuse_manual(f"includes the broker {broker_id} more than once.")
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _refuse_manual(
            f"includes a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s)."
        )


def _refuse_manual(what: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {what}")


def live_replicas(image: ClusterImage, replicas: tuple[int, ...]) -> tuple[int, ...]:
    """Return the replicas that may be in a new partition's ISR, in order."""
    return tuple(replica for replica in replicas if image.is_active(replica))
