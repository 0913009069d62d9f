"""Orders that make or give up many logs are obeyed in turns, so that no request waits for all of them."""

from __future__ import annotations

from typing import Any

import trio

from squall.broker.cluster.image import ImageDelta, PartitionImage, Topic
from squall.broker.replicas.order_queue import LONGEST_TURN_S, MADE_IN_A_TURN, OrderQueue
from tests.support.brokers.in_memory import IDS, MemoryBroker

MANY = 3 * MADE_IN_A_TURN + 1


def wide(broker: MemoryBroker, count: int = MANY) -> bytes:
    """Metadata says that there is a topic with so many partitions, all at once."""
    topic = broker.image.topics_by_id.setdefault(IDS["t"], Topic("t", IDS["t"]))
    broker.image.topic_ids["t"] = topic.id
    for index in range(count):
        topic.partitions[index] = PartitionImage((1, 2, 3), (1, 2, 3), 1, 5, 10)
    broker.learn(ImageDelta(partitions={(topic.id, index): None for index in range(count)}))
    return topic.id


def hosted(broker: MemoryBroker) -> int:
    return len(broker.replicas.hosted())


def test_others_have_their_turn_after_some() -> None:
    broker = MemoryBroker()
    wide(broker)
    assert hosted(broker) == MADE_IN_A_TURN
    broker.run_started()
    assert hosted(broker) == MANY


def test_a_turn_ends_once_it_has_taken_long() -> None:
    """On a slow disk 16 logs took 0.35 s."""
    now_s, made, settled, started = [0.0], [], [], []

    def obey(order: Any) -> bool:
        now_s[0] += LONGEST_TURN_S * 0.4
        made.append(order)
        return True

    turns = OrderQueue(obey, lambda: settled.append(len(made)), lambda: now_s[0])
    turns.start_soon = started.append
    orders: Any = range(5)
    turns.take(orders)
    assert (made, settled, len(started)) == ([0, 1, 2], [3], 1)
    trio.run(started[0])
    assert (made, settled, len(started)) == ([0, 1, 2, 3, 4], [3, 5], 1)


def test_few_are_obeyed_at_once() -> None:
    broker = MemoryBroker()
    wide(broker, MADE_IN_A_TURN)
    assert hosted(broker) == MADE_IN_A_TURN
    assert not broker.started


def test_who_asks_for_one_that_is_not_made_yet_is_to_ask_again() -> None:
    broker = MemoryBroker()
    topic_id = wide(broker)
    error, leader = broker.replicas.absent(topic_id, MANY - 1, by_id=True)
    assert (error.name, leader) == ("NOT_LEADER_OR_FOLLOWER", (1, 5))


def test_later_orders_wait_for_the_earlier_ones() -> None:
    """A topic that is deleted before all of it was made is not made afterwards."""
    broker = MemoryBroker()
    wide(broker)
    broker.remove("t")
    broker.fence(2)
    assert hosted(broker) == MADE_IN_A_TURN
    assert len(broker.started) == 1
    broker.run_started()
    assert hosted(broker) == 0
    assert not broker.logs.logs


def test_what_comes_while_nothing_is_left_is_obeyed_at_once() -> None:
    broker = MemoryBroker()
    wide(broker)
    broker.run_started()
    assert broker.give("u") is not None
