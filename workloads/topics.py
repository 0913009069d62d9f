"""Creates a workload's topics, waits for their leaders, and declares the partitions in the history."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from squall.broker.env import Env
from squall.workloads.client.admin import create_topics
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Address, Place
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from squall.workloads.client.new_topic import NewTopic
from squall.workloads.recorder import Recorder
from squall.workloads.scenario import Scenario, WorkloadFailed

READY_S = 60.0
"""Limits in seconds how long the topics may take to exist and to have a leader for every partition."""
TOPIC_EXISTS = "TOPIC_ALREADY_EXISTS"


async def make_topics(
    env: Env, bootstrap: Sequence[Address], scenario: Scenario, recorder: Recorder, ready_s: float = READY_S
) -> dict[Place, int]:
    """Create the topics unless they exist, wait for their leaders, and declare the partitions in the history. Return
    each partition's number in the history.
    """
    wanted, places = scenario.topic_list(), scenario.places()
    trouble = ["no answer"]
    async with trio.open_nursery() as nursery:
        client = Client(env, bootstrap, scenario.client_settings())
        await nursery.start(client.run)
        with env.timeout(ready_s) as limit:
            await _create(client, wanted, trouble)
            trouble.append("a partition has no leader")
            client.track([topic.name for topic in wanted])
            while not all(_is_led(client, place) for place in places):
                await client.refreshed()
        client.close()
    if limit.cancelled_caught:
        raise WorkloadFailed(f"the topics were not ready within {ready_s:g} s: {trouble[-1]}")
    return _declare(wanted, recorder)


async def _create(client: Client, wanted: Sequence[NewTopic], trouble: list[str]) -> None:
    """Send CreateTopics until all topics exist. The latest error replaces the contents of `trouble`."""
    missing = {topic.name: topic for topic in wanted}
    failures = 0
    while missing:
        try:
            answers = await create_topics(client, list(missing.values()))
        except (RequestFailed, UnsupportedApi) as failure:
            answers = {}
            trouble[:] = [str(failure)]
        for name, error in answers.items():
            # A request without a response may have created the topic, and the run may repeat one on the same cluster.
            if error in ("", TOPIC_EXISTS):
                missing.pop(name, None)
            else:
                trouble[:] = [f"{name}: {error}"]
        if missing:
            failures += 1
            await client.env.sleep(client.backoff(failures))


def _is_led(client: Client, place: Place) -> bool:
    leader = client.view.leader(*place)
    return leader is not None and leader.node_id >= 0


def _declare(topics: Sequence[NewTopic], recorder: Recorder) -> dict[Place, int]:
    found = {}
    for topic in topics:
        cleanup = topic.configs.get("cleanup.policy", "delete")
        retention_ms = int(topic.configs.get("retention.ms", "-1"))
        retention_bytes = int(topic.configs.get("retention.bytes", "-1"))
        for index in range(topic.partitions):
            place = (topic.name, index)
            found[place] = recorder.partition(
                *place, cleanup=cleanup, retention_ms=retention_ms, retention_bytes=retention_bytes
            )
    recorder.flush()
    return found
