"""Defines the invariants of the control plane's decisions, and of each node's image of the cluster metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.chaos.runtimes.sim.invariants.contents import NOT_KNOWN, ComparableImage
from squall.chaos.runtimes.sim.invariants.state_differences import of_image
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, invariant

if TYPE_CHECKING:
    from squall.broker.cluster.image import PartitionImage
    from squall.chaos.runtimes.sim.invariants.models import PartitionModel

STATE = "Vanlightly, KIP-966: ValidControllerState"


@invariant("valid-decision", CheckTrigger.DECISION, STATE)
def valid_decision(before: PartitionImage | None, now: PartitionImage, known: PartitionModel) -> str | None:
    """The ISR and the eligible leader replicas are disjoint subsets of the partition's replicas, without duplicates. A
    leader is in the ISR. The ISR may be empty only if eligible leader replicas (KIP-966) are enabled in the cluster.
    """
    members = now.isr + now.elr
    if len(set(members)) != len(members) or not set(members) <= set(now.replicas):
        return f"ISR {list(now.isr)}, ELR {list(now.elr)} of the replicas {list(now.replicas)}"
    if now.leader >= 0 and now.leader not in now.isr:
        return f"leader {now.leader} is not in the ISR {list(now.isr)}"
    if not now.isr and not known.promise.elr:
        return "the ISR is empty"
    return None


@invariant("decision-epochs", CheckTrigger.DECISION, "KIP-497: every change of a partition has an epoch of its own")
def decision_epochs(before: PartitionImage | None, now: PartitionImage, known: PartitionModel) -> str | None:
    """Every change of a partition raises its partition epoch, a change of the leader also the leader epoch, and neither
    epoch goes back.
    """
    if before is None or before == now:
        return None
    if now.partition_epoch <= before.partition_epoch or now.leader_epoch < before.leader_epoch:
        was, is_ = (before.leader_epoch, before.partition_epoch), (now.leader_epoch, now.partition_epoch)
        return f"leader and partition epoch were {was}, and are {is_} after another change"
    if now.leader != before.leader and now.leader_epoch == before.leader_epoch:
        return f"leader {before.leader} and leader {now.leader} in one epoch, {now.leader_epoch}"
    return None


@invariant("isr-joins-in-service", CheckTrigger.DECISION, "KIP-841, KAFKA-13916; " + STATE)
def isr_joins_in_service(before: PartitionImage | None, now: PartitionImage, known: PartitionModel) -> str | None:
    """No fenced broker is in an ISR, unless it is the ISR's only member."""
    if len(now.isr) < 2:
        return None
    fenced = [member for member in now.isr if known.cluster.is_fenced(member)]
    return f"the ISR {list(now.isr)} has fenced members: {fenced}" if fenced else None


@invariant("clean-election", CheckTrigger.DECISION, "KIP-966, KIP-704: from ISR or ELR, else recovering")
def clean_election(before: PartitionImage | None, now: PartitionImage, known: PartitionModel) -> str | None:
    """A new leader was in the ISR or among the eligible leader replicas, or the partition's leader recovery state is
    RECOVERING (KIP-704). That state is permitted only if unclean elections or eligible leader replicas are on. (The
    decision that completes a reassignment may also elect an added replica that joins the ISR by this decision.)
    """
    # If decisions between the two are not known, the leader may have been in an ISR of theirs.
    if before is None or now.leader in (-1, before.leader) or now.partition_epoch != before.partition_epoch + 1:
        return None
    if now.leader in before.isr + before.elr + before.adding:
        return None
    if not now.leader_recovery_state:
        return f"{now.leader} leads, and was in neither ISR {list(before.isr)} nor ELR {list(before.elr)}"
    if not known.promise.unclean and not known.promise.elr:
        return f"{now.leader} was elected from outside the ISR {list(before.isr)}; unclean elections are off"
    return None


@invariant(
    "reassignment-within-replicas", CheckTrigger.DECISION, "KIP-455: who is added and who is removed are replicas"
)
def reassignment_within_replicas(
    before: PartitionImage | None, now: PartitionImage, known: PartitionModel
) -> str | None:
    """Every replica that a reassignment adds or removes is in the partition's list of replicas, once, and none is both
    added and removed.
    """
    moving = now.adding + now.removing
    if not moving or (len(set(moving)) == len(moving) and set(moving) <= set(now.replicas)):
        return None
    return f"{list(now.adding)} come and {list(now.removing)} go, of the replicas {list(now.replicas)}"


@invariant(
    "reassignment-ends-in-sync", CheckTrigger.DECISION, "KIP-455: a reassignment ends when its replicas are in sync"
)
def reassignment_ends_in_sync(before: PartitionImage | None, now: PartitionImage, known: PartitionModel) -> str | None:
    """A reassignment ends only when every added replica is in the ISR: a replica that is no longer listed as being
    added, and is still a replica, is in the ISR.
    """
    if before is None or not before.adding:
        return None
    early = [each for each in before.adding if each in now.replicas and each not in now.adding + now.isr]
    if not early:
        return None
    added, isr = list(before.adding), list(now.isr)
    return f"the reassignment is over, and of the added {added} {early} are not in the ISR {isr}"


@invariant("reassignment-ends-as-asked", CheckTrigger.DECISION, "KIP-455: the target replicas, or the original ones")
def reassignment_ends_as_asked(before: PartitionImage | None, now: PartitionImage, known: PartitionModel) -> str | None:
    """A reassignment ends in one of three ways. Completed: exactly the replicas to be removed are gone. Cancelled:
    exactly the added replicas are gone. Replaced: only replicas are left that the partition had during the
    reassignment, at least as many as after a completion or after a cancellation, whichever leaves fewer. If a
    reassignment was cancelled or replaced, some controller has received a request for that.
    """
    if before is None or not before.adding + before.removing or now.adding + now.removing:
        return None
    if now.partition_epoch != before.partition_epoch + 1:
        return None  # No log has the decisions between.
    target = tuple(each for each in before.replicas if each not in before.removing)
    original = tuple(each for each in before.replicas if each not in before.adding)
    if now.replicas == target:
        return None
    wanted = f"of {list(before.replicas)} {list(before.adding)} came and {list(before.removing)} went"
    if before.isr and not now.leader_recovery_state and not set(now.isr) <= set(before.isr):
        return f"completed with the replicas {list(now.replicas)}: {wanted}"
    if not _was_asked(now.replicas, original, known):
        return f"ends with the replicas {list(now.replicas)}, for which nobody has asked: {wanted}"
    asked = set(now.replicas) <= set(before.replicas) and len(now.replicas) >= min(len(target), len(original))
    return None if now.replicas == original or asked else f"ends with the replicas {list(now.replicas)}: {wanted}"


def _was_asked(replicas: tuple[int, ...], original: tuple[int, ...], known: PartitionModel) -> bool:
    """Return whether a controller ever received a request that explains why a reassignment ended with `replicas`: a
    request for these replicas in any order, or, if they equal `original`, a request to cancel. `original`: the
    partition's replicas before the reassignment. Returns True if requests are not observed.
    """
    if known.cluster.asked is None:
        return True
    asked = known.cluster.asked.get((known.topic, known.partition), ())
    return any(original == replicas if each is None else set(each) == set(replicas) for each in asked)


@invariant(
    "image-is-a-replay", CheckTrigger.IMAGE, "KRaft: metadata is a function of the log; Vanlightly: MetadataLogMatching"
)
def image_is_a_replay(image: ComparableImage, replayed: ComparableImage) -> str | None:
    """A node's image at an offset of the metadata log equals the result of the records up to that offset. (If no log
    has these records any more, it equals the image that was seen first at that offset.)
    """
    return None if image == replayed else of_image(image, replayed)


@invariant(
    "registration-is-a-replay", CheckTrigger.IMAGE, "Kafka: a broker is unfenced when it has replayed its registration"
)
def registration_is_a_replay(image: ComparableImage, replayed: ComparableImage) -> str | None:
    """A node's image has, for each broker, the offset of the record of its last registration. A snapshot does not keep
    this offset: an image that came from a snapshot has the broker's epoch instead. (If no log has the record any more,
    the check is weaker: the offset is not before the broker's epoch.)
    """
    registered = {broker.id: broker.registered_at for broker in replayed.brokers}
    for broker in image.brokers:
        found, wanted = broker.registered_at, registered.get(broker.id, NOT_KNOWN)
        if found != broker.epoch and (found < broker.epoch if wanted == NOT_KNOWN else found != wanted):
            record = "another record" if wanted == NOT_KNOWN else f"the record at offset {wanted}"
            return f"broker {broker.id}, of epoch {broker.epoch}, was registered by {record}, not at offset {found}"
    return None


@invariant(
    "feature-offset-is-a-replay", CheckTrigger.IMAGE, "Kafka: finalizedFeaturesEpoch, by which clients drop old levels"
)
def feature_offset_is_a_replay(image: ComparableImage, replayed: ComparableImage) -> str | None:
    """A node's image has the offset of the record that last changed the level of a feature. A snapshot does not keep
    this offset: an image that came from a snapshot has the snapshot's last offset instead. (Not checked if no log has
    that record any more.)
    """
    found, wanted = image.leveled.offset, replayed.leveled.offset
    if wanted == NOT_KNOWN or found == wanted or found in image.leveled.begins:
        return None
    return f"the features changed last at offset {wanted}, and the image says {found}"


@invariant(
    "records-can-be-replayed", CheckTrigger.RECORDS, "KRaft: an image comes from the committed records of its log"
)
def records_can_be_replayed(reached: int, wanted: int, why: str) -> str | None:
    """A node's image that is newer than all images seen before can be rebuilt from the records in the node's log: none
    is missing since the newest of those images, and none contradicts earlier records. `reached`: the offset that the
    replay reached; `wanted`: the image's offset; `why`: the error that stopped the replay, or "". (Not checked if bits
    have flipped, if the node is down, or if the start of its log is after the first of these records.)
    """
    return None if reached == wanted else f"the records lead to offset {reached}, the image is of {wanted}{why}"
