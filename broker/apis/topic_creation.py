"""Creates topics that clients ask for but that do not exist (auto.create.topics.enable), and the topics of the
coordinators' logs.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from squall.broker.protocol.apis import APIS, ApiKey
from squall.broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    import trio

    from squall.broker.config import BrokerConfig
    from squall.broker.control.port import ClientRequestForwarder

TOPICS_AT_ONCE: Final = 100
"""Limits the topics of one CreateTopics."""
PARTITIONS_AT_ONCE: Final = 1000
"""Limits the partitions of all topics in one CreateTopics. Each topic gets num.partitions of them."""
MOST_WANTED: Final = 500
"""Limits the topics that wait to be created, or are being created, because clients asked for them."""


class TopicCreator:
    """Creates the topics that clients ask for: once each, however many clients ask, and several with one CreateTopics.
    Only one such CreateTopics is under way at a time.

    Kafka, too, puts the topics of a Metadata request into one CreateTopics, and does not ask again while the request is
    under way (AutoTopicCreationManager). TOPICS_AT_ONCE, PARTITIONS_AT_ONCE and MOST_WANTED are Squall's own: one
    Metadata request can name tens of thousands of topics.
    """

    def __init__(self, decider: ClientRequestForwarder, config: BrokerConfig, nursery: trio.Nursery) -> None:
        self._decider, self._nursery = decider, nursery
        self._at_once = max(1, min(TOPICS_AT_ONCE, PARTITIONS_AT_ONCE // config.num_partitions))
        self._waiting: dict[str, None] = {}
        """Holds the names that clients asked for, in order, which are not yet in a CreateTopics."""
        self._under_way: dict[str, None] = {}
        """Holds the names of the topics in a CreateTopics that is not answered yet."""
        self._busy = False
        """Is True while a task creates the topics in `_waiting`, so that a second task is not started."""

    def create(self, name: str) -> None:
        """Begin to create a topic with the default partitions and replicas, unless its creation has begun. Do nothing
        if MOST_WANTED other topics are not created yet: the client asks again.
        """
        if name in self._waiting or name in self._under_way:
            return
        if len(self._waiting) + len(self._under_way) >= MOST_WANTED:
            return
        self._waiting[name] = None
        if not self._busy:
            self._busy = True
            self._nursery.start_soon(self._make_waiting)

    def create_log(self, topic: CreatableTopic) -> None:
        """Begin to create the topic of a coordinators' log, unless its creation is under way. The creation does not
        wait for that of other topics.
        """
        if topic.name not in self._under_way:
            self._under_way[topic.name] = None
            self._nursery.start_soon(self._make, [topic])

    async def _make_waiting(self) -> None:
        while self._waiting:
            names = list(islice(self._waiting, self._at_once))
            for name in names:
                del self._waiting[name]
                self._under_way[name] = None
            await self._make([CreatableTopic(name=name, num_partitions=-1, replication_factor=-1) for name in names])
        self._busy = False

    async def _make(self, topics: list[CreatableTopic]) -> None:
        version = APIS[ApiKey.CREATE_TOPICS].max_version
        try:
            # The outcome is not needed: the next Metadata request finds the topics, or tries to create them again.
            await self._decider.forward(ApiKey.CREATE_TOPICS, version, CreateTopicsRequest(topics=topics))
        finally:
            for topic in topics:
                del self._under_way[topic.name]
