"""Checks the cluster metadata that each node has in memory (its image) against the records of the metadata log, and
checks every decision that these records contain.

Several decisions can be committed and replayed in one event. Each of them is read from the log, and checked in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from squall.broker.protocol.errors import MalformedFrame
from squall.chaos.runtimes.sim.invariants import inspection
from squall.chaos.runtimes.sim.invariants.contents import FeatureLevelChange
from squall.chaos.runtimes.sim.invariants.decision_log import MetadataReplay, PartitionDecision
from squall.chaos.runtimes.sim.invariants.durable import snapshot_ends
from squall.chaos.runtimes.sim.invariants.partition_checks import check
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger

if TYPE_CHECKING:
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.log.log import Log
    from squall.chaos.runtimes.sim.invariants.contents import ComparableImage
    from squall.chaos.runtimes.sim.invariants.models import ClusterModel
    from squall.chaos.runtimes.sim.invariants.partition_checks import Report

MOST_IMAGES = 4096
"""Limits how many states of the cluster are kept, one for each replayed offset, to compare nodes' images with. The
oldest are dropped first.
"""


class ImageWatch:
    """Checks each node's metadata image against a replay of the metadata log. Calls `decided` for each change of a
    partition in this log, so that the caller can check that decision.
    """

    def __init__(self, report: Report, cluster: ClusterModel, decided: Callable[[PartitionDecision], None]) -> None:
        """Start with an empty replay of the metadata log. `report` is called for each broken invariant. `decided` is
        called with each change of a partition that the replay finds. During that call, `cluster` and `self.log` have
        the state right after the change.
        """
        self._report, self._cluster, self._decided = report, cluster, decided
        self.log = MetadataReplay()
        """Holds the state of the cluster after the newest record that any node's image contains."""
        self._values: dict[int, ComparableImage] = {}
        """Maps the offset of a batch's last record to the state of the cluster after that batch."""
        self._begins: dict[int, frozenset[int]] = {}
        """Maps a node to the last offset of each snapshot from which it may have loaded its image: see
        `FeatureLevelChange.begins`.
        """

    def moved(self, node: int, image: ClusterImage, log: Log, disk: Any, *, alive: bool = True) -> bool:
        """Check a node's image that has changed. Returns True if it contains newer records than any image before.
        `alive`: the node runs, so its log can be read.
        """
        is_news = image.offset > self.log.offset
        if is_news:
            self._read_on(node if alive else None, image, log, disk)
        value = inspection.canonical(image)
        replayed = self._values.get(image.offset)
        if replayed is None:
            # No log has had the records: the first image seen here is what the others are compared with.
            replayed = self._values[image.offset] = value.without_registrations()
        if value.leveled.offset != replayed.leveled.offset:
            value = value._replace(
                leveled=FeatureLevelChange(value.leveled.offset, self._begun(node, value, log, disk))
            )
        check(self._report, CheckTrigger.IMAGE, value, replayed, node=node, details={"offset": image.offset})
        while len(self._values) > MOST_IMAGES:
            del self._values[next(iter(self._values))]
        return is_news

    def _begun(self, node: int, value: ComparableImage, log: Log, disk: Any) -> frozenset[int]:
        """Return the last offset of each snapshot from which the node may have loaded its image (`value`). If none of
        the known snapshots ends with the offset that the image has for the last change of a feature's level, adds the
        snapshots that are now on the node's disk.
        """
        known = self._begins.get(node, frozenset())
        if value.leveled.offset not in known:
            known = self._begins[node] = known | {end - 1 for end in snapshot_ends(disk, log.directory)}
        return known

    def _read_on(self, node: int | None, image: ClusterImage, log: Log, disk: Any) -> None:
        """Replay the records up to the image's offset, from the log of the node that has the image. `node` is None if
        it is down.
        """
        decisions, why = self.log, ""
        is_whole = log.log_start_offset <= decisions.end
        try:
            for batch, records in inspection.metadata_records(log, disk, decisions.end, image.offset + 1):
                # The records before this batch are deleted, and without them it cannot be replayed.
                if batch.base > decisions.end:
                    break
                news = decisions.take(batch.end, batch.epoch, records)
                self._cluster.brokers = dict(decisions.brokers)
                for decided in news:
                    self._decided(decided)
                if records:
                    self._values[decisions.offset] = inspection.canonical(decisions)
        except (MalformedFrame, KeyError) as problem:
            # Bits rot here, or a record contradicts those before it: then nobody can say what they come to.
            why = f": {problem!r}"
        if decisions.offset != image.offset:
            if is_whole and node is not None and node not in self._cluster.rotten:
                details = {"offset": image.offset}
                check(
                    self._report, CheckTrigger.RECORDS, decisions.offset, image.offset, why, node=node, details=details
                )
            news = decisions.adopt(image)
            self._cluster.brokers = dict(decisions.brokers)
            for decided in news:
                self._decided(decided)
