"""Runs our own client inside of a Spark driver or task, which know nothing of trio."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import trio

from squall.broker.real_env import RealEnv
from squall.workloads.client.client import Client
from squall.workloads.client.settings import ClientSettings, ConsumerSettings

if TYPE_CHECKING:
    from squall.spark_analysis.load.options import LoadOptions

R = TypeVar("R")


class NoAnswer(Exception):
    """Says that brokers did not answer in time."""


def run_with_client(options: LoadOptions, use: Callable[[Client], Awaitable[R]], limit_s: float = math.inf) -> R:
    """Return what `use` returns, given a client that runs until then. Raises what `use` raises, and NoAnswer after
    `limit_s` seconds.
    """
    own = {name: value for name, value in options.client.items() if name in ClientSettings.__slots__}

    async def run() -> R:
        client = Client(RealEnv("load"), options.bootstrap, ClientSettings(client_id="squall-load", **own))
        with trio.move_on_after(limit_s):
            async with trio.open_nursery() as nursery:
                await nursery.start(client.run)
                found = await use(client)
                client.close()
                nursery.cancel_scope.cancel()
            return found
        where = ", ".join(f"{host}:{port}" for host, port in options.bootstrap)
        raise NoAnswer(f"{where}: no answer within {limit_s:.0f} s")

    try:
        return trio.run(run)
    except BaseExceptionGroup as group:
        raise _first_of(group) from None


def consumer_settings(options: LoadOptions) -> ConsumerSettings:
    """Return the settings with which tasks fetch."""
    own = {name: value for name, value in options.client.items() if name in ConsumerSettings.__slots__}
    return ConsumerSettings(isolation=options.isolation, **own)


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
