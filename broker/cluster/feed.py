"""Keeps this node's image of the cluster: replays committed records, and calls the subscribers with the changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from squall.broker.cluster.image import ClusterImage, full_delta
from squall.broker.cluster.replay import replay
from squall.broker.cluster.snapshot import difference, restored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from squall.broker.cluster.image import ImageDelta


class UnsupportedFeature(Exception):
    """Says that the cluster uses a feature, or a level of a feature, that this version lacks: the node must not act on
    its metadata.
    """


class ImageFeed:
    """Replays committed metadata records into this node's image. No other code changes the committed image.

    Subscribers (`follow`) are called in the order in which they subscribed, once for each sequence of records that was
    committed together. They get the changes, see the image after them, and must not wait.
    """

    def __init__(self) -> None:
        self.image = ClusterImage()
        self._followers: list[Callable[[ImageDelta], None]] = []
        self._moved = trio.Event()

    def follow(self, follower: Callable[[ImageDelta], None], *, caught_up: bool = False) -> None:
        """Call the subscriber `follower` with every change from now on; with `caught_up`, first once with the whole
        image.

        A subscriber that acts on the image (leads or follows partitions, deletes logs) must not begin before the image
        holds the registration of this incarnation: until then, a restarted node replays its own past, record by record.
        """
        if caught_up:
            follower(full_delta(self.image))
        self._followers.append(follower)

    def committed(self, records: Sequence[tuple[int, int, Any]]) -> None:
        """Replay (offset, epoch, record) triples. The quorum calls this as `on_committed`."""
        for offset, epoch, record in records:
            replay(self.image, record, offset, epoch)
        self._notify_followers()

    def restored(self, records: Sequence[Any], offset: int, epoch: int) -> None:
        """Replace the image by a snapshot whose last record has `offset`. The quorum calls this as `on_snapshot`.

        Subscribers get the difference between both images, as if records had made it.
        """
        assert offset >= self.image.offset, f"a snapshot of {offset} for an image of {self.image.offset}"
        self.adopt(restored(records, offset, epoch))

    def adopt(self, image: ClusterImage) -> None:
        """Replace the content of this node's image by that of `image`, which must not be used afterwards. `restored`
        calls this, and so do control planes that send whole images instead of records, such as the scripted one of
        tests.
        """
        self.image.replace_with(image, difference(self.image, image))
        self._notify_followers()

    def _notify_followers(self) -> None:
        delta = self.image.take_delta()
        for follower in self._followers:
            follower(delta)
        assert not self.image.delta, "nobody who is told of a change makes another"
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    async def wait_until(self, holds: Callable[[ClusterImage], bool]) -> None:
        """Wait until `holds(image)` is true."""
        while not holds(self.image):
            await self._moved.wait()
