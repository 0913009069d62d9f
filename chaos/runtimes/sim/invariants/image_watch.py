"""Looking at the images that nodes have of the cluster: each is what its records come to, and every decision counts.

Several decisions can be committed, and replayed, in one event. Each of them is taken from the log, and judged in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from squall.broker.protocol.errors import MalformedFrame
from squall.chaos.runtimes.sim.invariants import inspection
from squall.chaos.runtimes.sim.invariants.contents import FeatureLevelChange
from squall.chaos.runtimes.sim.invariants.decision_log import MetadataReplay, PartitionDecision
from squall.chaos.runtimes.sim.invariants.durable import snapshot_ends
from squall.chaos.runtimes.sim.invariants.table import CheckTrigger, entered

if TYPE_CHECKING:
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.log.log import Log
    from squall.chaos.runtimes.sim.invariants.contents import ComparableImage
    from squall.chaos.runtimes.sim.invariants.models import ClusterModel
    from squall.chaos.runtimes.sim.invariants.partition_checks import Report

MOST_IMAGES = 4096
"""Offsets for which the cluster is kept as its records had it, to compare images with."""


class ImageWatch:
    """The books of the metadata log's records."""

    def __init__(self, report: Report, cluster: ClusterModel, decided: Callable[[PartitionDecision], None]) -> None:
        """`decided` takes each decision of a partition, while `cluster` and `log` are as the decision left them."""
        self._report, self._cluster, self._decided = report, cluster, decided
        self._checks = entered(CheckTrigger.IMAGE)
        self.log = MetadataReplay()
        """The cluster as of the newest record that any image has."""
        self._values: dict[int, ComparableImage] = {}
        """By offset of a batch's last record."""
        self._begins: dict[int, frozenset[int]] = {}
        """Node to the offsets of the snapshots that its images may have come from."""

    def moved(self, node: int, image: ClusterImage, log: Log, disk: Any, *, alive: bool = True) -> bool:
        """A node's image has moved. True if that was news. `alive`: the node runs, so that its disk has what its log
        has."""
        is_news = image.offset > self.log.offset
        if is_news:
            self._read_on(node if alive else None, image, log, disk)
        value = inspection.canonical(image)
        replayed = self._values.get(image.offset)
        if replayed is None:
            replayed = self._values[image.offset] = value.without_registrations()
        if value.leveled.offset != replayed.leveled.offset:
            value = value._replace(
                leveled=FeatureLevelChange(value.leveled.offset, self._begun(node, value, log, disk))
            )
        for each in self._checks:
            wrong = each.check(value, replayed)
            if wrong is not None:
                self._report(each, wrong, node, None, {"offset": image.offset})
        while len(self._values) > MOST_IMAGES:
            del self._values[next(iter(self._values))]
        return is_news

    def _begun(self, node: int, value: ComparableImage, log: Log, disk: Any) -> frozenset[int]:
        """The offsets of the snapshots that a node has, or had as its image began to say where features changed."""
        known = self._begins.get(node, frozenset())
        if value.leveled.offset not in known:
            known = self._begins[node] = known | {end - 1 for end in snapshot_ends(disk, log.directory)}
        return known

    def _read_on(self, node: int | None, image: ClusterImage, log: Log, disk: Any) -> None:
        """Take the records up to the image's from the log of the node that has it. `node`: None where it is down."""
        decisions, why = self.log, ""
        is_whole = log.log_start_offset <= decisions.end
        try:
            for batch, records in inspection.metadata_records(log, disk, decisions.end, image.offset + 1):
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
                self._contradicted(node, decisions.offset, image.offset, why)
            news = decisions.adopt(image)
            self._cluster.brokers = dict(decisions.brokers)
            for decided in news:
                self._decided(decided)

    def _contradicted(self, node: int, reached: int, wanted: int, why: str) -> None:
        for each in entered(CheckTrigger.RECORDS):
            wrong = each.check(reached, wanted, why)
            if wrong is not None:
                self._report(each, wrong, node, None, {"offset": wanted})
