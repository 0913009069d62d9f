"""Commands that are printed work in the folder in which they are printed, and those that are kept in every folder."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from chaos.typed import PROGRAM, here, lasting, script, typed


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
    kept = lasting("verify", Path("a run"), "")
    assert shlex.split(kept) == [str(PROGRAM), "verify", str(tmp_path / "a run")]
    monkeypatch.chdir(PROGRAM.parent)
    assert here(kept) == f"./squall verify '{tmp_path}/a run'"


def test_what_is_no_command_is_left_as_it_is() -> None:
    assert here("it's") == "it's"


def test_what_is_printed_elsewhere_is_typed_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(typed("sim", "--help"), shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Usage: squall sim" in done.stdout
