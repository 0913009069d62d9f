"""Broker 1 with the log of a coordinator, whose followers are played by the test."""

from __future__ import annotations

from typing import Any, ClassVar

import trio

from broker.replicas.hosted import Hosted
from tests.support.brokers.in_memory import IDS, MemoryBroker


class CoordinatorLogRoom(MemoryBroker):
    """Broker 1, which may lead partition 0 of a coordinator's log. Whoever derives from this has the coordinator."""

    TOPIC: ClassVar[str]
    coordinator: Any

    @property
    def log(self) -> Hosted:
        """The replica of the coordinator's log."""
        found = self.replicas.find(IDS[self.TOPIC], 0)
        assert found is not None
        return found

    async def lead(self, epoch: int = 5, *, commit: bool = True) -> None:
        """Lead the coordinator's log in an epoch; with `commit` both followers have all of it, and follow."""
        self.give(self.TOPIC, epoch=epoch, partition_epoch=10 * epoch)
        if commit:
            self.replicate(epoch)
            self.replicate(epoch)
        await trio.testing.wait_all_tasks_blocked()

    def replicate(self, epoch: int = 5) -> None:
        """Both followers fetch from the end of the log."""
        for replica in (2, 3):
            self.follower_has(replica, self.log.log.log_end_offset, epoch=epoch, name=self.TOPIC)

    def submit(self, request: Any) -> list[Any]:
        """Hand a request in. The list gets the answer."""
        answers: list[Any] = []
        self.coordinator.submit(request, answers.append)
        return answers
