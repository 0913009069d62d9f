"""Golden files of the report on duplicated and lost outputs: a witness, the lines of a history, and after "----" the
report.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from squall.reports.outputs import sentences_of
from squall.reports.problems import StorySubject
from squall.reports.run_files import RunFiles

RULER = "----\n"
SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


def told(script: str, folder: Path) -> str:
    """Return the report's sentences, one a line. Its seconds count from 0 ns."""
    about, *lines = script.strip().splitlines()
    witness = json.loads(about)
    (folder / "history.jsonl").write_text("".join(f"{line}\n" for line in lines if not line.startswith("#")))
    files = RunFiles(folder, origin_ns=0.0)
    problem = StorySubject(
        witness["name"], "", "in", 0, tuple(witness["values"]), process=witness["proc"], other=witness["other"]
    )
    return "".join(f"{sentence}\n" for sentence in sentences_of(files, problem))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_an_output_is_told_of_as_before(path: Path, update: bool, tmp_path: Path) -> None:
    said = path.read_text()
    script = said.split(RULER)[0]
    now = f"{script}{RULER}{told(script, tmp_path)}"
    if update:
        path.write_text(now)
    else:
        assert now == said


@pytest.mark.parametrize("lines", ["", '{"e": "p", "p": 1}\n', "[1]\n"])
def test_a_history_that_does_not_tell_is_no_error(lines: str, tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text(lines)
    assert sentences_of(RunFiles(tmp_path), StorySubject("eos-duplicate", "", "in", 0, (7, 8))) == []
