"""Topics that clients' requests create implicitly: in few CreateTopics, each topic once, and limited in number."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from squall.broker.apis.topic_creation import MOST_WANTED, TOPICS_AT_ONCE, TopicCreator
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.schema.create_topics import CreatableTopic
from tests.support.brokers.in_memory import broker_config


class Controller:
    """Holds each CreateTopics back until `answer` is called."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self._answers: list[trio.Event] = []

    async def forward(self, api_key: int, version: int, request: Any) -> None:
        assert (api_key, version) == (ApiKey.CREATE_TOPICS, 7)
        self.asked.append([topic.name for topic in request.topics])
        self._answers.append(trio.Event())
        await self._answers[-1].wait()

    async def answer(self) -> None:
        """Answer everything that was asked, and let the requests that follow from it begin."""
        for event in self._answers:
            event.set()
        await wait_all_tasks_blocked()


def creator(controller: Any, nursery: trio.Nursery, **settings: str) -> TopicCreator:
    return TopicCreator(controller, broker_config(**settings), nursery)


async def test_topics_that_are_asked_for_together_are_created_together(nursery: trio.Nursery) -> None:
    controller = Controller()
    made = creator(controller, nursery)
    for name in "abca":
        made.create(name)
    await wait_all_tasks_blocked()
    assert controller.asked == [["a", "b", "c"]]


async def test_what_is_under_way_is_not_asked_for_again_and_the_rest_follows(nursery: trio.Nursery) -> None:
    controller = Controller()
    made = creator(controller, nursery)
    made.create("a")
    await wait_all_tasks_blocked()
    for name in "abc":
        made.create(name)
    await wait_all_tasks_blocked()
    assert controller.asked == [["a"]]
    await controller.answer()
    assert controller.asked == [["a"], ["b", "c"]]
    await controller.answer()
    made.create("a")  # its creation failed, and somebody asks again
    await wait_all_tasks_blocked()
    assert controller.asked[2:] == [["a"]]


async def test_of_very_many_topics_the_first_are_created_and_the_others_when_asked_for_again(
    nursery: trio.Nursery,
) -> None:
    controller = Controller()
    made = creator(controller, nursery)
    names = [f"t{nth}" for nth in range(40_000)]
    for name in names:
        made.create(name)
    await wait_all_tasks_blocked()
    assert controller.asked == [names[:TOPICS_AT_ONCE]]
    for _ in range(MOST_WANTED):
        await controller.answer()
    assert [name for asked in controller.asked for name in asked] == names[:MOST_WANTED]
    made.create(names[MOST_WANTED])
    await wait_all_tasks_blocked()
    assert controller.asked[-1] == [names[MOST_WANTED]]


@pytest.mark.parametrize(("partitions", "at_once"), [("1", 100), ("20", 50), ("9000", 1)])
async def test_topics_of_many_partitions_are_fewer_at_once(
    nursery: trio.Nursery, partitions: str, at_once: int
) -> None:
    controller = Controller()
    made = creator(controller, nursery, num_partitions=partitions)
    for nth in range(200):
        made.create(f"t{nth}")
    await wait_all_tasks_blocked()
    assert [len(asked) for asked in controller.asked] == [at_once]


async def test_a_coordinators_log_waits_for_no_other_topic(nursery: trio.Nursery) -> None:
    controller = Controller()
    made = creator(controller, nursery)
    for nth in range(MOST_WANTED):
        made.create(f"t{nth}")
    await wait_all_tasks_blocked()
    for _ in range(3):
        made.create_log(CreatableTopic(name="__consumer_offsets", num_partitions=50, replication_factor=3))
    await wait_all_tasks_blocked()
    assert controller.asked[1:] == [["__consumer_offsets"]]
