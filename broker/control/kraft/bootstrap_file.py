"""Reads `bootstrap.checkpoint`, written by `kafka-storage format`: the first metadata records of a new cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.cluster.feed import UnsupportedFeature
from squall.broker.control.kraft.snapshot_store import decode_snapshot
from squall.broker.controller.features import check_supported, levels_in
from squall.broker.protocol.errors import MalformedFrame

if TYPE_CHECKING:
    from squall.broker.env import Fs

NAME = "bootstrap.checkpoint"


def formatted_records(fs: Fs, folder: str) -> list[Any]:
    """Return the metadata records in the `bootstrap.checkpoint` of `folder`; an empty list if there is no such file.

    Raises UnsupportedFeature if the file cannot be read, or sets a feature level that this version lacks.
    """
    path = f"{folder}/{NAME}"
    if not fs.exists(path):
        return []
    file = fs.open(path)
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    try:
        _, records = decode_snapshot(data)
    except MalformedFrame as problem:
        raise UnsupportedFeature(f"{path} cannot be read by this version: {problem}") from problem
    check_supported(levels_in(records), path)
    return records
