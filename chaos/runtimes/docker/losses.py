"""Packet loss on the way to and from Toxiproxy, by iptables rules in its container, which count the packets they drop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from chaos.errors import HarnessError
from chaos.runtimes.contract import Link, Loss, Stream
from chaos.runtimes.docker.container import Container

CAPABILITY = "NET_ADMIN"
COUNTED = re.compile(r"^\s*(\d+)\s.*/\* (\S+) \*/", re.MULTILINE)


class Losses:
    """Losses by link and name. `ports`: the port of each link's proxy. The kernel's TCP sends lost packets again."""

    def __init__(self, container: Container, ports: Mapping[Link, int]) -> None:
        self._container = container
        self._ports = ports
        self._rules: dict[tuple[Link, str], list[list[str]]] = {}

    def has(self, name: str, link: Link) -> bool:
        """Whether there is a loss of this name on a link."""
        return (link, name) in self._rules

    async def add(self, name: str, link: Link, fault: Loss) -> None:
        """Lose packets from now on. HarnessError if the name is in use on this link, or if the link is unknown."""
        if link not in self._ports:
            raise HarnessError(f"there is no link {link}")
        if self.has(name, link):
            raise HarnessError(f"link {link} already has a fault named {name}")
        # Noted first: a call that fails half-way leaves something for `remove` to take off.
        rules = self._rules[link, name] = _rules(f"{name}.{link}", self._ports[link], fault)
        for rule in rules:
            await self._iptables("-A", *rule)

    async def remove(self, name: str, link: Link) -> int:
        """Stop this loss. Returns how many packets were lost."""
        rules = self._rules.pop((link, name))
        hits = 0
        for rule in rules:
            said = await self._iptables("-L", rule[0], "-v", "-x", "-n")
            comment = rule[rule.index("--comment") + 1]
            hits += sum(int(count) for count, found in COUNTED.findall(said) if found == comment)
            await self._iptables("-D", *rule)
        return hits

    async def reset(self) -> None:
        """Stop every loss."""
        if self._rules:
            self._rules.clear()
            await self._iptables("-F")

    async def _iptables(self, *arguments: str) -> str:
        return await self._container.run(["iptables", *arguments])


def _rules(comment: str, port: int, fault: Loss) -> list[list[str]]:
    """One rule for each direction: packets from the link's source to its proxy's port, and packets from that port."""
    ways = {Stream.THERE: [("INPUT", "--dport")], Stream.BACK: [("OUTPUT", "--sport")]}
    ways[Stream.BOTH] = ways[Stream.THERE] + ways[Stream.BACK]
    chance = ["-m", "statistic", "--mode", "random", "--probability", f"{fault.probability:.6f}"]
    match = {chain: [side, str(port), *chance, "-m", "comment"] for chain, side in ways[fault.stream]}
    return [
        [chain, "-p", "tcp", *rest, "--comment", f"{comment}.{chain}", "-j", "DROP"] for chain, rest in match.items()
    ]
