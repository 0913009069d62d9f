"""Controls `squall.chaos.runtimes.real.frame_relay` from the harness: chooses the links that need a relay, and sends
commands to the relay.

Runtimes start the relay's process and place it between their proxies and the brokers. This module speaks to it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import trio

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import Evidence, Frames, Link

ANSWER_S = 5.0

Address = tuple[str, int]
Through = Sequence[tuple[Link, Address, Address]]
"""Lists the relay's routes, as (link, address on which the relay listens, address of the broker to which it leads)."""
Routes = Mapping[Link, tuple[Address, Address]]
"""Maps each link to its proxy: the address that the link's source dials, and the address to which the proxy leads."""


def route_through_relay(
    routes: Routes, framed: Collection[Link], listening: Iterator[Address]
) -> tuple[dict[Link, tuple[Address, Address]], list[tuple[Link, Address, Address]]]:
    """Insert the relay between Toxiproxy and the brokers on the links in `framed`: the links that may get protocol
    faults. The Toxiproxy proxy of such a link leads to the relay, which listens on the next address of `listening`. The
    relay leads to the broker.

    Returns (the new routes of all Toxiproxy proxies, the relay's routes as in `Through`).
    """
    led, through = dict(routes), []
    for link, (dialled, to) in routes.items():
        if link in framed:
            listen = next(listening)
            led[link] = (dialled, listen)
            through.append((link, listen, to))
    return led, through


def routes_text(control: Address, through: Through, produce: Path | None = None) -> str:
    """Return the JSON text of the ROUTES file with which the relay is started. control: the address on which the relay
    accepts commands. through: its routes. produce: the file in which it counts clients' Produce requests, one count for
    each combination of client id, acks, idempotence, transactional id and codec.
    """
    routes = [{"link": str(link), "listen": list(listen), "to": list(to)} for link, listen, to in through]
    counted = {} if produce is None else {"produce": str(produce)}
    return json.dumps({"control": list(control), "routes": routes, **counted})


class FramedLinks:
    """Controls a running relay, and remembers the faults on its links by name. Raises HarnessError if the relay does
    not carry out a command.
    """

    def __init__(self, control: Address, links: Iterable[Link]) -> None:
        self._control = control
        self._links = frozenset(links)
        self._named: set[tuple[str, Link]] = set()

    async def ready(self) -> bool:
        """Return whether the relay answers."""
        try:
            # Before the first fault this order changes nothing.
            await self._ask({"do": "reset"})
        except HarnessError:
            return False
        return True

    def has(self, name: str, link: Link) -> bool:
        """Return whether the relay has a fault of this name on a link."""
        return (name, link) in self._named

    async def add(self, name: str, link: Link, fault: Frames) -> None:
        """Put a fault on a link."""
        if link not in self._links:
            raise HarnessError(f"link {link} has no frame-aware relay: the plan named no protocol fault on it")
        self._named.add((name, link))  # first: what fails half-way can be taken off
        await self._ask({"do": "add", "link": str(link), "name": name, "fault": asdict(fault)})

    async def remove(self, name: str, link: Link) -> Evidence:
        """Remove a fault from a link. Evidence: hits (how many requests or responses the fault hit), struck (the first
        EndTxn requests among them, at most `STRUCK_REPORTS`, each a `StruckEndTxn` as a dict).
        """
        answer = await self._ask({"do": "remove", "link": str(link), "name": name})
        self._named.discard((name, link))
        return {key: answer[key] for key in ("hits", "struck") if answer.get(key) is not None}

    async def reset(self) -> None:
        """Remove every fault from every link."""
        await self._ask({"do": "reset"})
        self._named.clear()

    async def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        try:
            with trio.fail_after(ANSWER_S):
                async with await trio.open_tcp_stream(*self._control) as stream:
                    await stream.send_all(json.dumps(order).encode() + b"\n")
                    said = b""
                    while not said.endswith(b"\n"):
                        more = await stream.receive_some()
                        if not more:
                            raise HarnessError("the frame relay ended the connection")
                        said += more
        except (OSError, trio.BrokenResourceError, trio.TooSlowError) as trouble:
            raise HarnessError(f"the frame relay does not answer {order['do']}: {trouble!r}") from None
        answer: dict[str, Any] = json.loads(said)
        if "error" in answer:
            raise HarnessError(str(answer["error"]))
        return answer
