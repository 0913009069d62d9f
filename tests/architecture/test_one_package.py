"""Squall is one import package: no code imports `broker` without `squall.`, and no module has two names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import squall
import squall.chaos.fixture.handle
import squall.fixture
import squall.spark
from squall.spark_analysis import jobs
from tests.architecture.source import PACKAGES, ROOT, Source, sources
from tests.support.two_names import with_two_names

IMPORTED = re.compile(r"^\s*(?:from|import) (squall[\w.]*)", re.MULTILINE)
"""Matches an import of one of our modules in a program."""


def bare(source: Source) -> Iterator[str]:
    """Yield each import of a package without `squall.`, and each `-m` of one."""
    for node in source.nodes:
        match node:
            case ast.Import(names=names):
                named = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                named = [module]
            case ast.List(elts=words) | ast.Tuple(elts=words):
                texts = [each.value if isinstance(each, ast.Constant) else None for each in words]
                named = [str(word) for option, word in zip(texts, texts[1:], strict=False) if option == "-m"]
            case _:
                continue
        yield from (f"{source.where(node)}: {name}" for name in named if name.partition(".")[0] in PACKAGES)


def parsed(text: str) -> Source:
    return Source("x.py", text, ast.parse(text))


def test_nothing_imports_or_runs_a_package_by_itself() -> None:
    loose = [parsed((ROOT / name).read_text()) for name in ("fixture.py", "spark.py", "squall.py")]
    found = [line for source in (*sources(*PACKAGES, "tests", "bench", "docs"), *loose) for line in bare(source)]
    assert not found, "squall. is missing:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import broker", True),
        ("import os, checkers.anomalies", True),
        ("from chaos.runs import real", True),
        ("def late():\n    from reports import page", True),
        ('call = ["python", "-P", "-m", "chaos", "run"]', True),
        ('call = ("-m", "broker.protocol.codegen")', True),
        ("import squall.broker", False),
        ("from squall import reports", False),
        ("from brokers import reports", False),
        ("from . import broker", False),
        ('call = ["-m", "squall.chaos", "broker"]', False),
    ],
)
def test_the_finder_of_bare_names_finds_them_and_nothing_else(code: str, found: bool) -> None:
    assert any(bare(parsed(code))) == found


def test_a_module_with_two_names_is_seen() -> None:
    """tests/conftest.py runs this check at the end of each session."""
    twin = ModuleType("broker.env")
    twin.__file__ = str(ROOT / "broker/env.py")
    other = ModuleType("squall.broker.env")
    other.__file__ = twin.__file__
    (line,) = with_two_names([("broker.env", twin), ("squall.broker.env", other), ("__main__", twin)])
    assert line.startswith("broker.env, squall.broker.env: ")
    assert not with_two_names([("squall.broker.env", other), ("__main__", twin)])


def test_the_folders_are_found_where_the_package_is(tmp_path: Path) -> None:
    """The package is found by a link, as in .venv, and by PYTHONPATH. Neither makes `broker` importable beside
    `squall.broker`.
    """
    assert Path(squall.__path__[0]) == ROOT
    (tmp_path / "squall.py").symlink_to(ROOT / "squall.py")
    script = "import squall.broker, importlib.util as u; print(squall.broker.__file__, u.find_spec('broker'))"
    # -I -S: neither the environment of this test nor the folder in which it runs.
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(tmp_path)!r}); {script}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{ROOT}/broker/__init__.py None\n", "")


def test_the_interface_is_what_the_pages_say() -> None:
    assert squall.fixture.cluster is squall.chaos.fixture.handle.cluster
    assert squall.spark.analyse is jobs.analyse
    for module, pages in ((squall.fixture, ["docs/fixture.md"]), (squall.spark, ["docs/run.md", "docs/load.md"])):
        texts = [(ROOT / page).read_text() for page in pages]
        assert all(f"from {module.__name__} import" in text for text in texts)
        assert [name for name in module.__all__ if not re.search(rf"\b{name}\b", "".join(texts))] == [], pages


def test_pages_and_examples_import_nothing_but_the_interface() -> None:
    paths = [ROOT / "README.md", *(each for each in (ROOT / "docs").rglob("*") if each.suffix in (".md", ".py"))]
    found = {name for path in paths for name in IMPORTED.findall(path.read_text())}
    assert found == {"squall.fixture", "squall.spark"}


def test_all_else_says_that_it_is_private() -> None:
    docstrings = {name: ast.get_docstring(ast.parse((ROOT / name / "__init__.py").read_text())) for name in PACKAGES}
    assert [name for name, text in docstrings.items() if "private" not in (text or "").lower()] == []
    assert "all else below it is private" in (squall.__doc__ or "")
