"""What this machine lacks for a run of a matrix. Nothing is fetched and nothing is built here."""

from __future__ import annotations

from functools import cache

from chaos.errors import Refused
from chaos.nights.axes import EXTERNAL
from chaos.nights.items import Item


def lacking(item: Item, bootstrap: str) -> str:
    """Why this machine cannot run it, in one line; empty where it can."""
    cell = item.cell
    if cell["runtime"] == EXTERNAL:
        return "" if bootstrap else 'no external cluster is named: bootstrap = "HOST:PORT" in the matrix'
    if cell["runtime"] == "sim":
        return ""
    found = [_client(cell.get("client", "squall"))]
    if cell["runtime"] == "docker":
        found.append(_engine())
    if cell["target"] == "kafka":
        found.append(_kafka())
    return "; ".join(filter(None, found))


@cache
def _client(name: str) -> str:
    from chaos.drivers.host import require

    if name != "squall":
        try:
            require(name)
        except Refused as missing:
            return str(missing).splitlines()[0]
    return ""


@cache
def _engine() -> str:
    from chaos.toolchain.engine_lacks import engine_lacks

    return next((lack.what for lack in engine_lacks()), "")


@cache
def _kafka() -> str:
    from chaos.toolchain.kafka import kafka_lacks

    return "; ".join(lack.what for lack in kafka_lacks())
