"""Lays out a cluster's network addresses: one for each listener of a node and for each link's proxy. It also derives
the broker settings that follow from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from squall.chaos.errors import PreconditionError
from squall.chaos.runtimes.contract import Link

INTERNAL = "INTERNAL"
ZONE = "CLIENT"
"""Names the first client zone, and its listener: the harness's own clients are in this zone."""

Address = tuple[str, int]
"""Is a pair of host and port."""

OURS = frozenset(
    {
        "node.id",
        "process.roles",
        "controller.quorum.voters",
        "listeners",
        "advertised.listeners",
        "inter.broker.listener.name",
        "log.dir",
        "log.dirs",
        "squall.peers",
        "squall.incarnation",
        "squall.trace.path",
        "squall.clock.offset.path",
        "squall.cluster.id",
    }
)
"""Names the settings that the runtime derives from a broker's addresses and paths; a user must not give them."""


@dataclass(frozen=True, slots=True)
class AddressLayout:
    """Holds the addresses of a cluster.

    `direct` maps each (listener, node) to its address. `proxies` maps each link to its proxy's address; it is empty if
    brokers and clients reach each other directly.
    """

    nodes: tuple[int, ...]
    controllers: tuple[int, ...]
    zones: tuple[str, ...]
    direct: Mapping[tuple[str, int], Address]
    proxies: Mapping[Link, Address]

    def links(self) -> tuple[Link, ...]:
        """Return every link: from each node to each other node, then from each client zone to each node."""
        return links(self.nodes, self.zones)

    def address(self, link: Link) -> Address:
        """Return the address that the link's source dials."""
        return self.proxies.get(link, self.target(link))

    def ways(self, link: Link) -> tuple[Address, ...]:
        """Return every address that the link's source dials: usually one. If there are several, each fault on the link
        is put on the proxies of all of them.
        """
        return (self.address(link),)

    def families(self) -> list[dict[Link, tuple[Address, Address]]]:
        """Return mappings of each link to its proxy, as (address on which the proxy listens, address to which it
        leads). A Squall cluster has one mapping. A cluster of Apache Kafka has two, because its nodes dial two
        addresses of each peer.
        """
        return [{link: (self.address(link), self.target(link)) for link in self.links()}]

    def target(self, link: Link) -> Address:
        """Return the address to which the link leads."""
        listener = link.source if isinstance(link.source, str) else INTERNAL
        return self.direct[listener, link.target]

    def bootstrap(self, zone: str) -> str:
        """Return the bootstrap servers for clients of the zone. Zone "INTERNAL" means the listener between nodes, which
        clients reach without a proxy.
        """
        return ",".join(shown(self.address(Link(zone, node))) for node in self.nodes)

    def settings(self, node: int) -> dict[str, str]:
        """Return the broker settings for the addresses, roles and peers of one node."""
        names = (INTERNAL, *self.zones)
        advertised = {INTERNAL: self.direct[INTERNAL, node]} | {z: self.address(Link(z, node)) for z in self.zones}
        peers = (f"{other}@{shown(self.address(Link(node, other)))}" for other in self.nodes if other != node)
        voters = (f"{voter}@{shown(self.direct[INTERNAL, voter])}" for voter in self.controllers)
        return {
            "node.id": str(node),
            "process.roles": "broker,controller" if node in self.controllers else "broker",
            "controller.quorum.voters": ",".join(voters),
            "listeners": ",".join(f"{name}://{shown(self.direct[name, node])}" for name in names),
            "advertised.listeners": ",".join(f"{name}://{shown(to)}" for name, to in advertised.items()),
            "inter.broker.listener.name": INTERNAL,
            "squall.peers": ",".join(peers),
        }


def addresses(bootstrap: str) -> list[Address]:
    """Parse "host:port,host:port" into pairs of host and port."""
    found = []
    for each in bootstrap.split(","):
        host, _, port = each.rpartition(":")
        found.append((host, int(port)))
    return found


def shown(address: Address) -> str:
    """Return the address as "host:port"."""
    return f"{address[0]}:{address[1]}"


def links(nodes: tuple[int, ...], zones: tuple[str, ...]) -> tuple[Link, ...]:
    """Return every link: from each node to each other node, then from each client zone to each node."""
    between = tuple(Link(a, b) for a in nodes for b in nodes if a != b)
    return between + tuple(Link(zone, node) for zone in zones for node in nodes)


def zone_name(number: int) -> str:
    """Return a client zone's name, counted from 1: CLIENT, CLIENT2, CLIENT3, ..."""
    return ZONE if number == 1 else f"{ZONE}{number}"


def zone_names(count: int) -> tuple[str, ...]:
    """Return the names of this many zones, in order."""
    return tuple(zone_name(number) for number in range(1, count + 1))


def proxy_name(link: Link) -> str:
    """Return the name of the link's proxy in Toxiproxy."""
    return f"{link.source}-to-{link.target}"


def choose_controllers(nodes: tuple[int, ...], voters: int | None = None) -> tuple[int, ...]:
    """Return the ids of the quorum's voters: the first `voters` nodes. None means three voters, or one if there are
    fewer than three nodes: two voters cannot lose one.
    """
    return nodes[: voters or (3 if len(nodes) >= 3 else 1)]


def check_settings(settings: Mapping[str, str]) -> None:
    """Raise if a setting is given that the runtime sets itself."""
    for name in settings:
        if name in OURS:
            raise PreconditionError(f"setting {name} cannot be given: it follows from where the broker runs")


def check_zones(zones: tuple[str, ...]) -> None:
    """Raise if a zone's name is not valid for a listener, or if a listener already has the name."""
    for zone in zones:
        if not zone.isidentifier() or not zone.isupper() or zone == INTERNAL or zones.count(zone) > 1:
            raise PreconditionError(f"zone {zone!r}: a name of its own in capitals, such as CLIENT or ZONE_A")


def properties_text(settings: Mapping[str, str | Path]) -> str:
    """Return the settings as the text of a Kafka-style .properties file."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())
