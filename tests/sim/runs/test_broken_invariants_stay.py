"""An invariant that the simulator saw broken stays broken, however often the run is judged again, and whatever happens
to violations.json.
"""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import trio

from squall.broker.net.server import Server
from squall.chaos.commands.night_evidence import evidence_of
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.chaos.runtimes.sim.invariants.violation import InvariantViolation
from squall.chaos.runtimes.sim.invariants.watch import InvariantChecker
from squall.checkers import simulated
from squall.checkers.history import conversion, seal
from squall.checkers.nightly.night import read_night
from squall.checkers.nightly.runs import facts_of_night
from squall.checkers.verdict import give_up, judge_run
from squall.reports import checks
from squall.reports.junit import write_junit
from squall.reports.run_files import read_run
from squall.reports.run_list import one, to_remove
from tests.sim.runs.test_simulation import small
from tests.support.nightly.files import NightFiles

pytestmark = pytest.mark.gate

NAME = "made-up"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a complete run in which an invariant broke, and whose history has no anomaly."""
    looked = InvariantChecker.look

    def look(self: InvariantChecker, *dirty_nodes: Any) -> None:
        looked(self, *dirty_nodes)
        if self._world.kernel.now > 2 and not self._world.violations:
            self._world.violations.append(
                InvariantViolation(NAME, "it is broken", 2.0, 1, "appends-0", 0, {"epoch": 3})
            )

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(InvariantChecker, "look", look)
        result = simulate(small(), stop_at_first=False)
    return save(result, tmp_path_factory.mktemp("runs"), "again", latest=False).path


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a valid run of the same plan."""
    return save(simulate(small()), tmp_path_factory.mktemp("sound"), "again", latest=False).path


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / saved.name))


def change_info(run: Path, **changes: Any) -> None:
    """Change fields of run.json about the simulation."""
    info = json.loads((run / seal.RUN).read_text())
    info[simulated.KEY].update(changes)
    (run / seal.RUN).write_text(json.dumps(info))


def test_judged_again_it_is_invalid_by_its_invariant_wherever_that_is_shown(run: Path) -> None:
    verdict = judge_run(run)
    assert (verdict.verdict, len(verdict.reasons)) == ("invalid", 1)
    assert f"s {NAME} appends-0-0 node 1: it is broken" in verdict.reasons[0]
    files = read_run(run)
    assert checks.word_of(files) == "invalid"
    assert NAME in checks.sentence(files)
    cases = {each.get("name"): each for each in ElementTree.parse(write_junit(run)).iter("testcase")}
    assert cases[f"invariant {NAME}"].find("failure") is not None
    assert cases["verdict"].find("failure") is not None
    assert any(NAME in step.title for step in evidence_of(run).steps)
    assert one(run).verdict == "invalid"
    assert to_remove([one(run)], datetime.now(UTC), 0, None) == []


def test_a_judging_that_stops_does_not_take_it_back(run: Path) -> None:
    assert give_up(run, "judging stopped").verdict == "invalid"


@pytest.mark.parametrize("run_json", ["untouched", "says nothing", "never said it"])
@pytest.mark.parametrize("becomes", ["gone", "another", "none", "cut"])
def test_violations_that_are_deleted_or_edited_are_missed_and_the_run_stays_invalid(
    run: Path, becomes: str, run_json: str
) -> None:
    path = run / simulated.FILE
    text = path.read_text()
    path.write_text({"another": text.replace("it is broken", "it is fine"), "none": "[]"}.get(becomes, text[:-9]))
    if becomes == "gone":
        path.unlink()
    if run_json == "says nothing":
        change_info(run, failure=None, told=[], violations=seal.stamp(path))
    elif run_json == "never said it":
        (run / seal.RUN).unlink()
    verdict = judge_run(run)
    assert verdict.verdict == "invalid"
    missed = [each for each in verdict.notes if simulated.FILE in each]
    said = {"gone": simulated.GONE, "cut": f"{simulated.FILE} cannot be read"}.get(becomes, simulated.CHANGED)
    assert len(missed) == 1
    assert missed[0].startswith(said)


def test_the_page_says_that_violations_are_gone_and_names_the_invariant_all_the_same(run: Path) -> None:
    (run / simulated.FILE).unlink()
    files = read_run(run)
    assert f"{simulated.GONE}." in files.problems
    assert checks.checks_of(files)[0].invariant == NAME


def test_violations_of_another_run_prove_nothing(saved: Path, sound: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(sound, tmp_path / sound.name))
    assert judge_run(run).verdict == "valid"
    shutil.copy(saved / simulated.FILE, run)
    verdict = judge_run(run)
    assert (verdict.verdict, verdict.reasons) == ("unknown", (simulated.CHANGED,))
    info = json.loads((run / seal.RUN).read_text())
    (run / seal.RUN).write_text(json.dumps({name: value for name, value in info.items() if name != simulated.KEY}))
    assert judge_run(run).reasons == (simulated.NOT_OURS,)


def test_a_run_of_an_earlier_version_which_sealed_no_violations_is_invalid_too(run: Path) -> None:
    info = json.loads((run / seal.RUN).read_text())
    del info[simulated.KEY][simulated.STAMP]
    (run / seal.RUN).write_text(json.dumps(info))
    lines = (run / seal.FILE).read_bytes().splitlines(keepends=True)
    last = json.loads(lines[-1])
    assert last["seals"].pop(simulated.FILE)
    (run / seal.FILE).write_bytes(b"".join(lines[:-1]) + json.dumps(last, separators=(",", ":")).encode() + b"\n")
    conversion.convert(run)
    verdict = judge_run(run)
    assert (verdict.verdict, [each for each in verdict.notes if simulated.FILE in each]) == ("invalid", [])


def test_a_verdict_of_an_earlier_version_that_passed_over_it_is_none(run: Path, tmp_path: Path) -> None:
    old = {**json.loads((run / "verdict.json").read_text()), "verdict": "valid", "reasons": []}
    (run / "verdict.json").write_text(json.dumps(old))
    files = read_run(run)
    assert checks.word_of(files) == "unknown"
    assert checks.reasons_of(files)[0].startswith("the verdict passed over what the simulator saw: ")
    assert one(run).verdict == "unknown"
    assert to_remove([one(run)], datetime.now(UTC), 0, None) == []
    night = NightFiles(tmp_path / "n1")
    of_the_night = night.add("one", "valid", judged={**old, seal.JUDGED: None})
    shutil.copy(run / seal.RUN, of_the_night)
    (facts,) = facts_of_night(read_night(night.write()))
    assert facts.verdict == "unknown"
    assert "passed over" in facts.trouble


def test_a_crash_stays_a_crash_whoever_judges_the_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = Server.settle

    def broken(self: Server) -> None:
        assert trio.current_time() < 3, "offset 3 is above the end"
        settle(self)

    monkeypatch.setattr(Server, "settle", broken)
    run = save(simulate(small()), tmp_path, "again", latest=False).path
    crashed = "broker 1 ended by itself: AssertionError: offset 3 is above the end"
    verdict = judge_run(run)
    assert (verdict.verdict, crashed in verdict.reasons[0]) == ("invalid", True)
    (run / "verdict.json").unlink()
    assert judge_run(run).verdict == "invalid"
    change_info(run, failure=None, told=[])
    assert judge_run(run).verdict == "unknown", "run.json still has the broker's end"
