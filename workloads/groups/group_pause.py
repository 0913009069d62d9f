"""Pauses all members of `groups` at once, and chooses the protocol that the group has afterwards.

A group that has no members may be deleted, switches to the other protocol with its next member, and its offsets may
expire. Nothing of that can happen while it has a member.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import trio

from squall.broker.env import Env
from squall.broker.protocol.errors import ErrorCode, name_of
from squall.broker.protocol.schema.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from squall.workloads.client.client import Client
from squall.workloads.client.connection import VERSION, RequestFailed, UnsupportedApi
from squall.workloads.client.groups.coordination import GroupCoordinatorClient
from squall.workloads.client.groups.membership import CLASSIC, CONSUMER
from squall.workloads.client.groups.offsets import DOUBTFUL, ELSEWHERE
from squall.workloads.client.outcomes import TIMED_OUT, OperationStatus
from squall.workloads.client.settings import ClientSettings
from squall.workloads.scenario import ScenarioEnvironment

NEWEST_DELETION = 2
"""The version of DeleteGroups that is asked."""
LOOKS_EVERY_S = 0.1
"""So often it is asked whether the group can be deleted by now."""


@dataclass(slots=True)
class EmptyGroupInterval:
    """The present one, or the last one."""

    protocol: str
    """Which every process of a member speaks that begins from here on."""
    number: int = 0
    """Goes up with each: a process of an earlier one has to go."""
    until: float = field(default=-math.inf)
    """Nobody comes before that, by env.mono()."""

    def begins(self, until: float) -> None:
        """All members are to go."""
        self.number += 1
        self.until = until

    def converts(self) -> None:
        """Make members that come back speak the other protocol."""
        self.protocol = CLASSIC if self.protocol == CONSUMER else CONSUMER


async def delete_group(
    env: Env, around: ScenarioEnvironment, settings: ClientSettings, group: str, until: float
) -> None:
    """An administrator deletes the group, once it has no members, and says so in the history. Asks until then, by
    env.mono().
    """
    zone, recorder = around.zone(0), around.recorder
    process = recorder.process("admin", VERSION, {"group": group}, zone=zone.name)
    async with trio.open_nursery() as nursery:
        client = Client(env, zone.bootstrap, settings, cluster_id=zone.cluster_id)
        await nursery.start(client.run)
        coordination = GroupCoordinatorClient(client, group)
        with env.timeout(max(0.0, until - env.mono())):
            while not await _deleted(coordination, around, process):
                await env.sleep(LOOKS_EVERY_S)
        client.close()


async def _deleted(coordination: GroupCoordinatorClient, around: ScenarioEnvironment, process: int) -> bool:
    """Try once to delete the group. Return whether there is no such group any more."""
    recorder, group = around.recorder, coordination.group
    op = recorder.invoke(process, "admin", {"what": "delete_group", "group": group})
    recorder.flush()
    status, error = OperationStatus.INFO, TIMED_OUT
    try:
        answer = await coordination.ask(DeleteGroupsRequest([group]), DeleteGroupsResponse, NEWEST_DELETION)
        code = next((each.error_code for each in answer.results if each.group_id == group), ErrorCode.NONE)
        status, error = _told(code), name_of(code) if code else ""
        if code in ELSEWHERE:
            coordination.forget()
    except RequestFailed as failure:
        status, error = OperationStatus.INFO if failure.sent else OperationStatus.FAIL, failure.why
    except UnsupportedApi as problem:
        status, error = OperationStatus.FAIL, str(problem)
    finally:
        recorder.complete(op, status, error)
        recorder.flush()
    return not error or error == ErrorCode.GROUP_ID_NOT_FOUND.name


def _told(code: int) -> OperationStatus:
    if code == ErrorCode.NONE:
        return OperationStatus.OK
    return OperationStatus.INFO if code in DOUBTFUL else OperationStatus.FAIL
