"""Checks what contributors add or fill in: fragments of the changelog, workflows, forms for issues."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

from tests.architecture.source import PACKAGES, ROOT

FRAGMENT = re.compile(r"(?:\d+|\+[a-z0-9-]+)\.(\w+)(?:\.\d+)?\.md")
MAX_VERSION_LINES = 40
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
KINDS = {each["directory"] for each in SETTINGS["type"]}


def wrong(name: str, text: str) -> str:
    """Return what is wrong with a changelog fragment of that name; empty if nothing is."""
    found = FRAGMENT.fullmatch(name)
    if found is None or found[1] not in KINDS:
        return f"{name}: call it NUMBER.KIND.md or +words.KIND.md; KIND is one of {sorted(KINDS)}"
    if text.startswith(("-", "#")) or not text.endswith(".\n") or len(text) > 600:
        return f"{name}: one to three sentences, without a bullet or a heading"
    return ""


def test_fragments_have_a_name_that_a_release_finds_and_a_sentence() -> None:
    folder = ROOT / SETTINGS["directory"]
    found = [each for each in folder.iterdir() if each.name != ".gitkeep"]
    assert [said for each in found if (said := wrong(each.name, each.read_text()))] == []


@pytest.mark.parametrize("name", ["41.added.md", "+metrics-port.fixed.md", "41.added.2.md"])
def test_a_fragment_is_a_sentence(name: str) -> None:
    assert wrong(name, "Something is new.\n") == ""
    assert wrong(name, "- Something is new.\n")


@pytest.mark.parametrize("name", ["41.md", "metrics.added.md", "41.feature.md", "41.added.txt"])
def test_a_fragment_that_no_release_would_find_is_seen(name: str) -> None:
    assert wrong(name, "Something is new.\n")


def test_the_changelog_has_a_mark_for_releases_and_short_versions() -> None:
    _, mark, versions = (ROOT / SETTINGS["filename"]).read_text().partition(SETTINGS["start_string"])
    assert mark
    assert "## Unreleased" not in versions
    assert all(len(each.splitlines()) <= MAX_VERSION_LINES for each in versions.split("\n## "))


def test_the_workflow_of_the_gate_calls_what_ci_calls() -> None:
    text = (ROOT / ".github/workflows/gate.yml").read_text()
    ran = [each["run"] for each in yaml.safe_load(text)["jobs"]["gate"]["steps"] if "run" in each]
    assert ran == [".ci/run"]
    assert (ROOT / ran[0]).stat().st_mode & 0o100


@pytest.mark.parametrize("form", ["bug", "finding"])
def test_forms_of_issues_ask_for_plan_verdict_and_version(form: str) -> None:
    fields = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{form}.yml").read_text())["body"]
    asked = {each["id"] for each in fields if each.get("validations", {}).get("required")}
    assert {"plan", "verdict", "version"} <= asked
    assert any("squall --version" in each.get("attributes", {}).get("label", "") for each in fields)


def test_every_package_says_that_it_is_typed() -> None:
    assert [each for each in PACKAGES if not (ROOT / each / "py.typed").is_file()] == []
