"""`squall test` in a small checkout: what fails, is skipped or breaks is said, and the last line counts."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import mkdtemp

import pytest

from squall.chaos.errors import PreconditionError
from tests.support.gate import costs, results
from tests.support.gate.__main__ import Session
from tests.support.gate.costs import ROOT, Cost

HEAD = "import os\nimport pytest\nfrom pathlib import Path\npytestmark = pytest.mark.gate\n"
PASSES = f"{HEAD}def test_passes(): pass\n"
FAILS = f"{HEAD}def test_fails(): assert 1 == 2, 'not so'\n"
SKIPPED = f"{HEAD}def test_skipped(): pytest.skip('needs jars; get it: fetch them')\n"
ENDS = f"{HEAD}def test_ends_python(): os._exit(7)\n"
FLAKY = f"""{HEAD}
def test_fails_once():
    tried = Path(__file__).with_suffix(".tried")
    again = tried.exists()
    tried.touch()
    assert again
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that `squall test` takes for the checkout."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gate\n")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return tmp_path


def ran(
    checkout: Path, capfd: pytest.CaptureFixture[str], texts: dict[str, str], file: Path | None = None, **options: bool
) -> tuple[int, str]:
    """The exit code of the gate on these files, and all that was printed."""
    for name, text in texts.items():
        path = checkout / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    session = Session(checkout, Path(mkdtemp(dir=checkout)), file, go_on=file is not None)
    asked = {"everything": False, "no_skips": False, "again": False} | options
    return session.run(**asked), capfd.readouterr().out


def test_the_last_line_counts(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    texts = {"unit/test_a.py": PASSES, "live/test_b.py": PASSES, "unit/test_c.py": SKIPPED}
    code, said = ran(checkout, capfd, texts)
    assert code == 0, said
    assert said.endswith("2 passed, 0 failed, 1 skipped\n")
    assert "1 test was skipped: needs jars; get it: fetch them" in said
    code, said = ran(checkout, capfd, texts, no_skips=True)
    assert code == 1, said


def test_a_gate_without_a_test_is_no_success(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = ran(checkout, capfd, {})
    assert code == 1
    assert "no test was run" in said


@pytest.mark.gate
def test_a_failure_is_shown_with_its_trace(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = ran(checkout, capfd, {"unit/test_a.py": PASSES, "live/test_b.py": FAILS})
    assert code == 1
    assert "FAILED tests/live/test_b.py::test_fails: AssertionError: not so" in said
    assert ">   ???" in said or "def test_fails()" in said
    assert said.endswith("1 passed, 1 failed, 0 skipped\n")


@pytest.mark.parametrize(
    "text",
    [
        ENDS,
        ENDS.replace("7", "0"),
        f"import nothing\n{PASSES}",
        f"import os; os._exit(0)\n{PASSES}",
        f"{HEAD}def test_ends_pytest(): pytest.exit('enough', returncode=0)\n",
    ],
    ids=["python ends", "as if all were well", "it cannot be imported", "python ends at once", "pytest ends"],
)
def test_a_lane_that_breaks_is_no_success(checkout: Path, capfd: pytest.CaptureFixture[str], text: str) -> None:
    file = checkout / "results.jsonl"
    code, said = ran(checkout, capfd, {"unit/test_a.py": text, "live/test_b.py": PASSES}, file)
    assert code == 1
    assert "squall: lane cpu 1: pytest ended with exit code" in said
    assert "1 passed, 0 failed" not in said
    assert "passed" not in {each.result for each in results.read(file) if "test_a" in each.test}


def test_a_file_whose_tests_somebody_dropped_is_said(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (checkout / "tests/unit").mkdir(parents=True)
    (checkout / "tests/unit/conftest.py").write_text("def pytest_collection_modifyitems(items): items[:] = []\n")
    code, said = ran(checkout, capfd, {"unit/test_a.py": FAILS, "live/test_b.py": PASSES})
    assert code == 1
    assert "squall: lane cpu 1: no test was collected in tests/unit/test_a.py" in said


def test_a_file_that_is_skipped_whole_is_a_skip(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = f"{HEAD}pytest.skip('needs jars; get it: fetch them', allow_module_level=True)\n{PASSES}"
    code, said = ran(checkout, capfd, {"unit/test_a.py": text, "live/test_b.py": PASSES}, no_skips=True)
    assert code == 1
    assert "--no-skips: 1 test was skipped: needs jars; get it: fetch them" in said


def test_results_that_were_cut_or_are_of_another_commit_are_told(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = checkout / "results.jsonl"
    texts = {"unit/test_a.py": PASSES, "live/test_b.py": PASSES}
    ran(checkout, capfd, texts, file)
    assert results.lost(file) == ""
    first, *_, last, count = file.read_text().splitlines(keepends=True)
    file.write_text(first + last + count)
    assert results.lost(file) == "results.jsonl has results of 1 of 2 tests"
    file.write_text(first.replace('"commit": "', '"commit": "0badc0de') + last[: len(last) // 2])
    code, said = ran(checkout, capfd, texts, file)
    assert code == 0, said
    assert results.lost(file) == ""
    assert "has results of other commits: 0badc0de" in said
    assert said.endswith("2 passed, 0 failed, 0 skipped\n")
    assert len(results.read(file)) == 2


def test_a_file_of_something_else_is_not_written_over(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (checkout / "README.md").write_text("# Read me\n")
    with pytest.raises(PreconditionError, match="holds no results of tests"):
        ran(checkout, capfd, {"unit/test_a.py": PASSES}, checkout / "README.md")
    assert (checkout / "README.md").read_text() == "# Read me\n"


def test_everything_says_which_tests_no_lane_ran(
    checkout: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quiet test of a file that the table does not name."""
    monkeypatch.setattr(Session, "_rules", lambda self: None)
    quiet = f"{HEAD}@pytest.mark.quiet\ndef test_quiet(): pass\n"
    (checkout / "pytest.ini").write_text("[pytest]\nmarkers = gate\n    quiet\n    night\n")
    code, said = ran(checkout, capfd, {"live/test_a.py": quiet, "live/test_b.py": PASSES}, everything=True)
    assert code == 1
    assert "squall: tests/live/test_a.py::test_quiet was not run" in said


def test_a_test_that_passes_alone_is_flaky_and_fails_the_gate(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = checkout / "results.jsonl"
    code, said = ran(checkout, capfd, {"live/test_a.py": FLAKY, "unit/test_b.py": FAILS}, file, again=True)
    assert code == 1
    assert "squall: FLAKY, it passes alone: tests/live/test_a.py::test_fails_once" in said
    assert "squall: fails alone, too: tests/unit/test_b.py::test_fails" in said
    assert said.endswith("0 passed, 2 failed, 0 skipped\n")
    assert {each.test: each.flaky for each in results.read(file)} == {
        "tests/live/test_a.py::test_fails_once": True,
        "tests/unit/test_b.py::test_fails": False,
    }


def test_what_fails_with_all_examples_is_tried_again_with_all_and_a_skip_is_no_pass(
    checkout: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "_rules", lambda self: None)
    (checkout / "pytest.ini").write_text("[pytest]\nmarkers = gate\n    quiet\n    night\n")
    thorough = f"{HEAD}def test_thorough(): assert os.environ.get('SQUALL_FUZZ') != '1'\n"
    skips = FLAKY.replace("    assert again\n", "    assert again\n    pytest.skip('needs jars; get it: fetch them')\n")
    code, said = ran(
        checkout, capfd, {"unit/test_a.py": thorough, "live/test_b.py": skips}, everything=True, again=True
    )
    assert code == 1
    assert "squall: fails alone, too: tests/unit/test_a.py::test_thorough" in said
    assert "squall: fails alone, too: tests/live/test_b.py::test_fails_once" in said


def test_nothing_runs_twice_when_it_goes_on(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = checkout / "results.jsonl"
    once = f"{HEAD}def test_it(): Path(__file__).with_suffix('.ran').touch(exist_ok=False)\n"
    assert ran(checkout, capfd, {"unit/test_a.py": once}, file)[0] == 0
    code, said = ran(checkout, capfd, {"unit/test_a.py": f"{once}def test_new(): pass\n"}, file)
    assert code == 0, said
    assert said.endswith("2 passed, 0 failed, 0 skipped\n")
    assert "commit" in json.loads(file.read_text().splitlines()[0])


def test_costs_are_written_and_stale_ones_mended(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran(checkout, capfd, {"unit/test_a.py": f"{PASSES}def test_new(): pass\n", "live/test_b.py": PASSES})
    old = {"tests/unit/test_a.py::test_passes": Cost(9, 9), "tests/unit/test_gone.py::test_x": Cost(1, 1)}
    costs.write(old, checkout / costs.FILE)
    assert Session(checkout, checkout / "stale").measure(stale=True) == 0
    rows = costs.read(checkout / costs.FILE)
    assert rows.keys() == {
        "tests/unit/test_a.py::test_passes",
        "tests/unit/test_a.py::test_new",
        "tests/live/test_b.py::test_passes",
    }
    assert rows["tests/unit/test_a.py::test_passes"].cpu_s == 9
    broken = checkout / "tests/unit/test_broken.py"
    broken.write_text("def test_a(: pass")
    assert Session(checkout, checkout / "broken").measure(stale=True) == 1
    assert costs.read(checkout / costs.FILE) == rows
    broken.unlink()
    file = checkout / "results.jsonl"
    measured = [results.Result(f"tests/unit/test_a.py::test_{name}", "passed", 7, 8) for name in ("passes", "new")]
    file.write_text("".join(['{"commit": ""}\n', *(f"{each.line()}\n" for each in measured)]))
    costs.write({"tests/unit/test_a.py::test_passes": Cost(9, 9)}, checkout / costs.FILE)
    assert Session(checkout, checkout / "some", file, go_on=True).measure(stale=True) == 0
    rows = costs.read(checkout / costs.FILE)
    assert rows["tests/unit/test_a.py::test_passes"] == Cost(9, 9)
    assert rows["tests/unit/test_a.py::test_new"] == Cost(7, 8)
    assert Session(checkout, checkout / "all", file, go_on=True).measure(stale=False) == 0
    assert costs.read(checkout / costs.FILE)["tests/unit/test_a.py::test_passes"] == Cost(7, 8)
    assert costs.read(checkout / costs.FILE)["tests/unit/test_a.py::test_passes"].cpu_s < 9
