"""What a real cluster is to be, before it is anywhere; and the folder that it is kept in."""

from __future__ import annotations

import fcntl
import os
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from broker.config import BrokerConfig, ConfigError
from chaos.errors import Refused
from chaos.runtimes.contract import Link
from chaos.runtimes.layout import Layout, check_settings, check_zones, choose_controllers, links
from chaos.runtimes.real.node_folder import NodeFolder


@dataclass(frozen=True, slots=True)
class Blueprint:
    """settings: Kafka's names, for every broker. controllers: the voters' ids. See `blueprint`."""

    folder: Path
    nodes: tuple[int, ...]
    zones: tuple[str, ...]
    settings: Mapping[str, str]
    controllers: tuple[int, ...]

    def links(self) -> tuple[Link, ...]:
        """As `Runtime.links`."""
        return links(self.nodes, self.zones)

    def files(self, node: int) -> NodeFolder:
        """Of one node."""
        return NodeFolder(self.folder / "nodes" / str(node))

    def check_brokers_settings(self, layout: Layout) -> None:
        """What a broker of ours would refuse is refused here, where somebody reads it."""
        try:
            BrokerConfig.from_properties({**self.settings, **layout.settings(self.nodes[0])})
        except ConfigError as error:
            raise Refused(str(error)) from error

    def cluster_id(self) -> str:
        """Made at the first start on this folder and kept in it. 16 bytes, base64, as Kafka writes them."""
        kept = self.folder / "cluster-id"
        if not kept.exists():
            kept.write_text(urlsafe_b64encode(os.urandom(16)).decode().rstrip("=") + "\n")
        return kept.read_text().strip()

    def lock(self) -> IO[str]:
        """Two clusters on one folder would write into the same logs. Held until it is closed, or the harness killed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = (self.folder / ".lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise Refused(f"another cluster is running on {self.folder}") from None
        return lock


def blueprint(
    folder: Path,
    nodes: int | Sequence[int],
    zones: tuple[str, ...],
    settings: Mapping[str, str] | None,
    controllers: Sequence[int] | None = None,
) -> Blueprint:
    """nodes: how many, with ids from 1, or which ids. controllers: else the first three (one, of fewer). Refused for
    zones and settings that cannot be.
    """
    check_zones(zones)
    check_settings(settings or {})
    ids = tuple(range(1, nodes + 1)) if isinstance(nodes, int) else tuple(sorted(nodes))
    voters = tuple(controllers) if controllers is not None else choose_controllers(ids)
    return Blueprint(folder.absolute(), ids, zones, dict(settings or {}), voters)
