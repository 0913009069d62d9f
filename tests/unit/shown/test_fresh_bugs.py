"""Fresh bugs: the head of a patch, and the copy of the checkout in which it is planted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shown import batches, fresh_bugs
from tests.shown.fresh_bugs import FOLDER, FreshBug, WrongPatchError
from tests.shown.table import ROOT
from tests.support.lacks import skip_without

NEW_FILE = """diff --git a/broker/planted.py b/broker/planted.py
new file mode 100644
--- /dev/null
+++ b/broker/planted.py
@@ -0,0 +1 @@
+BUG = 1
"""
OTHER_LINE = """diff --git a/broker/env.py b/broker/env.py
--- a/broker/env.py
+++ b/broker/env.py
@@ -1,1 +1,1 @@
-a line that is not there
+BUG = 1
"""


def patch(folder: Path, head: str, diff: str = NEW_FILE) -> FreshBug:
    file = folder / "01-other.patch"
    file.write_text(head + diff)
    return FreshBug.read(file)


@pytest.fixture(autouse=True)
def git() -> None:
    if shutil.which("git") is None:
        skip_without("git", "as root: apt-get install -y git")


def test_a_bug_is_planted_in_a_copy(tmp_path: Path) -> None:
    bug = patch(tmp_path, "Kind: logs\nWorkload: appends\nBug: It is another.\n")
    assert (bug.kind, bug.workload, bug.text) == ("logs", "appends", "It is another.")
    bug.plant(tmp_path / "code")
    assert (tmp_path / "code/broker/planted.py").read_text() == "BUG = 1\n"


def test_a_patch_without_its_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongPatchError, match="no line `Bug: ...` before the diff"):
        patch(tmp_path, "Kind: logs\nWorkload: appends\n")


def test_a_patch_that_does_not_apply_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongPatchError, match="patch does not apply"):
        patch(tmp_path, "Kind: logs\nWorkload: appends\nBug: b\n", OTHER_LINE).plant(tmp_path / "code")


@pytest.mark.night("a change of the broker may part a patch from its lines: it is carried over afterwards")
@pytest.mark.parametrize("file", sorted(FOLDER.glob("*/*.patch")), ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_each_kept_bug_can_be_planted(file: Path) -> None:
    bug = FreshBug.read(file)
    assert bug.workload in batches.SIMULATED
    subprocess.run(["git", "apply", "--check", "-C1", str(file)], cwd=ROOT, check=True)


def test_what_fails_without_the_bug_as_well_does_not_count(tmp_path: Path) -> None:
    simulate = (sys.executable, "-m", "squall.chaos", "sim", "--swarm", "--out", str(tmp_path))
    found = "1 x anomaly lost-write, first by seed 7"
    assert fresh_bugs._is_sound_without(found, simulate)
    assert not fresh_bugs._is_sound_without(found, (*simulate, "--mutant", "61"))
