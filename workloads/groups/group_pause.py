"""Makes all members of the group of the workload `groups` leave at once, and chooses the protocol that the group has
afterwards.

A group without members may be deleted, switches to the other protocol with its next member, and its offsets may expire.
None of this can happen while the group has a member.
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
"""Is the newest version of DeleteGroups that is requested."""
LOOKS_EVERY_S = 0.1
"""Gives the interval in seconds between two attempts to delete the group."""


@dataclass(slots=True)
class EmptyGroupInterval:
    """Describes the current interval in which all members must have left the group, or else the most recent one."""

    protocol: str
    """Names the group protocol of every member process that begins from now on."""
    number: int = 0
    """Counts the intervals so far. A member process leaves the group if the number has grown since the process began.
    """
    until: float = field(default=-math.inf)
    """Gives the end of the interval by env.mono(): no member joins before it."""

    def begins(self, until: float) -> None:
        """Begin an interval that ends at `until`, by env.mono(): all members have to leave, and none may join before.
        """
        self.number += 1
        self.until = until

    def converts(self) -> None:
        """Make members that come back speak the other protocol."""
        self.protocol = CLASSIC if self.protocol == CONSUMER else CONSUMER


async def delete_group(
    env: Env, around: ScenarioEnvironment, settings: ClientSettings, group: str, until: float
) -> None:
    """Delete the group as an administrator once it has no members, and record that. The attempts end at `until`, by
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
    """Try once to delete the group. Return whether there is no such group any more. `process` is the administrator's
    process id in the history.
    """
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
    # The time limit may cancel the request: then its outcome stays open.
    finally:
        recorder.complete(op, status, error)
        recorder.flush()
    return not error or error == ErrorCode.GROUP_ID_NOT_FOUND.name


def _told(code: int) -> OperationStatus:
    if code == ErrorCode.NONE:
        return OperationStatus.OK
    return OperationStatus.INFO if code in DOUBTFUL else OperationStatus.FAIL
