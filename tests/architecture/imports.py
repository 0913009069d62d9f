"""Reads from the sources which module imports which; type-only imports and those inside functions count, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePosixPath

from tests.architecture.source import PACKAGES, Source, sources


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Return, for each hand-written module, the modules that it imports, at the top or inside a function."""
    known = {_module(source.name): source for source in sources(*PACKAGES)}
    return {name: frozenset(_named(source, known)) - {name} for name, source in known.items()}


def _module(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(("squall", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def _named(source: Source, known: Mapping[str, Source]) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                if inside in known:
                    yield inside
                elif node.module in known:
                    yield node.module


def circles(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle (Tarjan), all sorted."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: dict[str, None] = {}
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = lowest[module] = len(index)
        path[module] = None
        for other in sorted(graph.get(module, ())):
            if other not in index:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in path:
                lowest[module] = min(lowest[module], index[other])
        if lowest[module] == index[module]:
            group = []
            while True:
                member, _ = path.popitem()
                group.append(member)
                if member == module:
                    break
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return sorted(found)
