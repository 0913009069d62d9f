"""What members of classic groups are called."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.apis.groups import fresh_member_id

DRAWN = UUID(int=1, version=4)


@pytest.mark.parametrize("of", ["", "client", "c" * 0x7FFF, "\u20ac" * 10_000 + "cc", "\u20ac" * 10_922])
def test_a_members_name_can_be_read_by_the_others_of_its_group(of: str) -> None:
    """A client id of 32,767 bytes made the connection of the group's leader end: it was told a longer string."""
    name = fresh_member_id(of, DRAWN)
    assert name.endswith(f"-{DRAWN}")
    kept = name.removesuffix(f"-{DRAWN}")
    assert of.startswith(kept)
    assert len(name.encode()) <= 0x7FFF
    assert kept == of or len(name.encode()) > 0x7FFF - 3
