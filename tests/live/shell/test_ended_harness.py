"""`kill -9` of the harness: there is no verdict, `squall verify` can judge the recorded part, and the next run ends
what is left.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shown.kills import FAULT, kills_of
from tests.shown.playing import play
from tests.shown.row import JUDGING

pytestmark = pytest.mark.night("whole runs; the gate has one")


@pytest.mark.parametrize("moment", [FAULT, JUDGING])
def test_a_run_whose_harness_was_killed_leaves_nothing_and_is_never_invalid(moment: str, tmp_path: Path) -> None:
    (case,) = [each for each in kills_of("harness", 5, 1) if each.moment == moment]
    row = play(case, tmp_path, "")
    assert row.wrong == []
    assert row.exit_code == -9
    assert row.judged_again in ("unknown", *(["valid"] if moment == JUDGING else []))
