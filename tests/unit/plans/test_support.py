"""Checks what can be broken where: the page is made from the registry, and the command says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from squall.chaos.commands.faults import command
from squall.chaos.faults.kind import RUNTIMES
from squall.chaos.faults.kinds import KINDS
from squall.chaos.plans import support

PAGE = Path(__file__).parents[3] / "docs" / "faults.md"


def test_the_page_is_made_from_the_registry() -> None:
    page = PAGE.read_text()
    assert support.put_into(page) == page, "put what `./squall faults --markdown` prints between the markers"


def test_the_page_has_a_word_for_every_parameter() -> None:
    page = PAGE.read_text().partition(support.END)[2]
    for action in KINDS.values():
        for name in action.params:
            assert f"`{name}`" in page, (action.name, name)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_action_is_named_for_every_runtime(runtime: str) -> None:
    said = CliRunner().invoke(command, ["--runtime", runtime])
    assert said.exit_code == 0
    assert all(name in said.output for name in KINDS)


def test_what_is_missing_is_said_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = support.FaultRequirement("a Docker engine", lambda: "no Docker engine: start one")
    monkeypatch.setattr(support, "ENGINE", lacking)
    said = CliRunner().invoke(command, ["--runtime", "docker"])
    assert "missing: a Docker engine: no Docker engine: start one" in said.output
    assert "(needs a Docker engine)" in said.output
