"""The simulator takes the place of trio's loop, so it wants one version of trio, which is the locked one."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.errors import PreconditionError
from squall.chaos.runtimes.sim.run_loop import ANY_TRIO, TRIO, check_trio

ROOT = Path(__file__).resolve().parents[3]


def test_the_locked_version_is_the_one_that_it_wants() -> None:
    assert f"\ntrio=={TRIO} " in (ROOT / "requirements.txt").read_text()
    check_trio(TRIO)


def test_another_version_is_refused_with_what_gets_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ANY_TRIO, raising=False)
    with pytest.raises(PreconditionError, match=rf"0\.36\.1 is installed.*pip install trio=={TRIO}.*{ANY_TRIO}=1"):
        check_trio("0.36.1")
    monkeypatch.setenv(ANY_TRIO, "1")
    check_trio("0.36.1")
