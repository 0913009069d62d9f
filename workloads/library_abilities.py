"""Says what client libraries can do as members of groups, each in the version that is pinned here. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

OURS = "squall"
CLASSIC, CONSUMER, MIXED = "classic", "consumer", "mixed"


class LibraryAbility(NamedTuple):
    """Describes what one library can do."""

    assignors: tuple[str, ...]
    """Of those that the workloads know, the best one first."""
    consumer_groups: bool
    """It speaks KIP-848."""
    polls_within_sessions: bool
    """It refuses a session that is longer than the time between two polls."""
    fenced_offsets: bool
    """It says in a transaction as which member it commits offsets (KIP-447), so that its group fences it."""


ALL = ("cooperative-sticky", "range", "roundrobin")
ABILITIES: Mapping[str, LibraryAbility] = {
    "confluent": LibraryAbility(ALL, consumer_groups=True, polls_within_sessions=True, fenced_offsets=True),
    "kafka-python": LibraryAbility(ALL, consumer_groups=False, polls_within_sessions=False, fenced_offsets=True),
    "aiokafka": LibraryAbility(
        ("range", "roundrobin"), consumer_groups=False, polls_within_sessions=False, fenced_offsets=False
    ),
}


def default_assignor(given: Mapping[str, Any]) -> dict[str, Any]:
    """The assignor of a library's classic members, where the workload's default is none of its own."""
    ability = ABILITIES.get(str(given.get("client", OURS)))
    if ability is None or ALL[0] in ability.assignors or given.get("group_protocol", CLASSIC) == CONSUMER:
        return {}
    return {"assignor": ability.assignors[0]}


def speaks_both(client: str) -> bool:
    """Return whether it has both group protocols."""
    return client not in ABILITIES or ABILITIES[client].consumer_groups


def assignor_of(client: str) -> str:
    """The best one that its classic members have."""
    return ABILITIES[client].assignors[0] if client in ABILITIES else ALL[0]


def unfenced(client: str) -> list[str]:
    """Return what this library cannot do as one of several instances that commit offsets in transactions."""
    if client not in ABILITIES or ABILITIES[client].fenced_offsets:
        return []
    why = "in transactions it commits offsets as nobody's member, so its group fences no instance that lost partitions"
    return [f"client {client}: {why}: instances = 1"]


def not_as_member(client: str, protocol: str, assignor: str, session_ms: int, poll_ms: int) -> list[str]:
    """Return what this library cannot do, a sentence for each; empty for our own client."""
    ability = ABILITIES.get(client)
    if ability is None:
        return []
    found = []
    if protocol == CONSUMER and not ability.consumer_groups:
        found.append(f"group_protocol {protocol}: {client} speaks the classic protocol of groups only")
    if protocol != CONSUMER and assignor not in ability.assignors:
        found.append(f"assignor {assignor}: {client} has {' and '.join(ability.assignors)} only")
    if ability.polls_within_sessions and protocol != CONSUMER and poll_ms < session_ms:
        limits = f"max_poll_interval_ms {poll_ms} is below session_timeout_ms {session_ms}"
        found.append(f"{limits}, which {client} refuses")
    return found
