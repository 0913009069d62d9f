"""Golden scripts of the stories that reports tell of anomalies. The format: `tests/support/histories/story_script.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.histories.story_script import run_script

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_story_is_told_as_before(path: Path, update: bool) -> None:
    said = path.read_text()
    now = run_script(said)
    if update:
        path.write_text(now)
    else:
        assert now == said
