"""Checks what is read of disks: what cannot be read is not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from squall.broker.quorum.state import QuorumState
from squall.chaos.runtimes.sim.invariants.inspection import durable_state


def disk_with(text: bytes) -> Any:
    """A disk whose quorum-state file would be this after a loss of power."""
    file = SimpleNamespace(content=SimpleNamespace(durable=lambda: text))
    return SimpleNamespace(names=SimpleNamespace(durable_files=lambda: [("meta/quorum-state", file)]))


def test_a_quorum_state_that_was_synced_is_read() -> None:
    found = durable_state(disk_with(QuorumState(7, 2, -1).to_json((1, 2, 3)).encode()), "/meta/quorum-state")
    assert found == (7, 2, -1)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe"], ids=["never synced", "torn", "rotten"])
def test_one_that_cannot_be_read_is_none(text: bytes) -> None:
    assert durable_state(disk_with(text), "/meta/quorum-state") is None


def test_where_there_is_no_file_there_is_none() -> None:
    assert durable_state(disk_with(b""), "/meta/another") is None
