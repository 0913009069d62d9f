"""Keeps the records of features that Squall lacks: access control, SCRAM, quotas, delegation tokens, registrations of
controllers.

A node of Apache Kafka may have written them, and may read them again. They change nothing here, but no snapshot of the
metadata log may lose them (KIP-630).
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
"""Maps each type of record that is kept in the image to the fields that identify the object it describes, such as the
id of an access control entry. A later record with equal fields replaces the earlier one.
"""
REMOVALS: Mapping[type[Any], type[Any]] = {
    records.RemoveAccessControlEntryRecord: records.AccessControlEntryRecord,
    records.RemoveUserScramCredentialRecord: records.UserScramCredentialRecord,
    records.RemoveDelegationTokenRecord: records.DelegationTokenRecord,
    records.UnregisterControllerRecord: records.RegisterControllerRecord,
}
"""Maps each type of removal record to the type of record that it removes. Both have the same key fields."""


def keep(image: ClusterImage, record: Any) -> None:
    """Store the record in `image.kept`, in place of the earlier record of the same object."""
    image.kept[_key(type(record), record)] = record


def remove(image: ClusterImage, record: Any) -> None:
    """Apply a removal record: delete from `image.kept` the record that it names, if there is one. For example,
    RemoveDelegationTokenRecord deletes the DelegationTokenRecord with the same token id.
    """
    image.kept.pop(_key(REMOVALS[type(record)], record), None)


def quota(image: ClusterImage, record: records.ClientQuotaRecord) -> None:
    """Store the quota of this record's entity in `image.kept`, or remove it if the record says so."""
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
"""Maps each type of record of the features that Squall lacks to the function that applies it to `ClusterImage.kept`."""
