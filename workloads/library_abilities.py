"""Says what client libraries can do as members of groups, in the versions that requirements-clients.txt pins. Does no
I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

OURS = "squall"
CLASSIC, CONSUMER, MIXED = "classic", "consumer", "mixed"


class LibraryAbility(NamedTuple):
    """Describes what one client library can do as a member of a group."""

    assignors: tuple[str, ...]
    """Lists those assignors of the library that workloads can use; the first one is used if the plan names none."""
    consumer_groups: bool
    """Is True if the library speaks the consumer group protocol (KIP-848)."""
    polls_within_sessions: bool
    """Is True if the library refuses a session time-out that is longer than the maximal time between two polls."""
    fenced_offsets: bool
    """Is True if the library sends its member id and generation with offsets in a transaction (KIP-447), so that the
    coordinator fences a member whose generation is old.
    """


ALL = ("cooperative-sticky", "range", "roundrobin")
ABILITIES: Mapping[str, LibraryAbility] = {
    "confluent": LibraryAbility(ALL, consumer_groups=True, polls_within_sessions=True, fenced_offsets=True),
    "kafka-python": LibraryAbility(ALL, consumer_groups=False, polls_within_sessions=False, fenced_offsets=True),
    "aiokafka": LibraryAbility(
        ("range", "roundrobin"), consumer_groups=False, polls_within_sessions=False, fenced_offsets=False
    ),
}


def default_assignor(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setting `assignor` to add to the `[workload]` table `given`, for example `{"assignor": "range"}`; an
    empty dict if none is needed. A library without the workloads' default assignor, cooperative-sticky, needs one,
    unless its members speak only the consumer group protocol (KIP-848).
    """
    ability = ABILITIES.get(str(given.get("client", OURS)))
    if ability is None or ALL[0] in ability.assignors or given.get("group_protocol", CLASSIC) == CONSUMER:
        return {}
    return {"assignor": ability.assignors[0]}


def speaks_both(client: str) -> bool:
    """Return whether the client speaks both group protocols: classic, and consumer (KIP-848)."""
    return client not in ABILITIES or ABILITIES[client].consumer_groups


def assignor_of(client: str) -> str:
    """Return the assignor that the client's members use in the classic group protocol if the plan names none."""
    return ABILITIES[client].assignors[0] if client in ABILITIES else ALL[0]


def unsupported_instances(client: str) -> list[str]:
    """Return why an application of this client must not have several instances that commit offsets in transactions;
    empty if it may.
    """
    if client not in ABILITIES or ABILITIES[client].fenced_offsets:
        return []
    why = "in transactions it commits offsets as nobody's member, so its group fences no instance that lost partitions"
    return [f"client {client}: {why}: instances = 1"]


def unsupported_membership(client: str, protocol: str, assignor: str, session_ms: int, poll_ms: int) -> list[str]:
    """Return which of these group settings the client does not support, a sentence for each. Squall's own client
    supports all.
    """
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
