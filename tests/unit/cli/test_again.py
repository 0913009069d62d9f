"""`squall test --again`: which failures have a second try, and that it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos.commands import test as testing

ROOT = Path(__file__).resolve().parents[3]
FIRST_TIME_ONLY = """
from pathlib import Path

def test_it():
    tried = Path(__file__).with_suffix(".tried")
    again = tried.exists()
    tried.touch()
    assert again
"""
ALWAYS = "def test_it(): assert False\n"
PASSES = "def test_it(): pass\n"
SKIPPED = "import pytest\n\ndef test_it(): pytest.skip('needs what is not here; get it: somewhere')\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tests of its own, which `squall test` takes for the checkout."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p tests.support.lacks -p no:randomly\n")
    monkeypatch.setattr(testing, "ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def ran(checkout: Path, files: dict[str, str], capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code of `squall test` on these files, and all that was printed."""
    for name, text in files.items():
        file = checkout / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    done = CliRunner().invoke(testing.command, [*words, "tests"], standalone_mode=False)
    return done.return_value, done.output + capfd.readouterr().out


FLAKY = "FLAKY: it failed above and passed when it was run again alone: tests/live/test_a.py::test_it"


@pytest.mark.parametrize("lanes", [[], ["--numprocesses", "2"]], ids=["one_lane", "two_lanes"])
def test_what_passes_the_second_time_is_told(
    checkout: Path, capfd: pytest.CaptureFixture[str], lanes: list[str]
) -> None:
    files = {"live/test_a.py": FIRST_TIME_ONLY, "unit/test_b.py": PASSES}
    code, said = ran(checkout, files, capfd, "--all", "--again", *lanes)
    assert (code, FLAKY in said) == (0, True), said
    assert "once more, alone: tests/live/test_a.py::test_it" in said


def test_nobody_gets_a_second_try_who_did_not_ask(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = ran(checkout, {"live/test_a.py": FIRST_TIME_ONLY}, capfd, "--all")
    assert (code, "once more" in said) == (1, False), said


@pytest.mark.parametrize(
    "files",
    [
        {"unit/test_a.py": FIRST_TIME_ONLY},
        {"live/test_a.py": FIRST_TIME_ONLY, "sim/test_b.py": FIRST_TIME_ONLY},
        {f"live/test_{name}.py": FIRST_TIME_ONLY for name in "abcd"},
        {"live/test_a.py": FIRST_TIME_ONLY, "live/test_b.py": SKIPPED},
        {"live/test_a.py": "import nothing_of_that_name\n"},
    ],
    ids=["a unit test", "one of them a simulation", "four of them", "one was skipped", "it cannot be read"],
)
def test_what_has_no_second_try(checkout: Path, capfd: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    code, said = ran(checkout, files, capfd, "--all", "--again")
    assert code != 0, said
    assert "once more" not in said


def test_what_fails_twice_fails(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = ran(checkout, {"live/test_a.py": FIRST_TIME_ONLY, "live/test_b.py": ALWAYS}, capfd, "--all", "--again")
    assert (code, "FLAKY" in said, "once more" in said) == (1, False, True), said


def test_what_was_skipped_is_no_failure_without_all(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = {"live/test_a.py": FIRST_TIME_ONLY, "live/test_b.py": SKIPPED}
    code, said = ran(checkout, files, capfd, "--again")
    assert (code, FLAKY in said) == (0, True), said
