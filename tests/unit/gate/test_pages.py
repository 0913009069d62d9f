"""Checks how commands are read from a page, and when their output is what the page shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.pages import Command, commands, missing, played

PAGE = """\
# A page

    ./squall sim --seed 1 \\
        --acks 1    # exit code 1

```
INVALID  20260101T000000-seed1
...
3 records
```

```toml
a = 1
```

1. In a list:

       ./squall explain runs/latest

<!-- not played: needs root -->
```
$ ./squall run
VALID
repeat:
./squall run --plan it
$ ./squall cluster up    # until Ctrl-C
```
"""


def test_commands_are_read_in_order_with_codes_output_and_exemptions() -> None:
    sim, explain, run, cluster = commands(PAGE, "a.md")
    assert (sim.place, sim.text, sim.code) == ("a.md:3", "./squall sim --seed 1 --acks 1    # exit code 1", 1)
    assert sim.shown == ("INVALID  20260101T000000-seed1", "...", "3 records")
    assert (explain.text, explain.shown, explain.code) == ("./squall explain runs/latest", (), 0)
    assert (run.text, run.not_played, run.until_ctrl_c) == ("./squall run", "needs root", False)
    assert cluster.until_ctrl_c


@pytest.mark.parametrize("line", ["SQUALL_FUZZ=1 ./squall test tests/sim", "npm install x", ".venv/bin/tool -c docs"])
def test_a_program_of_the_page_is_a_command(line: str) -> None:
    (found,) = commands(f"```\n{line}\n```\n")
    assert found.text == line


@pytest.mark.parametrize(
    ("text", "shown", "printed", "lacks"),
    [
        ("./squall sim", ("a 1", "b  2"), "a 1\nmore\nb\n   2\n", ""),
        ("./squall sim", ("b 2", "a 1"), "a 1\nb 2\n", "a 1"),
        ("./squall sim", ("lost 3 of 9",), "lost 4 of 9", "lost 3 of 9"),
        ("./squall run", ("lost 3 of 9,999 (3.5 %)",), "lost 41 of 22 (1 %)", ""),
        ("./squall sim", ("runs/20260101T000000-seed1",), "runs/20261129T171826-seed1", ""),
        ("./squall sim", ("runs/20260101T000000-seed1",), "runs/20261129T171826-seed2", "runs/20260101T000000-seed1"),
        ("./squall sim", ("lost ... of it ...", "end"), "lost much of it, and\nthe end", ""),
        ("./squall sim", ("VALID",), "\x1b[32mVALID\x1b[0m", ""),
    ],
)
def test_what_is_shown_is_printed(text: str, shown: tuple[str, ...], printed: str, lacks: str) -> None:
    assert missing(Command("a.md:1", text, shown), printed) == lacks


def test_what_goes_otherwise_than_the_page_says_is_told(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    program = clone / "squall"
    program.write_text('#!/bin/sh\necho "$1"\n[ "$1" != up ] || exec sleep 1000\nexit "${2:-0}"\n')
    program.chmod(0o755)
    page = "```\n./squall fine\nfine\n./squall bad 1\n./squall bad 1  # exit code 1\n./squall other\nword\n```\n"
    wrong = played(commands(page, "a.md"), clone, os.environ)
    assert [each.splitlines()[:2] for each in wrong] == [
        ["a.md:4: ./squall bad 1", "  ended with 1:"],
        ["a.md:6: ./squall other", "  did not print 'word':"],
    ]
    forever = "    ./squall up  # until Ctrl-C, exit code 130\n"
    assert "ended with -2" in played(commands(forever, "a.md"), clone, os.environ)[0], "by the signal"
