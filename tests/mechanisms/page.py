"""Generates docs/mechanisms.md, from the table of mechanisms and from the ids that comments and docstrings name."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator
from functools import cache

from tests.architecture.source import PACKAGES, ROOT, Source, sources
from tests.mechanisms.table import MECHANISMS

PAGE = ROOT / "docs" / "mechanisms.md"
ID = re.compile(r"\b[RECLPQ][1-9][0-9]?\b(?!\.\d)")
"""Matches the id of a mechanism, such as R2, but not of a removal, such as R2.0."""

HEAD = """\
# Mechanisms

Docstrings name the mechanisms of Kafka's design by short ids, such as R2 or E3. This page explains each id. R stands
for replicas and in-sync replicas (ISR), E for leader epochs, C for the control plane, L for the log, and P for
producers and other clients.

The table in `tests/mechanisms/` is the source of this page, and `./squall test --rules --docs` writes the page anew. A
test compares both with the code: this page explains every id that code names, and code names every id on this page.
Some numbers are missing (C3 to C5, L5, P7, Q1, Q2). They belong to features that the broker does not have, or
does not have completely: ZooKeeper, compaction, delivery guarantees of whole pipelines, and quotas.

"""

REMOVALS = """
## What fails without a rule

<!-- not played: the night plays it in its part `everything` -->

    ./squall test --rules            # every rule, in some minutes
    ./squall test --rules R4 C2.0    # all rules of one mechanism, and one single rule

This check takes each rule of each mechanism out of the broker in turn, and runs the tests of its mechanism. At least
one of these tests must fail, and each of them must fail without at least one rule. Otherwise the exit code is 1. A rule
is taken out while its module is imported, in a process of its own. The files of the broker stay as they are. This
command prints the rules of a mechanism, what a broker without one does, and the tests that notice:

    ./squall test --rules --show R4
"""


def text() -> str:
    """Return the text of the page."""
    return HEAD + "".join(_table()) + REMOVALS


def _table() -> Iterator[str]:
    yield "| id | rule | modules | source |\n| --- | --- | --- | --- |\n"
    named = modules()
    for mechanism in MECHANISMS.values():
        where = ", ".join(f"`{module}`" for module in named.get(mechanism.id, ()))
        yield f"| {mechanism.id} | {mechanism.rule} | {where} | {mechanism.source} |\n"


def rules(selected: Collection[str]) -> Iterator[str]:
    """Yield lines of a table: each removal of these ids (of all, if none is given), its place in the code, and its
    tests.
    """
    for mechanism in MECHANISMS.values():
        ids = [f"{mechanism.id}.{number}" for number in range(len(mechanism.removals))]
        shown = [pair for pair in zip(ids, mechanism.removals, strict=True) if _is_among(pair[0], selected)]
        if shown:
            yield f"{mechanism.id}  {mechanism.rule}"
        for name, removal in shown:
            where = removal.module + (f": {removal.function}" if removal.function else "")
            yield f"  {name}  a broker that {removal.without} ({where})"
        for file, names in mechanism.tests.items() if shown else ():
            yield f"  {file}: {', '.join(names)}"


def _is_among(removal: str, selected: Collection[str]) -> bool:
    return not selected or removal in selected or removal.partition(".")[0] in selected


@cache
def modules() -> dict[str, tuple[str, ...]]:
    """Return, for each id, the modules whose docstrings or comments name it."""
    found: dict[str, list[str]] = {}
    for source in sources(*PACKAGES):
        for name in sorted(ids_in(source)):
            found.setdefault(name, []).append(source.name)
    return {name: tuple(where) for name, where in found.items()}


def ids_in(source: Source) -> frozenset[str]:
    """Return the ids in the docstrings and comments of a module. Other strings are not searched: "C1" in them may be a
    compiler.
    """
    prose = [
        node.value.value
        for node in source.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    if any(ID.search(line) for line in source.text.splitlines() if "#" in line):
        tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
        prose += [token.string for token in tokens if token.type == tokenize.COMMENT]
    return frozenset(name for piece in prose for name in ID.findall(piece))
