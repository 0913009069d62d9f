"""`bootstrap.checkpoint`, which Kafka's `kafka-storage format` leaves: the features that a fresh cluster is to have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cluster.feed import UnsupportedFeature
from broker.control.kraft.snapshot_store import decode_snapshot
from broker.controller.features import check_supported
from broker.protocol.errors import MalformedFrame
from broker.protocol.schema.metadata_records import FeatureLevelRecord

if TYPE_CHECKING:
    from broker.env import Fs

NAME = "bootstrap.checkpoint"


def check_bootstrap_file(fs: Fs, folder: str) -> None:
    """Raise UnsupportedFeature where a directory was formatted for a version that has more than this one."""
    path = f"{folder}/{NAME}"
    if not fs.exists(path):
        return
    file = fs.open(path)
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    try:
        _, records = decode_snapshot(data)
    except MalformedFrame as problem:
        raise UnsupportedFeature(f"{path} cannot be read by this version: {problem}") from problem
    features = {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}
    check_supported(features, path)
