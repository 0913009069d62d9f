"""Fetches the committed offsets of a group with a fresh client after all faults are healed."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from squall.broker.env import Env
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Address, Place
from squall.workloads.client.connection import VERSION
from squall.workloads.client.groups.coordination import GroupCoordinatorClient
from squall.workloads.client.groups.offsets import fetch
from squall.workloads.client.settings import ClientSettings
from squall.workloads.group_notes import MemberHistoryWriter, MemberIdentity
from squall.workloads.recorder import Recorder


async def record_committed_offsets(
    env: Env,
    bootstrap: Sequence[Address],
    recorder: Recorder,
    settings: ClientSettings,
    group: str,
    places: Sequence[Place],
    limit_s: float,
    zone: str,
) -> None:
    """Fetch the group's committed offsets once, for at most `limit_s` seconds, and record them. The function never
    raises for the cluster's errors. `zone` is recorded as the name of the client zone whose `bootstrap` servers are
    used.
    """
    process = recorder.process("final", VERSION, {"group": group, "asks": "offsets"}, zone=zone)
    notes = MemberHistoryWriter(recorder, process, group)
    async with trio.open_nursery() as nursery:
        client = Client(env, bootstrap, settings)
        await nursery.start(client.run)
        op = notes.begin_fetch(MemberIdentity(), places, stable=True)
        found = await fetch(GroupCoordinatorClient(client, group), places, limit_s, stable=True)
        notes.fetched(op, found.offsets, found.metadata, found.error)
        recorder.flush()
        client.close()
