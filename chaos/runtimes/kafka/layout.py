"""Lays out the listeners of Apache Kafka's nodes, and makes each node dial its peers through proxies.

Kafka has no setting for the addresses of single peers: a node dials the host that its peer advertises to everybody. So
this host is a name, `node-2`, and each node gets its own hosts file (`-Djdk.net.hosts.file`, JDK 9). There, a peer's
name has the loopback address of the proxy for this one directed link: 127.0.1.2 for 1 -> 2. The port is the same
everywhere, because a node advertises only one: brokers listen on 127.0.0.1, proxies on the same port of the link's
address.

Kafka does not let brokers and controllers share a listener. So each link between nodes has two proxies, and each fault
is put on both: INTERNAL (replication, forwarded requests) and CONTROLLER (the quorum, registrations, heartbeats).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from squall.broker.overriding import override
from squall.chaos.runtimes.contract import Link
from squall.chaos.runtimes.layout import INTERNAL, Address, AddressLayout, shown

CONTROLLER = "CONTROLLER"
HOME = "127.0.0.1"

GIVEN = frozenset(
    {
        *("node.id", "process.roles", "controller.quorum.voters", "controller.listener.names", "log.dir", "log.dirs"),
        *("listeners", "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name"),
    }
)
"""Names the settings that the runtime derives from a node's addresses and paths; a plan must not set them."""

SMALL: Mapping[str, str] = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "auto.create.topics.enable": "false",
}
"""Holds settings with which a node needs little memory; a plan may give other values."""


@dataclass(frozen=True, slots=True)
class KafkaLayout(AddressLayout):
    """Adds a listener for controllers to a cluster's addresses. `proxies` maps a link to the address of its INTERNAL
    proxy, or of its client zone's proxy. The CONTROLLER proxy of a link between nodes has the same host and another
    port.
    """

    def families(self) -> list[dict[Link, tuple[Address, Address]]]:
        """Return two mappings of links to proxies: the proxy that every link has, and the second proxy (CONTROLLER)
        that each link between nodes has as well.
        """
        first = {link: (self.address(link), self.target(link)) for link in self.links()}
        between = [link for link in self.links() if isinstance(link.source, int)]
        return [first, {link: (self.control(link), self.direct[CONTROLLER, link.target]) for link in between}]

    @override
    def ways(self, link: Link) -> tuple[Address, ...]:
        """Return the addresses that a link's source dials: two for a link between nodes."""
        first = (self.address(link),)
        return (*first, self.control(link)) if isinstance(link.source, int) else first

    def control(self, link: Link) -> Address:
        """Return the address that the link's source dials to reach the target's controller."""
        return (self.address(link)[0], self.direct[CONTROLLER, link.target][1])

    def hosts(self, node: int) -> str:
        """Return the text of the node's hosts file. A JVM with such a file asks no other source for addresses, so the
        file has every host name that Kafka looks up.
        """
        own = [f"{HOME} {name}" for name in ("localhost", socket.gethostname(), host_name(node))]
        peers = [f"{self.address(Link(node, other))[0]} {host_name(other)}" for other in self.nodes if other != node]
        return "".join(f"{line}\n" for line in own + peers)

    def settings(self, node: int) -> dict[str, str]:
        """Return the settings for the addresses and roles of one node."""
        names = (INTERNAL, *self.zones, *((CONTROLLER,) if node in self.controllers else ()))
        advertised = {
            name: shown(self.address(Link(name, node)))
            if name in self.zones
            else f"{host_name(node)}:{self.direct[name, node][1]}"
            for name in names
        }
        voters = (f"{voter}@{host_name(voter)}:{self.direct[CONTROLLER, voter][1]}" for voter in self.controllers)
        return {
            "node.id": str(node),
            "process.roles": "broker,controller" if node in self.controllers else "broker",
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": CONTROLLER,
            "listeners": ",".join(f"{name}://{shown(self.direct[name, node])}" for name in names),
            "advertised.listeners": ",".join(f"{name}://{to}" for name, to in advertised.items()),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in sorted({*names, CONTROLLER})),
            "inter.broker.listener.name": INTERNAL,
        }


def host_name(node: int) -> str:
    """Return the host name that the other nodes use for a node."""
    return f"node-{node}"


def link_host(link: Link) -> str:
    """Return the loopback address of the proxies of a link between nodes: 127.0.SOURCE.TARGET."""
    assert isinstance(link.source, int), link
    return f"127.0.{link.source}.{link.target}"
