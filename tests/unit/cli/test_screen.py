"""Lines that are kept up to date on a terminal, and times in words."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from squall.chaos.screen import in_words, live_line


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (99.4, "99 s"), (100, "2 min"), (7_100, "118 min"), (7_500, "2 h 5 min"), (86_400, "24 h 0 min")],
)
def test_times_to_wait_are_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_a_live_line_is_there_on_a_terminal_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")  # one that can go back: no other has a live line
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    with live_line(console, lambda: "3/10 seeds"):
        console.print("seed 2: failed")
    told = out.getvalue()
    assert "3/10 seeds" in told and "seed 2: failed" in told
    assert told.rindex("\x1b[2K") > told.rindex("3/10 seeds"), "its line is erased"


def test_in_a_pipe_there_is_none() -> None:
    out = io.StringIO()
    with live_line(Console(file=out), lambda: "3/10 seeds"):
        pass
    assert out.getvalue() == ""
