"""Computes upper bounds, in bytes, of the records of a consumer group: records that do not fit into one batch are never
written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from squall.broker.coordinators.groups.consumer.group import by_topic
from squall.broker.coordinators.groups.consumer.migration import common_protocols

if TYPE_CHECKING:
    from collections.abc import Iterable

    from squall.broker.coordinators.groups.consumer.group import ConsumerGroup
    from squall.broker.coordinators.groups.consumer.members import MemberSubscription
    from squall.broker.coordinators.groups.consumer.topics import TopicLookup

OF_A_BATCH: Final = 200
"""Bounds the bytes of a batch's header, and of the three records that a downgrade writes once for the group: tombstones
of its group epoch and target epoch, and its GroupMetadataRecord. Group ids and members are not counted.
"""
OF_A_RECORD: Final = 50
"""Bounds the bytes of a record, not counting its strings."""
OF_A_MEMBER: Final = 40
"""Bounds the bytes of a member in the record of a classic group."""
OF_A_NAME: Final = 10
"""Bounds the bytes that a topic name adds to a record besides its characters: its length, and the partition count."""
OF_A_PARTITION: Final = 4


def _length(text: str | None) -> int:
    return len((text or "").encode())


def of_removal(group: ConsumerGroup, member_id: str) -> int:
    """Return an upper bound, in bytes, of a member's tombstones, including that of its regular expression."""
    regex, group_id = group.members[member_id].regex, _length(group.group_id)
    own = 3 * (OF_A_RECORD + group_id + _length(member_id))
    return own + (OF_A_RECORD + group_id + _length(regex) if regex else 0)


def as_many_as_fit(group: ConsumerGroup, member_ids: list[str], most_bytes: int) -> list[str]:
    """Return the first members whose tombstones fit into `most_bytes`, but at least one member."""
    assert member_ids
    assert most_bytes >= 0
    left = most_bytes
    for n, member_id in enumerate(member_ids):
        left -= of_removal(group, member_id)
        if left < 0 and n:  # the first member is always removed, or none would ever be
            return member_ids[:n]
    return member_ids


def of_names(names: Iterable[str]) -> int:
    """Return an upper bound of the bytes that these topic names take in a record."""
    return sum(OF_A_NAME + len(name) for name in names)


def of_downgrade(group: ConsumerGroup, topics: TopicLookup) -> int:
    """Return an upper bound, in bytes, of the records that turn a consumer group of classic members into a classic
    group.
    """
    if not group.members:
        return OF_A_BATCH
    # The one that `downgraded` will choose.
    protocol = common_protocols(group)[0]
    regexes = sum(OF_A_RECORD + _length(group.group_id) + _length(regex) for regex in group.regexes)
    size = OF_A_BATCH + 3 * _length(group.group_id) + regexes
    for member_id, one in group.members.items():
        size += 3 * (OF_A_RECORD + _length(group.group_id) + _length(member_id))
        size += OF_A_MEMBER + _length(member_id) + _said(one, protocol)
        size += sum(
            OF_A_NAME + _length(topics.name_of(topic_id)) + OF_A_PARTITION * len(indexes)
            for topic_id, indexes in by_topic(tuple(group.now_of(member_id).assigned)).items()
        )
    return size


def _said(one: MemberSubscription, protocol: str) -> int:
    assert one.classic is not None
    texts = _length(one.instance_id) + _length(one.client_id) + _length(one.client_host)
    return texts + len(dict(reversed(one.classic.protocols))[protocol])
