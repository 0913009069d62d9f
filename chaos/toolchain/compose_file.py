"""Finds the containers of a compose file that are brokers, and their node ids.

The file itself is not parsed: Compose labels every container with the files that it was made from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from squall.chaos.errors import PreconditionError

FILES, SERVICE = "com.docker.compose.project.config_files", "com.docker.compose.service"
FOLDER, ONE_OFF = "com.docker.compose.project.working_dir", "com.docker.compose.oneoff"
NODE = "squall.node"
"""Names a label with the broker id of a container, for containers whose name does not show the id."""


def brokers_of(compose: Path, containers: Sequence[Mapping[str, Any]], ids: Sequence[int]) -> dict[int, str]:
    """Return a map from each broker id to its container id. Raise PreconditionError if a broker has no container, or
    several.

    containers: those with the label FILES, as the engine lists them.
    """
    if not compose.is_file():
        raise PreconditionError(f"--compose {compose}: there is no such file")
    wanted = compose.resolve()
    ours = [each for each in containers if wanted in made_from(_labels(each)) and not _is_one_off(each)]
    if not ours:
        raise PreconditionError(
            f"no container was made from {compose}: start it first (docker compose -f {compose} up -d)"
        )
    found: dict[int, list[Mapping[str, Any]]] = {}
    for each in ours:
        node = node_of(each)
        if node in ids:
            found.setdefault(node, []).append(each)
    for node in ids:
        if len(found.get(node, ())) != 1:
            named = ", ".join(_name(each) for each in found.get(node, ())) or "none"
            raise PreconditionError(
                f"broker {node} is not one container of {compose} (found: {named}; there are "
                f"{', '.join(_name(each) for each in ours)}): label it {NODE}: {node}, or let its service be named so"
            )
    return {node: str(found[node][0]["Id"]) for node in ids}


def made_from(labels: Mapping[str, str]) -> Iterator[Path]:
    """Yield the paths of the compose files from which Compose made a container, according to the container's labels.

    Compose 2 records absolute paths. Version 1 records each path as the user gave it, perhaps relative to a working
    directory that is not recorded. The label FOLDER records the folder of the first file. The other files are found
    from there; a file outside of that folder is left out.
    """
    files = [Path(file) for file in labels.get(FILES, "").split(",") if file]
    folder = Path(labels.get(FOLDER, "/"))
    given = files[0].parent if files and not files[0].is_absolute() else Path()
    for file in files:
        if file.is_absolute():
            yield file.resolve()
        elif file.is_relative_to(given):
            yield (folder / file.relative_to(given)).resolve()


def node_of(container: Mapping[str, Any]) -> int:
    """Return the broker id of a container: its label NODE, else the number at the end of its service's name; -1 if it
    has neither.
    """
    labels = _labels(container)
    if NODE in labels:
        return int(labels[NODE]) if labels[NODE].isdigit() else -1
    number = re.search(r"(\d+)$", labels.get(SERVICE, ""))
    return int(number[1]) if number else -1


def _labels(container: Mapping[str, Any]) -> Mapping[str, str]:
    return container.get("Labels") or {}


def _is_one_off(container: Mapping[str, Any]) -> bool:
    """Return whether the container was made by `docker compose run`, beside the services."""
    return _labels(container).get(ONE_OFF, "").lower() == "true"


def _name(container: Mapping[str, Any]) -> str:
    names = container.get("Names") or [str(container.get("Id"))[:12]]
    return str(names[0]).removeprefix("/")
