"""Records of what is not served: access control, SCRAM, quotas, delegation tokens, controllers' registrations.

A node of Apache Kafka may have written them, and may read them again. They change nothing here, and yet no snapshot of
the metadata log may lose them (KIP-630).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.protocol.schema import metadata_records as records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from squall.broker.cluster.image import ClusterImage

KEYS: Mapping[type[Any], tuple[str, ...]] = {
    records.AccessControlEntryRecord: ("id",),
    records.UserScramCredentialRecord: ("name", "mechanism"),
    records.DelegationTokenRecord: ("token_id",),
    records.RegisterControllerRecord: ("controller_id",),
    records.ZkMigrationStateRecord: (),
}
"""Kinds of records -> the fields that say what one is of: the next one of the same takes its place."""
REMOVALS: Mapping[type[Any], type[Any]] = {
    records.RemoveAccessControlEntryRecord: records.AccessControlEntryRecord,
    records.RemoveUserScramCredentialRecord: records.UserScramCredentialRecord,
    records.RemoveDelegationTokenRecord: records.DelegationTokenRecord,
    records.UnregisterControllerRecord: records.RegisterControllerRecord,
}
"""Kinds that remove one, by the same fields -> the kind that is removed."""


def keep(image: ClusterImage, record: Any) -> None:
    """Put the record in the place of the one before it."""
    image.kept[_key(type(record), record)] = record


def remove(image: ClusterImage, record: Any) -> None:
    """Keep what the record names no longer. No error if it is not there."""
    image.kept.pop(_key(REMOVALS[type(record)], record), None)


def quota(image: ClusterImage, record: records.ClientQuotaRecord) -> None:
    """Keep the quotas of this record's entity, or remove the one that the record removes."""
    entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
    key = (records.ClientQuotaRecord, entity, record.key)
    if record.remove:
        image.kept.pop(key, None)
    else:
        image.kept[key] = record


def _key(kind: type[Any], record: Any) -> tuple[Any, ...]:
    return (kind, *(getattr(record, field) for field in KEYS[kind]))


KEEP: Mapping[type[Any], Callable[[ClusterImage, Any], None]] = {
    **dict.fromkeys(KEYS, keep),
    **dict.fromkeys(REMOVALS, remove),
    records.ClientQuotaRecord: quota,
}
"""How each kind of record changes what is kept."""
