"""Which containers of a compose file are brokers, and which broker each of them is.

The file itself is not parsed: Compose labels every container with the files that it was made from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.errors import Refused

FILES, SERVICE = "com.docker.compose.project.config_files", "com.docker.compose.service"
NODE = "squall.node"
"""A label that says which broker a container is, where its name does not."""


def brokers_of(compose: Path, containers: Sequence[Mapping[str, Any]], ids: Sequence[int]) -> dict[int, str]:
    """Broker id -> container id, of every broker. Refused where one of them has no container, or more than one.

    containers: as the engine lists those that have the label FILES.
    """
    wanted = str(compose.resolve())
    ours = [each for each in containers if wanted in _labels(each).get(FILES, "").split(",")]
    if not ours:
        raise Refused(f"no container was made from {compose}: start it first (docker compose -f {compose} up -d)")
    found: dict[int, list[Mapping[str, Any]]] = {}
    for each in ours:
        node = node_of(each)
        if node in ids:
            found.setdefault(node, []).append(each)
    for node in ids:
        if len(found.get(node, ())) != 1:
            named = ", ".join(_name(each) for each in found.get(node, ())) or "none"
            raise Refused(
                f"broker {node} is not one container of {compose} (found: {named}; there are "
                f"{', '.join(_name(each) for each in ours)}): label it {NODE}: {node}, or let its service be named so"
            )
    return {node: str(found[node][0]["Id"]) for node in ids}


def node_of(container: Mapping[str, Any]) -> int:
    """Which broker a container is: its label NODE, else the number at the end of its service's name; -1 for neither."""
    labels = _labels(container)
    if NODE in labels:
        return int(labels[NODE]) if labels[NODE].isdigit() else -1
    number = re.search(r"(\d+)$", labels.get(SERVICE, ""))
    return int(number[1]) if number else -1


def _labels(container: Mapping[str, Any]) -> Mapping[str, str]:
    return container.get("Labels") or {}


def _name(container: Mapping[str, Any]) -> str:
    names = container.get("Names") or [str(container.get("Id"))[:12]]
    return str(names[0]).removeprefix("/")
