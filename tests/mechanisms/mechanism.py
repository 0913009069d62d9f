"""Defines a mechanism, and takes one of its rules out of the broker."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

Tests = dict[str, tuple[str, ...]]
"""Names of tests by file. `test_x[case]` names one case of a test with parameters."""


class NotThere(Exception):
    """A removal names a function, or a piece of one, that its module does not have (exactly once)."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A rule, and what the code would be without it: another body of a function, or another piece in it."""

    without: str
    """What the broker does once the rule is gone, as a sentence without a subject."""
    module: str
    """Path of the module from the root."""
    function: str
    """Qualified name: "Class.method"; "" for a piece of the module outside of functions."""
    body: str = ""
    """Replaces the whole body."""
    piece: str = ""
    """Or: this text, which the function has exactly once ..."""
    by: str = ""
    """... is replaced by this one."""

    @property
    def module_name(self) -> str:
        """As an import statement names it."""
        return f"squall.{self.module.removesuffix('.py').replace('/', '.')}"

    @property
    def place(self) -> str:
        """For tables: "broker/log/log.py: Log.roll"."""
        return f"{self.module}: {self.function}".removesuffix(": ")

    def edited(self, source: str) -> str:
        """The module's source without the rule. NotThere."""
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
            raise NotThere(f"{self.place} has {self.piece!r} {text.count(self.piece)} times, and not once")
        return text.replace(self.piece, self.by)

    def _find(self, tree: ast.Module) -> ast.FunctionDef | ast.AsyncFunctionDef:
        found: ast.AST = tree
        for name in self.function.split("."):
            inside = [node for node in ast.iter_child_nodes(found) if getattr(node, "name", "") == name]
            if len(inside) != 1:
                raise NotThere(f"{self.module} has no {self.function}")
            found = inside[0]
        if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            raise NotThere(f"{self.place} is no function")
        return found


@dataclass(frozen=True)
class Mechanism:
    """One row of docs/mechanisms.md."""

    id: str
    rule: str
    """One sentence."""
    source: str
    """Where Kafka, or a paper, decided it."""
    tests: Tests
    """Those that fail without the rule."""
    removals: tuple[Removal, ...]
    """Each takes out a part of the rule. At least one of `tests` fails without it."""

    @cached_property
    def node_ids(self) -> list[str]:
        """The tests as pytest names them."""
        return [f"{file}::{name}" for file, names in self.tests.items() for name in names]
