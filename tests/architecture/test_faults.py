"""Checks that each kind of fault is described in its own file only: no other code compares its name or lists names."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from squall.chaos.faults.kinds import KINDS
from tests.architecture.source import PACKAGES, sources

OWN = ("chaos/faults/kinds/", "checkers/first_schema.py")
"""Files that may name kinds of faults: the kinds themselves, and the table for lines of the first schema."""
DATA = ("chaos/mutants/bugs/",)
"""Files whose plans may name kinds of faults: a planted bug names the faults that provoke it."""
ENOUGH = 2
"""So many names of kinds in one literal count as a list of kinds."""


def test_no_code_compares_an_actions_name() -> None:
    found = [f"{source.where(node)}: {ast.unparse(node)[:100]}" for source, node in _compared()]
    assert not found, "ask a trait of its kind instead:\n" + "\n".join(found)


def test_no_list_of_actions_names_stands_outside_the_kinds() -> None:
    found = [
        f"{source.where(node)}: {ast.unparse(node)[:100]}"
        for source in sources(*PACKAGES)
        if not source.name.startswith((*OWN, *DATA))
        for node in source.nodes
        if len(_names_in(node)) >= ENOUGH
    ]
    assert not found, "a trait says it for kinds that do not exist yet, too:\n" + "\n".join(found)


def _compared() -> Iterator[tuple[object, ast.AST]]:
    for source in sources(*PACKAGES):
        if source.name.startswith(OWN):
            continue
        for node in source.nodes:
            if compares_an_action(node):
                yield source, node


def compares_an_action(node: ast.AST) -> bool:
    """Return whether a comparison or match statement compares an action with the name of a kind."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(_is_action(side) for side in sides) and any(_literals(side) & set(KINDS) for side in sides)
    if isinstance(node, ast.Match) and _is_action(node.subject):
        return any(_literals(case.pattern) & set(KINDS) for case in node.cases)
    return False


def _is_action(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="action") | ast.Name(id="action"):
            return True
        case ast.Subscript(slice=ast.Constant(value="action")):
            return True
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value="action"), *_]):
            return True
        case ast.Call(args=[inner]):
            return _is_action(inner)
    return False


def _literals(node: ast.AST) -> set[str]:
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def _names_in(node: ast.AST) -> set[str]:
    """Return the kinds that are elements or keys of a literal of strings; none if it holds anything else."""
    if isinstance(node, ast.Dict):
        elements: list[ast.expr | None] = list(node.keys)
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        elements = list(node.elts)
    else:
        return set()
    values = [each.value if isinstance(each, ast.Constant) else None for each in elements]
    names = {value for value in values if isinstance(value, str) and value in KINDS}
    return names if all(isinstance(value, str) for value in values) else set()


@pytest.mark.parametrize(
    ("code", "alarms"),
    [
        ("if fault.action == 'kill': pass", True),
        ("if line['action'] in ('kill', 'x'): pass", True),
        ("if str(line.get('action')) != 'pause': pass", True),
        ("match fault.action:\n    case 'kill': pass", True),
        ("if fault.params['how'] == 'kill': pass", False),
        ("if fault.action == other: pass", False),
        ("if event == 'clock': pass", False),
    ],
)
def test_the_finder_of_comparisons_finds_them_and_only_them(code: str, alarms: bool) -> None:
    assert any(compares_an_action(node) for node in ast.walk(ast.parse(code))) == alarms


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("DOWN = ('kill', 'stop')", {"kill", "stop"}),
        ("DOWN = {'kill': 1, 'stop': 2}", {"kill", "stop"}),
        ("DOWN = frozenset({'kill', 'crash'})", {"kill"}),
        ("x = ('kill', 3)", set()),
    ],
)
def test_the_finder_of_lists_finds_them(code: str, found: set[str]) -> None:
    assert set().union(*(_names_in(node) for node in ast.walk(ast.parse(code)))) == found
