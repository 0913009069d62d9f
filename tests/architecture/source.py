"""Parses the source files once, for all tests of this folder."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("broker", "chaos", "checkers", "reports", "spark_analysis", "workloads")
GENERATED = ("broker/protocol/schema/",)

LAUNCHERS = (
    "broker/real_env.py",
    "broker/real_clock.py",
    "broker/real_files.py",
    "broker/faulted/",
    "broker/__main__.py",
    "broker/protocol/codegen/",
    "workloads/drivers/",
)
"""Files of node code that may use clocks, sockets and files directly: they implement or start the Env."""


@dataclass(frozen=True)
class Source:
    """One file. `name` is its path below the checkout, with "/"."""

    name: str
    text: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Return all nodes of its syntax tree."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def functions(self) -> tuple[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef], ...]:
        """Return every function with its qualified name: "Class.method", "outer.inner"."""
        return tuple(_functions(self.tree))

    def where(self, node: ast.AST) -> str:
        """Return "broker/log/log.py:12", for messages."""
        return f"{self.name}:{getattr(node, 'lineno', 1)}"


@cache
def _below(folder: str) -> tuple[Source, ...]:
    """Parse every file of a top-level folder, once for all tests of a session.

    The garbage collector is paused: it would visit the growing trees again and again, which takes three times as long
    as parsing, and the complete ones in each later test.
    """
    gc.disable()
    try:
        found = tuple(_parsed(folder))
    finally:
        gc.enable()
    gc.freeze()
    return found


def _parsed(folder: str) -> Iterator[Source]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(GENERATED) and "__pycache__" not in name:
            text = path.read_text(encoding="utf-8")
            source = Source(name, text, ast.parse(text))
            assert source.nodes
            yield source


def sources(*folders: str) -> tuple[Source, ...]:
    """Return every hand-written Python file below these folders, by name."""
    return tuple(source for folder in folders for source in _below(folder))


def node_code() -> Iterator[Source]:
    """Return the code that runs inside a node or a client, and must run in simulation as well."""
    return (source for source in sources("broker", "workloads") if not source.name.startswith(LAUNCHERS))


def _functions(tree: ast.AST) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        prefix, parent = waiting.pop()
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.expr):
                continue
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            name = f"{prefix}{child.name}" if named else prefix  # type: ignore[attr-defined]
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name, child
            waiting.append((f"{name}." if named else prefix, child))


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that are in a function, but not in the functions and classes inside it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))
