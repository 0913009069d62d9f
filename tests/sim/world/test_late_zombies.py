"""A zombie that was paused only at a later attempt: its evidence is what it does afterwards, and nothing earlier."""

from __future__ import annotations

from typing import Any

import pytest

from squall.workloads.transactions.process import TransactionalProcess
from tests.sim.world.test_zombies import evidence, haunted


def test_what_an_earlier_attempt_did_is_not_the_zombies(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as_zombie, tried = TransactionalProcess.run_as_zombie, list[int]()

    async def at_the_second_attempt(process: TransactionalProcess, *given: Any) -> None:
        tried.append(1)
        if len(tried) > 1:
            await run_as_zombie(process, *given)

    monkeypatch.setattr(TransactionalProcess, "run_as_zombie", at_the_second_attempt)
    result = haunted(2, "producer:0")
    assert len(tried) == 2
    assert result.verdict == "valid", result.reasons
    (seen,) = evidence(result)
    assert seen["sends"] == seen["ends"] == 1
