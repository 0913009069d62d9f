"""A program sends with acks=1 although the run says acks=all, and invents some acknowledgements: the story says what it
sent.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from squall.reports.answers import answers_of
from squall.reports.run_files import read_run
from squall.reports.story import stories_of, text_of
from tests.support.squall import ended, start

pytestmark = pytest.mark.night("a whole run of processes, for a program of its own")

EXAMPLES = Path(__file__).parents[3] / "docs/examples"
LIAR = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import my_producer

honest, count = my_producer.send, 0

def send(producer, asked):
    global count
    count += 1
    if count % 10:
        honest(producer, asked)
    else:
        my_producer.say(type="ok", id=asked["id"], partition=asked["partition"], offset=-1)

my_producer.send = send
sys.argv[1:] = ["acks=1", "enable.idempotence=false"]
my_producer.main()
"""
RUN = ("run", "--workload", "command", "--faults", "none", "--time", "4", "--warmup", "1", "--seed", "5")


def test_a_story_names_the_acks_that_were_sent_in_its_first_three_lines(tmp_path: Path) -> None:
    (tmp_path / "liar.py").write_text(LIAR)
    command = ("--command", f"{sys.executable} {tmp_path}/liar.py", "--out", tmp_path / "runs")
    code, said, errors = ended(start(*RUN, *command), 900)
    assert code == 1, said + errors
    files = read_run(tmp_path / "runs/latest")
    story = next(each for each in stories_of(files) if each.problem.name == "lost-write")
    text = text_of(story)
    assert "acks=1 sent" in "\n".join(text.splitlines()[:3])
    (sent,) = files.sent.of_process(0)
    assert (sent.acks, sent.idempotent, sent.compression) == (1, False, "none")
    flat = " ".join(text.split())
    assert f"The flags asked for acks=all; {sent.requests} of {sent.requests} requests had acks=1." in flat
    assert "HW ≥" not in text, "with acks=1 nothing says how far the high watermark is"
    answers = " ".join(each.text for each in answers_of(files, story))
    assert "had A" not in answers and "no producer id, no transactional id, compression none" in answers
