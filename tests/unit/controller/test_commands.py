"""The table of commands."""

from __future__ import annotations

import pytest

from squall.broker.control.refusals import REFUSALS
from squall.broker.controller.controller import COMMANDS, command_for
from squall.broker.net.served import FORWARDED, SERVED_TO_NODES
from squall.broker.protocol.apis import ApiKey


@pytest.mark.parametrize("api_key", COMMANDS, ids=lambda key: ApiKey(key).name)
def test_every_command_has_a_function_and_a_refusal(api_key: int) -> None:
    assert callable(command_for(api_key))
    assert api_key in REFUSALS


def test_what_the_controller_decides_comes_forwarded_or_from_nodes() -> None:
    assert sorted([*COMMANDS, ApiKey.DESCRIBE_QUORUM]) == sorted(REFUSALS)
    assert set(FORWARDED) - {ApiKey.DESCRIBE_QUORUM} < set(COMMANDS)
    assert set(COMMANDS) - set(FORWARDED) < set(SERVED_TO_NODES)
