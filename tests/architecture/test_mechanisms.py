"""docs/mechanisms.md explains every mechanism that code comments name, and the modules and tests that it names exist.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.architecture.source import PACKAGES, ROOT, Source, sources
from tests.mechanisms import page
from tests.mechanisms.table import MECHANISMS

NEED_REMOVALS = (
    *(f"R{number}" for number in range(1, 15)),
    *(f"E{number}" for number in range(1, 5)),
    *("C1", "C2", "L1", "L2", "L3", "L4", "L6", "P1", "P2", "P4", "P5", "P6"),
)


@cache
def known_tests(file: str) -> frozenset[str]:
    return frozenset(name for source in sources("tests") if source.name == file for name, _ in source.functions)


def test_every_mechanism_that_code_names_is_explained_and_no_other() -> None:
    assert sorted(page.modules()) == sorted(MECHANISMS)


def test_every_mechanism_that_tests_and_pages_name_is_explained() -> None:
    named = {name: source.name for source in sources("tests") for name in page.ids_in(source)}
    missing = {name: where for name, where in named.items() if name not in MECHANISMS}
    assert not missing


def test_the_page_says_what_the_table_says() -> None:
    assert page.PAGE.read_text() == page.text(), "run `./squall test --rules --docs`"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_test_that_a_mechanism_names_exists(mechanism: str) -> None:
    named = MECHANISMS[mechanism].tests
    missing = [
        f"{file}: {name}"
        for file, names in named.items()
        for name in names
        if name.partition("[")[0] not in known_tests(file)
    ]
    assert named
    assert not missing, f"{mechanism} names tests that do not exist:\n" + "\n".join(missing)


@pytest.mark.parametrize("mechanism", NEED_REMOVALS)
def test_every_mechanism_has_rules_that_can_be_taken_out(mechanism: str) -> None:
    removals = MECHANISMS[mechanism].removals
    assert removals
    for removal in removals:
        source = (ROOT / removal.module).read_text()
        # RemovalNotFoundError after a change of the module: say in tests/mechanisms/ how the rule is taken out now.
        edited = removal.edited(source)
        compile(edited, removal.module, "exec")
        assert edited != source


def test_rules_are_sentences() -> None:
    for mechanism in MECHANISMS.values():
        assert re.fullmatch(r"[`A-Z].*\.", mechanism.rule), mechanism.id
        assert mechanism.source, mechanism.id


def test_ids_are_found_in_docstrings_and_comments_and_not_in_other_text() -> None:
    import ast

    text = '"""Says (R2)."""\nCOMPILER = "C1"  # as E3 asks\nWATCH = 1\n"""L4."""\n'
    assert page.ids_in(Source("x.py", text, ast.parse(text))) == {"R2", "E3", "L4"}
    assert PACKAGES
