"""Describes a real cluster before it starts: its nodes, settings, and the folder in which it runs."""

from __future__ import annotations

import fcntl
import os
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from squall.broker.config import ConfigError, load_config
from squall.chaos.errors import PreconditionError
from squall.chaos.runtimes.broker_settings import fitted
from squall.chaos.runtimes.contract import Link
from squall.chaos.runtimes.layout import AddressLayout, check_settings, check_zones, choose_controllers, links
from squall.chaos.runtimes.real.node_folder import NodeFolder


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Describes a cluster before it starts. settings: broker settings by Kafka's names, the same for every broker.
    controllers: the voters' ids. Made by `blueprint`.
    """

    folder: Path
    nodes: tuple[int, ...]
    zones: tuple[str, ...]
    settings: Mapping[str, str]
    controllers: tuple[int, ...]

    def links(self) -> tuple[Link, ...]:
        """Return every link: from each node to each other node, then from each client zone to each node."""
        return links(self.nodes, self.zones)

    def files(self, node: int) -> NodeFolder:
        """Return the folder of one node."""
        return NodeFolder(self.folder / "nodes" / str(node))

    def check_brokers_settings(self, layout: AddressLayout) -> None:
        """Raise PreconditionError for settings that a Squall broker would refuse. So the user sees the message before
        any broker starts.
        """
        try:
            load_config({**self.settings, **layout.settings(self.nodes[0])})
        except ConfigError as error:
            raise PreconditionError(str(error)) from error

    def cluster_id(self) -> str:
        """Return the cluster's id: 16 random bytes in base64, as Kafka writes such ids. The first call makes the id and
        stores it in `folder`; later calls read it.
        """
        kept = self.folder / "cluster-id"
        if not kept.exists():
            kept.write_text(urlsafe_b64encode(os.urandom(16)).decode().rstrip("=") + "\n")
        return kept.read_text().strip()

    def lock(self) -> IO[str]:
        """Lock the folder: two clusters in it would write to the same logs. The lock is held until the file is closed,
        or until the harness ends.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = (self.folder / ".lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise PreconditionError(f"another cluster is running on {self.folder}") from None
        return lock


def blueprint(
    folder: Path,
    nodes: int | Sequence[int],
    zones: tuple[str, ...],
    settings: Mapping[str, str] | None,
    controllers: Sequence[int] | None = None,
) -> Blueprint:
    """Make the blueprint of a cluster. nodes: how many nodes (ids count from 1), or their ids. controllers: the voters'
    ids; by default the first three, or one if there are fewer than three. settings: settings for every broker; `fitted`
    adds what a cluster of few brokers needs. Raise PreconditionError for invalid zones and settings.
    """
    check_zones(zones)
    check_settings(settings or {})
    ids = tuple(range(1, nodes + 1)) if isinstance(nodes, int) else tuple(sorted(nodes))
    voters = tuple(controllers) if controllers is not None else choose_controllers(ids)
    return Blueprint(folder.absolute(), ids, zones, fitted(settings or {}, len(ids)), voters)
