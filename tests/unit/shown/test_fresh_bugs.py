"""Fresh bugs: the head of a patch, and the copy of the checkout in which it is planted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.shown.fresh_bugs import FreshBug, WrongPatchError
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
