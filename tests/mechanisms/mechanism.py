"""Defines the rows of the table of mechanisms, and how one of their rules is removed from the broker."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

Tests = dict[str, tuple[str, ...]]
"""Names of tests by file. `test_x[case]` names one case of a test with parameters."""


class RemovalNotFoundError(Exception):
    """A removal names a function, or text in it, that its module does not have exactly once."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A change of the broker's code that removes a rule: another body of a function, or another text in it."""

    without: str
    """What the broker does without the rule, as a sentence without its subject."""
    module: str
    """Path of the module below the checkout."""
    function: str
    """Qualified name of the function, such as "Class.method"; "" if the text is outside of functions."""
    body: str = ""
    """Replaces the whole body of the function."""
    piece: str = ""
    """Alternatively: this text, which is in the function exactly once ..."""
    by: str = ""
    """... is replaced by this one."""

    @property
    def module_name(self) -> str:
        """Return the module's name in an import statement."""
        return f"squall.{self.module.removesuffix('.py').replace('/', '.')}"

    @property
    def place(self) -> str:
        """Return "broker/log/log.py: Log.roll", as tables show it."""
        return f"{self.module}: {self.function}".removesuffix(": ")

    def edited(self, source: str) -> str:
        """Return the module's source without the rule. Raises RemovalNotFoundError."""
        lines = source.splitlines(keepends=True)
        if not self.function:
            return self._replaced(source)
        function = self._find(ast.parse(source))
        body = function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
        first, last = body[0].lineno - 1, function.end_lineno or body[-1].lineno
        if self.piece:
            return "".join(lines[:first]) + self._replaced("".join(lines[first:last])) + "".join(lines[last:])
        indent = " " * body[0].col_offset
        return "".join(lines[:first]) + f"{indent}{self.body}\n" + "".join(lines[last:])

    def _replaced(self, text: str) -> str:
        if not self.piece or text.count(self.piece) != 1:
            raise RemovalNotFoundError(f"{self.place} has {self.piece!r} {text.count(self.piece)} times, and not once")
        return text.replace(self.piece, self.by)

    def _find(self, tree: ast.Module) -> ast.FunctionDef | ast.AsyncFunctionDef:
        found: ast.AST = tree
        for name in self.function.split("."):
            inside = [node for node in ast.iter_child_nodes(found) if getattr(node, "name", "") == name]
            if len(inside) != 1:
                raise RemovalNotFoundError(f"{self.module} has no {self.function}")
            found = inside[0]
        if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            raise RemovalNotFoundError(f"{self.place} is no function")
        return found


@dataclass(frozen=True)
class Mechanism:
    """One row of docs/mechanisms.md."""

    id: str
    rule: str
    """What the mechanism does, in one sentence."""
    source: str
    """The KIP, Kafka issue or paper that decided it."""
    tests: Tests
    """The tests that fail without it."""
    removals: tuple[Removal, ...]
    """The removals of its rules. With each of them, at least one of `tests` fails."""

    @cached_property
    def node_ids(self) -> list[str]:
        """Return the pytest node ids of its tests."""
        return [f"{file}::{name}" for file, names in self.tests.items() for name in names]
