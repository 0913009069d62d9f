"""Defines the labels on all containers, networks and volumes of a run, by which the leftovers of an interrupted run are
found.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from squall.chaos.runtimes.real.proc import ProcessId, identify, is_alive, namespace
from squall.chaos.toolchain.engine import DockerEngine, EngineError

RUN, HARNESS, FOLDER, NODE = "squall.run", "squall.harness", "squall.folder", "squall.node"
NAMESPACE = "squall.namespace"
"""Names the label for the harness's pid namespace. The pid in the label `HARNESS` is valid only in this namespace."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Lists the objects that one run left behind: containers and networks as (id, name), and the names of its volumes.
    """

    run: str
    harness_alive: bool
    containers: tuple[tuple[str, str], ...]
    networks: tuple[tuple[str, str], ...]
    volumes: tuple[str, ...] = ()
    namespace: str = ""
    """Identifies the pid namespace of the run's harness, from the label `NAMESPACE`; empty without this label."""

    def names(self) -> list[str]:
        """Return the leftovers, such as "container NAME" or "volume NAME", in an order in which they can be removed."""
        of_containers = [f"container {name}" for _, name in self.containers]
        of_networks = [f"network {name}" for _, name in self.networks]
        return [*of_containers, *of_networks, *(f"volume {name}" for name in self.volumes)]


def labels_of(run: str, folder: str) -> dict[str, str]:
    """Return the labels for a run whose harness is this OS process. folder: the path of the run directory."""
    me = identify(os.getpid())
    assert me is not None, "this process is alive"
    return {
        RUN: run,
        HARNESS: f"{me.pid}:{me.start_ticks}:{me.boot}",
        FOLDER: folder,
        NAMESPACE: namespace(),
    }


def find(engine: DockerEngine) -> list[Leftover]:
    """Return every run that has left something in the engine, sorted by the run's id. Raises EngineError."""
    containers, networks, volumes = engine.containers(RUN), engine.networks(RUN), engine.volumes(RUN)
    by_run = {each["Labels"][RUN]: each["Labels"] for each in (*volumes, *networks, *containers)}
    return [
        Leftover(
            run,
            harness_alive(said.get(HARNESS, "")),
            tuple((each["Id"], each["Names"][0].lstrip("/")) for each in _of(run, containers)),
            tuple((each["Id"], each["Name"]) for each in _of(run, networks)),
            tuple(each["Name"] for each in _of(run, volumes)),
            said.get(NAMESPACE, ""),
        )
        for run, said in sorted(by_run.items())
    ]


def remove(engine: DockerEngine, found: Leftover) -> list[str]:
    """End and remove the objects that a run left behind. Returns the removed objects, such as "volume NAME". Raises
    EngineError.
    """
    assert not found.harness_alive, "a run that is under way ends its own containers"
    for container, _ in found.containers:
        engine.remove(container)
    for network, _ in found.networks:
        engine.remove_network(network)
    for volume in found.volumes:
        engine.remove_volume(volume)
    return found.names()


def sweep(engine: DockerEngine) -> list[str]:
    """End and remove the leftovers of runs whose harness was killed, as far as the engine allows. Returns the removed
    objects.

    If a run's harness is in another pid namespace, it is not known here whether it still runs: such leftovers are for
    `squall clean`.
    """
    removed = []
    try:
        for each in find(engine):
            if not each.harness_alive and each.namespace == namespace():
                removed += remove(engine, each)
    except EngineError:
        pass  # another run removes it at this moment, or `squall clean` will say why it cannot be
    return removed


def remove_all(engine: DockerEngine, run: str) -> list[EngineError]:
    """End and remove everything of a run. Returns the errors for objects that could not be removed."""
    troubles: list[EngineError] = []
    try:
        label = f"{RUN}={run}"
        containers, networks, volumes = engine.containers(label), engine.networks(label), engine.volumes(label)
    except EngineError as error:
        return [error]
    acts = [partial(engine.remove, each["Id"]) for each in containers]
    # A network can be removed once no container is in it, a volume once no container has it.
    acts += [partial(engine.remove_network, each["Id"]) for each in networks]
    for act in (*acts, *(partial(engine.remove_volume, each["Name"]) for each in volumes)):
        try:
            act()
        except EngineError as error:
            troubles.append(error)
    return troubles


def harness_alive(label: str) -> bool:
    """Return whether the OS process whose id is in a harness label still runs. False if the label cannot be read."""
    try:
        pid, ticks, boot = label.split(":")
        return is_alive(ProcessId(int(pid), int(ticks), boot))
    except ValueError:
        return False


def _of(run: str, listed: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in listed if each["Labels"][RUN] == run]
