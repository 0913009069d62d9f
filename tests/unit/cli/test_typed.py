"""Commands that are printed work in the folder in which they are printed, and those that are kept in every folder."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from squall.chaos import cli
from squall.chaos.typed import PROGRAM, absolute_command, place, script, shortened, typed


def test_in_the_checkout_it_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROGRAM.parent)
    assert typed("sim", "--seed", "7") == "./squall sim --seed 7"
    assert typed("run", "--plan", Path("runs/latest/plan.toml")) == "./squall run --plan runs/latest/plan.toml"
    assert script("compose/engine.sh") == "compose/engine.sh"


def test_elsewhere_it_names_the_program_and_paths_below_this_folder_stay_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert typed("verify", Path("a run")) == f"{shlex.quote(str(PROGRAM))} verify 'a run'"
    assert [place(each) for each in ("a run", tmp_path / "b", "/c d")] == ["'a run'", "b", "'/c d'"]
    kept = absolute_command("verify", Path("a run"), "")
    assert shlex.split(kept) == [str(PROGRAM), "verify", str(tmp_path / "a run")]
    monkeypatch.chdir(PROGRAM.parent)
    assert shortened(kept) == f"./squall verify '{tmp_path}/a run'"


def test_what_is_no_command_is_left_as_it_is() -> None:
    assert shortened("it's") == "it's"


def test_what_is_printed_elsewhere_is_typed_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(typed("sim", "--help"), shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Usage: squall sim" in done.stdout


def calls() -> list[tuple[str, tuple[str, ...]]]:
    """(file and line, the words that stand there as they are) of every command that Squall prints or keeps."""
    found = []
    for path in sorted((PROGRAM.parent / "chaos").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("typed", "lasting"):
                said = [each for arg in node.args for each in ast.walk(arg) if isinstance(each, ast.Constant)]
                words = tuple(str(each.value) for each in said if isinstance(each.value, str) and each.value)
                if words:
                    found.append((f"{path.name}:{node.lineno}", words))
    return found


def test_every_command_that_is_printed_exists_with_its_options() -> None:
    """One test for all: a name with the line of each would change, and lose its row of costs, with every edit."""
    for where, (name, *options) in calls():
        command = cli.squall.get_command(click.Context(cli.squall), name)
        assert command is not None, where
        known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}
        assert {word for word in options if word.startswith("--")} <= known, where


def test_the_hints_of_refusals_are_among_them() -> None:
    said = {words[:2] for _, words in calls()}
    assert {("images",), ("setup", "--clients"), ("clean",)} <= {*said, *((w[0],) for w in said)}


def test_no_command_is_printed_that_works_in_the_checkout_alone() -> None:
    spoken = re.compile(r"\./squall [a-z]")
    for path in sorted((PROGRAM.parent / "chaos").rglob("*.py")):
        tree = ast.parse(path.read_text())
        docs = {id(ast.get_docstring(node, clean=False)) for node in ast.walk(tree)
                if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)}  # fmt: skip
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node.value) not in docs:
                assert not spoken.search(node.value) or "markdown" in node.value, f"{path.name}:{node.lineno}"
