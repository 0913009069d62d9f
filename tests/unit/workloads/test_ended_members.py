"""The task of a member's heartbeats, when its process ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from squall.broker.real_env import RealEnv
from squall.workloads.client.groups.coordination import GroupCoordinatorClient
from squall.workloads.client.groups.members import member_of
from squall.workloads.client.groups.membership import CLASSIC, CONSUMER, MemberSettings


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
@pytest.mark.parametrize("ends", [True, False])
async def test_a_member_that_is_woken_as_its_process_ends_asks_for_nothing(
    protocol: str, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections may have ended before it runs. One that lives on sends its heartbeat."""
    asked: list[Any] = []
    sent = trio.Event()

    async def ask(coordination: GroupCoordinatorClient, request: Any, *rest: Any) -> Any:
        asked.append(request)
        sent.set()
        await trio.sleep_forever()

    monkeypatch.setattr(GroupCoordinatorClient, "ask", ask)
    client = cast(Any, SimpleNamespace(env=RealEnv("member", seed=1), track=lambda topics: None))
    member = cast(Any, member_of(client, MemberSettings("g", ("t",), protocol=protocol), cast(Any, None)))
    member.core.generation = 1
    async with trio.open_nursery() as nursery:
        await nursery.start(member.run)
        await trio.testing.wait_all_tasks_blocked()
        member.halt(still=False)
        if not ends:
            with trio.fail_after(5):
                await sent.wait()
        nursery.cancel_scope.cancel()
    assert bool(asked) is not ends
