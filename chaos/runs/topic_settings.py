"""Finds out which settings topics really have, whether these were set on the topic, on the brokers, or not at all.
Judging needs the settings to decide whether the brokers were allowed to remove missing records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from squall.broker.env import Env
from squall.chaos.plans.plan import Plan
from squall.chaos.plans.settings import in_force
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Address
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from squall.workloads.client.topics import settings_in_force

NAMES = (
    *("cleanup.policy", "retention.ms", "retention.bytes", "segment.bytes", "segment.ms", "message.timestamp.type"),
    *("min.insync.replicas", "unclean.leader.election.enable"),
)
LIMIT_S = 10.0
AGAIN_S = 0.2

Settings = Mapping[str, Mapping[str, str]]
"""Maps a topic to its settings in force, as name -> text. A topic has all settings in `NAMES`, or none if no broker
reported them.
"""


def planned_settings(plan: Plan) -> Settings:
    """Return the settings in force in a simulated cluster: the topic's own, else the cluster's, else the default.

    The cluster is not asked: in a simulation no other program can change settings, and further requests would change
    how a seed's run goes.
    """
    return {topic.name: in_force(plan.cluster.settings, topic.configs, NAMES) for topic in plan.workload.topic_list()}


async def asked_settings(
    env: Env, servers: Sequence[Address], topics: Sequence[str], limit_s: float = LIMIT_S
) -> Settings:
    """Ask a broker for the topics' settings (DescribeConfigs), with a new client. Topics without an answer have no
    settings.
    """
    found: dict[str, Mapping[str, str]] = {}
    async with trio.open_nursery() as nursery:
        client = Client(env, servers)
        await nursery.start(client.run)
        with env.timeout(limit_s):
            while left := [topic for topic in topics if topic not in found]:
                try:
                    answered = await settings_in_force(client, left, NAMES)
                except RequestFailed:
                    answered = {}
                except UnsupportedApi:
                    break
                found |= {topic: each for topic, each in answered.items() if each.keys() >= set(NAMES)}
                if len(found) < len(topics):
                    await env.sleep(AGAIN_S)
        client.close()
    return {topic: found.get(topic, {}) for topic in topics}
