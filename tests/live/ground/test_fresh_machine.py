"""The script that prepares a fresh machine refuses wrong arguments. CI and the nightly tests run it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "fresh/machine.sh"

pytestmark = pytest.mark.gate


def ran(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"PATH": path} if path else {})}
    return subprocess.run([SCRIPT, *arguments], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [[], ["--only", "run"], ["trixie", "--only", "some"], ["trixie", "tests/parity"]])
def test_wrong_usage_is_told_and_makes_no_machine(arguments: list[str]) -> None:
    done = ran(*arguments)
    assert done.returncode == 3
    assert done.stderr.startswith("tests/fresh/machine.sh SUITE|all")
    assert "Exit code 0" in done.stderr


def test_without_root_or_debootstrap_there_is_no_machine(tmp_path: Path) -> None:
    for name in ("sh", "dirname", "id"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    done = ran("trixie", path=str(tmp_path))
    assert done.returncode == 3
    assert "needs " + ("debootstrap" if os.getuid() == 0 else "root") in done.stderr
