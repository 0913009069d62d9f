"""The harness uses workloads only by their port, and knows none by name."""

from __future__ import annotations

import ast
import re

from squall.workloads.registry import FOLDERS, SCENARIOS
from squall.workloads.scenario import Scenario
from tests.architecture.source import ROOT, Source, sources

LIBRARY = tuple(f"squall.workloads.load.{name}" for name in ("ranges", "reading", "fetching"))
"""The parts of the workload `load` that `squall load` shares with it."""
MUTANTS = "chaos/mutants/"
"""Plans of planted bugs are data, and name topics as every plan does."""


def _docstrings(source: Source) -> set[ast.AST]:
    """Return every string that is a statement by itself."""
    return {node.value for node in source.nodes if isinstance(node, ast.Expr)}


def test_no_module_of_the_harness_imports_a_workload() -> None:
    found = [
        f"{source.where(node)}: {name}"
        for source in sources("chaos", "reports", "checkers", "spark_analysis")
        for node in source.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
        if name.startswith(FOLDERS) and name not in LIBRARY and not source.name.startswith(MUTANTS)
    ]
    assert not found, "\n".join(found)


def test_no_module_of_chaos_names_a_workload() -> None:
    # "command" and "load" are words of every such program: no string shows that a workload is meant.
    named = re.compile(rf"\b({'|'.join(name for name in SCENARIOS if name not in ('command', 'load'))})\b")
    found = [
        f"{source.where(node)}: {node.value!r}"
        for source in sources("chaos")
        if not source.name.startswith(MUTANTS)
        for told in [_docstrings(source)]
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node not in told and named.search(node.value)
    ]
    assert not found, "\n".join(found)


def test_each_folder_holds_one_scenario_whose_name_is_the_folders() -> None:
    assert [f"squall.workloads.{name}" for name in SCENARIOS] == list(FOLDERS)
    folders = {path.parent.name for path in (ROOT / "workloads").glob("*/scenario.py")}
    assert folders == set(SCENARIOS)
    assert all(issubclass(each, Scenario) for each in SCENARIOS.values())


def test_each_workload_has_a_page() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "workloads").glob("*.md")}
    assert pages == set(SCENARIOS)


def test_operations_begin_with_their_time() -> None:
    assert {each.OPERATION._fields[0] for each in SCENARIOS.values()} == {"at_s"}  # type: ignore[attr-defined]
