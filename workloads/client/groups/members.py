"""Defines a member of a group, whichever protocol it uses."""

from __future__ import annotations

from squall.workloads.client.client import Client
from squall.workloads.client.groups.base_member import MembershipListener
from squall.workloads.client.groups.consumer_member import ConsumerMember
from squall.workloads.client.groups.member import GroupMember
from squall.workloads.client.groups.membership import CONSUMER, MemberSettings


def member_of(client: Client, settings: MemberSettings, listener: MembershipListener) -> GroupMember | ConsumerMember:
    """Create a group member: a `ConsumerMember` if its settings select the protocol `consumer` (KIP-848), otherwise a
    `GroupMember` (classic).
    """
    if settings.protocol == CONSUMER:
        return ConsumerMember(client, settings, listener)
    return GroupMember(client, settings, listener)
