"""Every start of Spark uses the toolchain's Java: PySpark itself finds none on a machine without Java."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from squall.spark_analysis import jobs, session
from tests.architecture.source import PACKAGES, Source, sources

STARTS = "spark_analysis/session.py"
"""The only module that starts a Spark session."""


def makers(source: Source) -> list[str]:
    """Return the places that make a session by PySpark's own classes."""
    return [
        source.where(node)
        for node in source.nodes
        if (isinstance(node, ast.Attribute) and node.attr in ("builder", "getOrCreate", "getActiveSession"))
        or (isinstance(node, ast.Call) and _called(node).endswith(("SparkContext", "SparkSession")))
    ]


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def test_one_module_makes_spark_sessions() -> None:
    found = {source.name: makers(source) for source in sources(*PACKAGES, "tests")}
    assert found.pop(STARTS), "the finder finds what is there"
    elsewhere = [where for places in found.values() for where in places]
    assert not elsewhere, "squall.spark_analysis.session.start is told on which Java it runs:\n" + "\n".join(elsewhere)


@pytest.mark.parametrize("function", [session.start, jobs.analyse])
def test_whoever_starts_spark_says_on_which_java(function: object) -> None:
    assert callable(function)
    assert inspect.signature(function).parameters["java_home"].default is inspect.Parameter.empty


def test_spark_is_not_started_where_the_named_java_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "kept")
    with pytest.raises(session.NoJava, match="no program bin/java"):
        session.start(1, tmp_path)


def test_every_home_comes_from_the_toolchain() -> None:
    """Each module that calls `start` or names --java-home imports the function that finds or fetches Java."""
    starting = [
        source
        for source in sources("chaos", "tests")
        if "session.start(" in source.text or '"--java-home"' in source.text
        if not source.name.startswith("tests/architecture/")
    ]
    assert {source.name for source in starting} >= {"tests/parity/spark_analysis/conftest.py"}
    without = [source.name for source in starting if "squall.chaos.toolchain.java import" not in source.text]
    assert not without
