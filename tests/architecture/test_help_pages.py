"""docs/help has the output of every --help, and ./squall prints it before anything is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from squall.chaos import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs/help"
COLUMNS = 78
"""The width that click uses on a terminal of 80 columns."""


def pages() -> dict[str, list[str]]:
    """Return the command of each help page, as words."""
    found: dict[str, list[str]] = {"squall": []}
    for name in cli.COMMANDS:
        command = cli.squall.get_command(click.Context(cli.squall), name)
        assert command is not None
        inside = command.commands if isinstance(command, click.Group) else {}
        for each in (command, *inside.values()):
            # click keeps the option as it was made first: a test that calls a command by itself knows no -h.
            each._help_option = None
        found |= {name: [name], **{f"{name}-{each}": [name, each] for each in inside}}
    return found


def printed(words: list[str]) -> str:
    """Return what --help prints on a terminal of 80 columns."""
    done = CliRunner().invoke(cli.squall, [*words, "--help"], prog_name="squall", terminal_width=COLUMNS)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_pages_are_what_help_prints(update: bool) -> None:
    wanted = {name: printed(words) for name, words in pages().items()}
    if update:
        PAGES.mkdir(exist_ok=True)
        for name, text in wanted.items():
            (PAGES / f"{name}.txt").write_text(text)
    kept = {path.stem: path.read_text() for path in PAGES.glob("*.txt")}
    assert kept == wanted, "pytest tests/architecture/test_help_pages.py --update rewrites them"


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """Return a checkout without an environment."""
    shutil.copy(ROOT / "squall", tmp_path / "squall")
    shutil.copytree(PAGES, tmp_path / "docs/help")
    for name in ("requirements", "requirements-clients", "requirements-dev"):
        (tmp_path / f"{name}.txt").touch()
    return tmp_path


def called(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ./squall where no Python can be found, so that setting up an environment would fail."""
    tools = checkout / "tools"
    if not tools.exists():
        tools.mkdir()
        for tool in ("sh", "cat", "cmp", "dirname", "sort", "head"):
            found = shutil.which(tool)
            assert found is not None
            (tools / tool).symlink_to(found)
    environment = {**{k: v for k, v in os.environ.items() if k != "SQUALL_PYTHON"}, "PATH": str(tools)}
    return subprocess.run(
        [checkout / "squall", *words], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ([], "squall"),
        (["--help"], "squall"),
        (["-h"], "squall"),
        (["run", "--help"], "run"),
        (["run", "--time", "20", "--help"], "run"),
        (["test", "-h"], "test"),
        (["cluster"], "cluster"),
        (["cluster", "--help"], "cluster"),
        (["cluster", "up", "--help"], "cluster-up"),
    ],
)
def test_help_is_there_before_the_set_up_and_installs_nothing(words: list[str], page: str, fresh: Path) -> None:
    done = called(fresh, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (PAGES / f"{page}.txt").read_text()
    assert not list(fresh.glob(".venv*"))


def test_an_unknown_command_is_refused_before_anything_is_installed(fresh: Path) -> None:
    done = called(fresh, "rnu", "--help")
    assert done.returncode == 3
    assert "there is no command 'rnu': ./squall --help" in done.stderr
    assert not list(fresh.glob(".venv*"))


def test_a_command_that_is_not_help_is_set_up_for(fresh: Path) -> None:
    done = called(fresh, "run", "--time", "20")
    assert done.returncode == 3
    assert "needs Python 3.11 or newer, and found none" in done.stderr
