"""What is written on everything of a run, and finding by it what an interrupted run left."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from chaos.proc import ProcessId, identify, is_alive
from chaos.toolchain.engine import Engine, EngineError

RUN, HARNESS, FOLDER, NODE = "squall.run", "squall.harness", "squall.folder", "squall.node"


@dataclass(frozen=True, slots=True)
class Leftover:
    """Containers and networks of one run, as (id, name)."""

    run: str
    harness_alive: bool
    containers: tuple[tuple[str, str], ...]
    networks: tuple[tuple[str, str], ...]


def labels_of(run: str, folder: str) -> dict[str, str]:
    """Of a run of this process."""
    me = identify(os.getpid())
    assert me is not None, "this process is alive"
    return {RUN: run, HARNESS: f"{me.pid}:{me.start_ticks}:{me.boot}", FOLDER: folder}


def find(engine: Engine) -> list[Leftover]:
    """Every run that the engine has something of, by its id. EngineError."""
    containers, networks = engine.containers(RUN), engine.networks(RUN)
    by_run = {each["Labels"][RUN]: each["Labels"].get(HARNESS, "") for each in (*networks, *containers)}
    return [
        Leftover(
            run,
            harness_alive(harness),
            tuple((each["Id"], each["Names"][0].lstrip("/")) for each in _of(run, containers)),
            tuple((each["Id"], each["Name"]) for each in _of(run, networks)),
        )
        for run, harness in sorted(by_run.items())
    ]


def remove(engine: Engine, found: Leftover) -> list[str]:
    """End and forget what is left of a run. Returns what was, as "container NAME". EngineError."""
    assert not found.harness_alive, "a run that is under way ends its own containers"
    gone = []
    for container, name in found.containers:
        engine.remove(container)
        gone.append(f"container {name}")
    for network, name in found.networks:
        engine.remove_network(network)
        gone.append(f"network {name}")
    return gone


def remove_all(engine: Engine, run: str) -> list[EngineError]:
    """End and forget everything of a run, whatever of it there is. What could not be, is returned."""
    troubles: list[EngineError] = []
    try:
        containers, networks = engine.containers(f"{RUN}={run}"), engine.networks(f"{RUN}={run}")
    except EngineError as error:
        return [error]
    acts = [partial(engine.remove, each["Id"]) for each in containers]
    # A network goes when nobody is in it any more.
    for act in (*acts, *(partial(engine.remove_network, each["Id"]) for each in networks)):
        try:
            act()
        except EngineError as error:
            troubles.append(error)
    return troubles


def harness_alive(label: str) -> bool:
    """Whether the process that a label tells of runs still. One that cannot be read tells of nobody."""
    try:
        pid, ticks, boot = label.split(":")
        return is_alive(ProcessId(int(pid), int(ticks), boot))
    except ValueError:
        return False


def _of(run: str, listed: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in listed if each["Labels"][RUN] == run]
