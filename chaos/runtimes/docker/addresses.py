"""Chooses a cluster's network range, and its members' addresses in it."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from squall.chaos.runtimes.layout import INTERNAL, AddressLayout, links

ROUTES = Path("/proc/net/route")
PREFIX = 24
POOLS = (IPv4Network("10.128.0.0/9"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.0.0/16"))
TRIED_PER_POOL = 64

PROXY_HOST, RELAY_HOST, FIRST_NODE_HOST = 2, 3, 10
"""Give the last numbers of IPv4 addresses: Toxiproxy's, that of the relay that parses Kafka requests, and broker 0's.
Broker N has 10 + N. The engine itself has 1.
"""
API_PORT, CONTROL_PORT, FIRST_PROXY_PORT = 8474, 8475, 20_001
FIRST_LISTENER_PORT = 9091
"""Is the port of a broker's listener INTERNAL. The listeners of the client zones have the next ports."""


def free_ranges(taken: Iterable[IPv4Network], rng: random.Random) -> Iterator[IPv4Network]:
    """Yield network ranges that overlap none of `taken`. POOLS are tried in their order. In a pool, ranges are drawn at
    random, so that runs that start together try different ones.
    """
    taken = list(taken)
    for pool in POOLS:
        count = 1 << (PREFIX - pool.prefixlen)
        for at in rng.sample(range(count), min(TRIED_PER_POOL, count)):
            candidate = IPv4Network((int(pool.network_address) + (at << (32 - PREFIX)), PREFIX))
            if not any(candidate.overlaps(each) for each in taken):
                yield candidate


def routed(routes: Path = ROUTES) -> list[IPv4Network]:
    """Return the network ranges to which this machine has routes, without the default route."""
    try:
        lines = routes.read_text().splitlines()[1:]
    except OSError:
        return []
    found = []
    for fields in (line.split() for line in lines):
        # The kernel prints its own integers in hex: the machine's byte order decides where an address's first byte is.
        target, mask = (int.from_bytes(bytes.fromhex(fields[at]), sys.byteorder) for at in (1, 7))
        if mask:
            found.append(IPv4Network((target, mask.bit_count())))
    return found


def of_networks(networks: Iterable[dict[str, Any]]) -> list[IPv4Network]:
    """Return the IPv4 ranges of an engine's networks."""
    configs = (config for network in networks for config in (network.get("IPAM") or {}).get("Config") or ())
    subnets = (config.get("Subnet", "") for config in configs)
    return [IPv4Network(subnet) for subnet in subnets if "." in subnet]


def proxy_host(network: IPv4Network) -> str:
    """Return Toxiproxy's address."""
    return str(network[PROXY_HOST])


def relay_host(network: IPv4Network) -> str:
    """Return the address of the relay that parses Kafka requests."""
    return str(network[RELAY_HOST])


def node_host(network: IPv4Network, node: int) -> str:
    """Return a broker's address."""
    return str(network[FIRST_NODE_HOST + node])


def place(
    network: IPv4Network, nodes: tuple[int, ...], controllers: tuple[int, ...], zones: tuple[str, ...]
) -> AddressLayout:
    """Give every broker an address of its own, and every link's proxy a port of its own at Toxiproxy's address."""
    names = (INTERNAL, *zones)
    direct = {
        (name, node): (node_host(network, node), FIRST_LISTENER_PORT + at)
        for at, name in enumerate(names)
        for node in nodes
    }
    proxies = {link: (proxy_host(network), FIRST_PROXY_PORT + at) for at, link in enumerate(links(nodes, zones))}
    return AddressLayout(nodes, controllers, zones, direct, proxies)
