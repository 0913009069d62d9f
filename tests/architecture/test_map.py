"""Every folder says what it holds, and ARCHITECTURE.md stays short."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.source import PACKAGES, ROOT

FOLDERS = sorted(
    path.relative_to(ROOT).as_posix()
    for package in PACKAGES
    for path in (ROOT / package, *(ROOT / package).rglob("*"))
    if path.is_dir() and any(path.glob("*.py"))
)
MAX_KIB = 15


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_says_in_a_sentence_what_it_holds(folder: str) -> None:
    init = ROOT / folder / "__init__.py"
    assert init.exists(), f"{folder} has no __init__.py"
    said = ast.get_docstring(ast.parse(init.read_text())) or ""
    assert len(said.split()) >= 6, f"{init.relative_to(ROOT)}: a docstring that says what the folder holds"


def test_the_map_is_short_and_names_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.encode()) <= MAX_KIB << 10, "reasons go to the heads of the modules they are about"
    assert not [package for package in PACKAGES if f"| `{package}/` |" not in text]
