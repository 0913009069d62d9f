"""Test cases for the invariants of derived state and of durable data: each has a situation that breaks one, and the
nearest situation that does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from squall.broker.cluster.image import Broker
from squall.chaos.runtimes.sim.invariants.acks import Ack
from squall.chaos.runtimes.sim.invariants.contents import ComparableImage, FeatureLevelChange
from squall.chaos.runtimes.sim.invariants.derived import EpochCacheSnapshot, IndexedBatch, SegmentIndexes
from squall.chaos.runtimes.sim.invariants.models import BelievedFollowerEnds, LostTail, PartitionModel
from tests.support.clusters.known_partitions import decision, known, one, quorum, run, seat, view
from tests.support.clusters.quorum_cases import Arguments, Case

NOTHING = known()


def decided(before: Any, now: Any, about: PartitionModel = NOTHING) -> Arguments:
    return before, now, about


def moved(replicas: tuple[int, ...], isr: tuple[int, ...] = (2, 3), **more: Any) -> Arguments:
    """Return a partition's change that ends a reassignment: node 3 was being added, and node 1 removed."""
    before = decision(2, isr=(1, 2), adding=(3,), removing=(1,))
    return decided(before, replace(decision(2, 1, 6, isr, **more), replicas=replicas))


def dropped(*asked: tuple[int, ...] | None) -> Arguments:
    """Return a partition's change that drops the replica being added, node 3. `asked` has the replica lists that
    clients asked the controller for.
    """
    about = known(asked={(NOTHING.topic, NOTHING.partition): set(asked)})
    return decided(decision(isr=(1, 2), adding=(3,)), replace(decision(1, 1, 6, (1, 2)), replicas=(1, 2)), about)


def believing(end: int, follower: int = 2, epoch: int = 1, **more: Any) -> tuple[PartitionModel]:
    """Return a partition whose leader, node 1, believes that `follower`'s log ends at `end`. Node 1 has 6 batches, 5 of
    them committed. Node 2 has all 6, node 3 the first 5 and a different sixth one.
    """
    copies: dict[int, Any] = {1: 6, 2: 6, 3: (*run(5), one(5, mark=7))}
    belief = BelievedFollowerEnds(1, epoch, ((follower, end),))
    about: dict[str, Any] = {"views": [view(hw=5, leo=6)], "truth": decision(), "believed": belief, **more}
    return (known(5, copies=copies, **about),)


def durably(*nodes: int, acks: int = -1, **more: Any) -> tuple[Ack, PartitionModel]:
    return Ack(4, acks, 2, None, None, durable=nodes), known(5, copies={1: 5, 2: 5}, truth=decision(), **more)


def held(end: int, voter: int = 3, epoch: int = 3, **more: Any) -> Arguments:
    """Return a quorum whose leader, node 1, believes that `voter`'s log ends at `end`. The log has five batches, of
    which node 3 lacks the last.
    """
    return None, seat(epoch=epoch)._replace(believed=((voter, end),)), quorum(**more)


BATCHES = (*run(3), *run(6, start=3, epoch=4))
ROWS = (IndexedBatch(0, 0, 10), IndexedBatch(2, 90, 30), IndexedBatch(5, 200, 20))


def segment(
    offsets: tuple[Any, ...] = (),
    times: tuple[Any, ...] = (),
    latest: tuple[int, int] = (30, 2),
    *,
    interval: int = 4096,
    sealed: bool = False,
) -> Arguments:
    return (SegmentIndexes(50, ROWS, offsets, times, latest, interval, sealed),)


NAMES = (("t", b"1"),)


def registered(at: int) -> ComparableImage:
    """Return an image with one broker of broker epoch 3, registered at this offset of the metadata log."""
    return ComparableImage((Broker(1, 3, b"", {}, False, registered_at=at),))


def leveled(at: int, *begins: int) -> ComparableImage:
    """Return an image whose feature levels last changed at this offset of the metadata log."""
    return ComparableImage(leveled=FeatureLevelChange(at, frozenset(begins)))


def cache(*entries: tuple[int, int], start: int = 0) -> Arguments:
    return EpochCacheSnapshot(entries, start, 6), BATCHES


DERIVED: dict[str, list[Case]] = {
    "image-is-a-replay": [
        (
            "a feature",
            (ComparableImage(features=(("f", 1),)), ComparableImage(features=(("f", 2),))),
            (ComparableImage(), ComparableImage()),
        ),
        (
            "a name",
            (ComparableImage(names=(("t", b"1"),)), ComparableImage()),
            (ComparableImage(names=NAMES), ComparableImage(names=NAMES)),
        ),
        (
            "what is not served",
            (ComparableImage(kept=("a",)), ComparableImage()),
            (ComparableImage(kept=("a",)), ComparableImage(kept=("a",))),
        ),
        (
            "an epoch",
            (ComparableImage(epoch=3), ComparableImage(epoch=4)),
            (ComparableImage(epoch=4), ComparableImage(epoch=4)),
        ),
    ],
    "registration-is-a-replay": [
        ("another offset", (registered(5), registered(8)), (registered(8), registered(8))),
        ("from a snapshot", (registered(5), registered(8)), (registered(3), registered(8))),
        ("too late", (registered(5), registered(3)), (registered(5), registered(5))),
        ("nobody has the record", (registered(2), registered(-1)), (registered(5), registered(-1))),
    ],
    "feature-offset-is-a-replay": [
        ("another offset", (leveled(5), leveled(8)), (leveled(8), leveled(8))),
        ("from a snapshot", (leveled(9), leveled(8)), (leveled(9, 9), leveled(8))),
        ("nobody has the record", (leveled(5), leveled(8)), (leveled(5), leveled(-1))),
    ],
    "records-can-be-replayed": [("they end too early", (7, 8, ""), (8, 8, ""))],
    "reassignment-within-replicas": [
        ("no replica comes", decided(None, decision(adding=(4,))), decided(None, decision(adding=(3,)))),
        ("no replica goes", decided(None, decision(removing=(4,))), decided(None, decision(removing=(3,)))),
        (
            "one comes and goes",
            decided(decision(), decision(1, 1, 6, adding=(3,), removing=(3,))),
            decided(decision(), decision(1, 1, 6, adding=(3,), removing=(2,))),
        ),
        ("one comes twice", decided(None, decision(adding=(3, 3))), decided(None, decision(adding=(3, 2)))),
        ("it is over", decided(None, decision(removing=(4,))), decided(None, decision())),
    ],
    "reassignment-ends-in-sync": [
        (
            "an added replica is not in sync",
            decided(decision(isr=(1, 2), adding=(3,)), decision(1, 1, 6, (1, 2))),
            decided(decision(isr=(1, 2), adding=(3,)), decision(1, 1, 6, (1, 2, 3))),
        ),
        (
            "it goes on",
            decided(decision(isr=(1, 2), adding=(3,)), decision(1, 1, 6, (1, 2))),
            decided(decision(isr=(1, 2), adding=(3,)), decision(1, 1, 6, (1,), adding=(3,))),
        ),
        (
            "it is called off",
            decided(decision(isr=(1, 2), adding=(3,)), decision(1, 1, 6, (1, 2))),
            decided(decision(isr=(1, 2), adding=(3,)), replace(decision(1, 1, 6, (1, 2)), replicas=(1, 2))),
        ),
    ],
    "reassignment-ends-as-asked": [
        ("an added replica is dropped", moved((2, 1)), moved((2, 3))),
        ("nobody is dropped", moved((1, 2, 3)), moved((2, 3))),
        ("it is called off", moved((2,), isr=(2,)), moved((1, 2), isr=(1, 2))),
        ("another target", moved((2, 4), isr=(2,)), moved((2, 1), isr=(1, 2))),
        ("who only came goes, and nobody asked", dropped((1, 2, 3)), dropped((1, 2, 3), None)),
        ("for another target", dropped((1, 2, 3), (1, 3)), dropped((1, 2, 3), (2, 1))),
        ("it goes on", moved((2,), isr=(2,)), moved((2,), isr=(2,), removing=(1,))),
    ],
    "believed-end-is-shared": [
        ("another batch behind what is committed", believing(6, 3), believing(6, 2)),
        ("too little is no harm", believing(6, 3), believing(5, 3)),
        ("an epoch that is over", believing(6, 3), believing(6, 3, epoch=0)),
        (
            "lost with the power",
            believing(6, 3, lost={3: LostTail(6, 102)}),
            believing(6, 3, lost={3: LostTail(6, 102)}, always_durable=False),
        ),
        ("a damaged disk", believing(6, 3, damaged={2}), believing(6, 3, damaged={3})),
    ],
    "metadata-believed-end-is-shared": [
        ("more than it has", held(5), held(4)),
        ("more than is durable", held(5, 2, durable={2: 4}), held(5, 2, durable={2: 5})),
        ("it is in another epoch", held(5), held(5, epochs={3: 4})),
    ],
    "recovery-point-is-durable": [("beyond what is", (7, 6), (6, 6))],
    "acknowledged-is-durable": [
        ("by one too few", durably(1), durably(1, 2)),
        ("by nobody, with acks=1", durably(acks=1), durably(1, acks=1)),
        ("before a permitted loss", durably(1), durably(1, void_epoch=2)),
    ],
    "epoch-cache-is-a-replay": [
        ("an epoch begins too late", cache((1, 0), (4, 4)), cache((1, 0), (4, 3))),
        ("one is missing", cache((1, 0)), cache((4, 4), start=4)),
        ("one too many", cache((1, 0), (4, 3), (5, 5)), cache((1, 0), (4, 3), (5, 6))),
    ],
    "offset-index-is-a-replay": [
        ("another byte", segment(((2, 91),)), segment(((2, 90),))),
        ("another offset", segment(((1, 90),)), segment(((2, 90), (5, 200)))),
        ("out of order", segment(((5, 200), (2, 90))), segment(((2, 90), (5, 200)))),
    ],
    "time-index-is-a-replay": [
        ("not the largest", segment(times=((20, 5),)), segment(times=((30, 2),))),
        ("another offset", segment(times=((30, 5),)), segment(times=((10, 0), (30, 2)))),
        ("in memory", segment(latest=(20, 5)), segment(latest=(30, 2))),
    ],
    "offset-index-is-dense": [
        ("it is empty", segment(interval=199), segment(interval=200)),
        ("the end is missing", segment(((2, 90),), interval=109), segment(((2, 90),), interval=110)),
        ("the beginning is missing", segment(((5, 200),), interval=0), segment(((2, 90), (5, 200)), interval=0)),
    ],
    "time-index-is-dense": [
        ("an indexed batch", segment(((2, 90),), ((10, 0),)), segment(((2, 90),), ((10, 0), (30, 2)))),
        ("it is empty", segment(((5, 200),)), segment(((5, 200),), ((30, 2),))),
        ("the last of a sealed one", segment(sealed=True), segment(times=((30, 2),), sealed=True)),
    ],
    "log-start-goes-on": [
        ("it goes back", (5, 3, 3, False), (3, 5, 5, False)),
        ("by a truncation that leaves records", (5, 3, 8, True), (5, 3, 3, True)),
    ],
    "metadata-log-follows-a-snapshot": [
        ("no snapshot ends there", (8, [4, 9]), (9, [4, 9])),
        ("no snapshot at all", (8, []), (0, [])),
    ],
    "log-start-is-kept": [
        ("before the one named", (51, 50, 52, 52), (52, 50, 52, 52)),
        ("without a checkpoint", (50, 50, 0, 52), (52, 50, 0, 52)),
        ("beyond all", (53, 50, 52, 51), (60, 60, 52, 51)),
    ],
}
