"""Finds code whose result depends on the order of a set.

Sets of strings are ordered by a hash that differs from process to process: if the order has an effect, a seed gives
another run each time. The search works without types: it finds set literals and calls, and names and attributes that
the same file assigns or annotates as sets.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

SETS = {"set", "frozenset", "Set", "FrozenSet", "AbstractSet", "MutableSet"}
ORDER_BLIND = {"set", "frozenset", "sorted", "len", "sum", "min", "max", "any", "all", "Counter", "isdisjoint"}
"""Calls whose result does not depend on the order of their argument."""
ORDERED = {
    "list",
    "tuple",
    "iter",
    "enumerate",
    "zip",
    "map",
    "filter",
    "join",
    "extend",
    "next",
    "reversed",
    "fromkeys",
}


def unordered_iterations(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every place that iterates over a set and lets the order have an effect."""
    nodes = list(ast.walk(tree))
    names = _set_names(nodes)
    parents = {child: parent for parent in nodes for child in ast.iter_child_nodes(parent)}
    for node in nodes:
        if isinstance(node, ast.For | ast.AsyncFor) and _is_set(node.iter, names):
            yield node
        elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
            blind = _called(parents.get(node)) in ORDER_BLIND
            if not blind and any(_is_set(part.iter, names) for part in node.generators):
                yield node
        elif isinstance(node, ast.Starred) and _is_set(node.value, names):
            if not isinstance(parents[node], ast.Set):
                yield node
        elif isinstance(node, ast.Call) and _called(node) in ORDERED and any(_is_set(a, names) for a in node.args):
            if _called(parents.get(node)) not in ORDER_BLIND:
                yield node


def _called(node: ast.AST | None) -> str:
    """Return the name of the called function, without what is before the dot."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_set(node: ast.AST, names: set[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in SETS
        case ast.Call(func=ast.Attribute(value=value, attr=attr)):
            return attr in ("union", "intersection", "difference", "symmetric_difference", "copy") and _is_set(
                value, names
            )
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left, names) or (not isinstance(node.op, ast.Sub) and _is_set(right, names))
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in names
    return False


def _set_names(nodes: list[ast.AST]) -> set[str]:
    """Return the names and attributes that this file assigns or annotates only as sets."""
    sets: set[str] = set()
    others: set[str] = set()
    for node in nodes:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation):
                (sets if _names_a_set(annotation) else others).add(name)
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                (sets if _names_a_set(annotation) else others).add(name)
            case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)], value=value):
                (sets if _is_set(value, set()) else others).add(name)
            case ast.For(target=ast.Name(id=name)) | ast.comprehension(target=ast.Name(id=name)):
                others.add(name)
    # A name that means both is not judged: a false alarm in correct code teaches people to switch the test off.
    return sets - others


def _names_a_set(annotation: ast.expr) -> bool:
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    if isinstance(base, ast.Constant) and isinstance(base.value, str):
        return base.value.partition("[")[0].rpartition(".")[2] in SETS
    return (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")) in SETS
