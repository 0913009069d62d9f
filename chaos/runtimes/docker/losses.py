"""Packets lost on their way to Toxiproxy or from it: rules of iptables in its container, which count what they drop."""

from __future__ import annotations

import re
from collections.abc import Mapping

from chaos.errors import HarnessError
from chaos.runtimes.contract import Link, Loss, Stream
from chaos.runtimes.docker.container import Container

CAPABILITY = "NET_ADMIN"
COUNTED = re.compile(r"^\s*(\d+)\s.*/\* (\S+) \*/", re.MULTILINE)


class Losses:
    """By link and name. `ports`: of each link's proxy. Sent again are lost packets when the kernel's TCP sees fit."""

    def __init__(self, container: Container, ports: Mapping[Link, int]) -> None:
        self._container = container
        self._ports = ports
        self._rules: dict[tuple[Link, str], list[list[str]]] = {}

    def has(self, name: str, link: Link) -> bool:
        """Whether there is a loss of this name on a link."""
        return (link, name) in self._rules

    async def add(self, name: str, link: Link, fault: Loss) -> None:
        """Lose packets from now on. HarnessError for a name that is on this link, or a link that is none."""
        if link not in self._ports:
            raise HarnessError(f"there is no link {link}")
        if self.has(name, link):
            raise HarnessError(f"link {link} already has a fault named {name}")
        # Noted first: a call that fails half-way leaves something for `remove` to take off.
        rules = self._rules[link, name] = _rules(f"{name}.{link}", self._ports[link], fault)
        for rule in rules:
            await self._iptables("-A", *rule)

    async def remove(self, name: str, link: Link) -> int:
        """Lose no more. How many packets were lost."""
        rules = self._rules.pop((link, name))
        hits = 0
        for rule in rules:
            said = await self._iptables("-L", rule[0], "-v", "-x", "-n")
            comment = rule[rule.index("--comment") + 1]
            hits += sum(int(count) for count, found in COUNTED.findall(said) if found == comment)
            await self._iptables("-D", *rule)
        return hits

    async def reset(self) -> None:
        """Lose nothing any more."""
        if self._rules:
            self._rules.clear()
            await self._iptables("-F")

    async def _iptables(self, *arguments: str) -> str:
        return await self._container.run(["iptables", *arguments])


def _rules(comment: str, port: int, fault: Loss) -> list[list[str]]:
    """A rule for each direction: what the link's source sends comes in to its proxy's port, what it gets leaves it."""
    ways = {Stream.THERE: [("INPUT", "--dport")], Stream.BACK: [("OUTPUT", "--sport")]}
    ways[Stream.BOTH] = ways[Stream.THERE] + ways[Stream.BACK]
    chance = ["-m", "statistic", "--mode", "random", "--probability", f"{fault.probability:.6f}"]
    match = {chain: [side, str(port), *chance, "-m", "comment"] for chain, side in ways[fault.stream]}
    return [
        [chain, "-p", "tcp", *rest, "--comment", f"{comment}.{chain}", "-j", "DROP"] for chain, rest in match.items()
    ]
