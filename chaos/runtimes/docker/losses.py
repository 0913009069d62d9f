"""Loses packets on the way to and from Toxiproxy, by iptables rules in its container, which count the packets they
drop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import trio

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import Link, Loss, StreamDirection
from squall.chaos.runtimes.docker.container import Container

CAPABILITY = "NET_ADMIN"
COUNTED = re.compile(r'^\[(\d+):\d+\] -A .*--comment "?([^\s"]+)"?', re.MULTILINE)
CHANGE = "iptables-save -c -t filter && iptables-restore --noflush"
"""Is a shell command that changes iptables rules. Its first part prints every rule with its packet count; its second
part applies all changes from stdin at once.
"""


class _IptablesBatch:
    """Holds changes of iptables rules that one call of iptables-restore applies together, and the result of that call.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.over = trio.Event()
        self.said: str | None = None
        self.error = "it was given up"


class PacketLossRules:
    """Holds the packet losses by link and name. `ports` maps each link to its proxy's port. The kernel's TCP sends lost
    packets again.

    Losses that begin at the same moment take one call to the engine, which puts all their rules on at once.
    """

    def __init__(self, container: Container, ports: Mapping[Link, int]) -> None:
        self._container = container
        self._ports = ports
        self._rules: dict[tuple[Link, str], list[str]] = {}
        self._next: _IptablesBatch | None = None

    def has(self, name: str, link: Link) -> bool:
        """Return whether a link has a loss of this name."""
        return (link, name) in self._rules

    async def add(self, name: str, link: Link, fault: Loss) -> None:
        """Lose packets on a link from now on. Raises HarnessError if the name is in use on this link, or if the link is
        unknown.
        """
        if link not in self._ports:
            raise HarnessError(f"there is no link {link}")
        if self.has(name, link):
            raise HarnessError(f"link {link} already has a fault named {name}")
        # Noted first: a call that fails half-way leaves something for `remove` to take off.
        rules = self._rules[link, name] = _rules(f"{name}.{link}", self._ports[link], fault)
        await self._change([f"-A {rule}" for rule in rules])

    async def remove(self, name: str, link: Link) -> int:
        """Stop the loss of this name on a link. Returns how many packets it lost."""
        rules = self._rules.pop((link, name))
        said = await self._change([f"-D {rule}" for rule in rules])
        return sum(int(count) for count, found in COUNTED.findall(said) if f"--comment {found} " in " ".join(rules))

    async def reset(self) -> None:
        """Stop every loss."""
        if self._rules:
            self._rules.clear()
            await self._container.run(["iptables", "-F"])

    async def _change(self, lines: Sequence[str]) -> str:
        """Apply changes of iptables rules, together with all other changes that are requested at this moment. Return
        the rules as they were before the change, with their packet counts.
        """
        change, first = self._next or _IptablesBatch(), self._next is None
        self._next = change
        change.lines += lines
        if first:
            try:
                await trio.lowlevel.checkpoint()  # losses that begin at the same moment add their lines now
                self._next = None
                text = "\n".join(("*filter", *change.lines, "COMMIT", ""))
                # Shielded: other tasks wait for this call, and would count rules that may or may not be on.
                with trio.CancelScope(shield=True):
                    change.said = await self._container.run(["sh", "-c", f"{CHANGE} <<'END'\n{text}END"])
            except HarnessError as trouble:
                change.error = str(trouble)
            finally:
                self._next = None if self._next is change else self._next
                change.over.set()
        await change.over.wait()
        if change.said is None:
            raise HarnessError(f"rules of iptables were not changed: {change.error}")
        return change.said


def _rules(comment: str, port: int, fault: Loss) -> list[str]:
    """Return the rules that lose packets to the proxy's `port`, from it, or both, as `fault.stream` says. comment:
    identifies the rules among all others.
    """
    ways = {StreamDirection.THERE: [("INPUT", "--dport")], StreamDirection.BACK: [("OUTPUT", "--sport")]}
    ways[StreamDirection.BOTH] = ways[StreamDirection.THERE] + ways[StreamDirection.BACK]
    chance = f"-m statistic --mode random --probability {fault.probability:.6f}"
    return [
        f"{chain} -p tcp {side} {port} {chance} -m comment --comment {comment}.{chain} -j DROP"
        for chain, side in ways[fault.stream]
    ]
