"""`squall test --again`: which failures have a second try, what is told of it, and that it excuses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos.commands import test as testing

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


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tests of its own, which `squall test` takes for the checkout."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:randomly\n")
    monkeypatch.setattr(testing, "ROOT", tmp_path)
    return tmp_path


def ran(checkout: Path, files: dict[str, str], capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code of `squall test` on these files, and all that was printed."""
    for name, text in files.items():
        file = checkout / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    done = CliRunner().invoke(testing.command, [*words, "tests"], standalone_mode=False)
    return done.return_value, done.output + capfd.readouterr().out


@pytest.mark.parametrize("lanes", [[], ["--numprocesses", "2"]], ids=["one_lane", "two_lanes"])
def test_what_passes_the_second_time_is_told_and_excused_nothing(
    checkout: Path, capfd: pytest.CaptureFixture[str], lanes: list[str]
) -> None:
    files = {"live/test_a.py": FIRST_TIME_ONLY, "unit/test_b.py": PASSES, "unit/test_c.py": ALWAYS}
    code, said = ran(checkout, files, capfd, "--again", *lanes)
    assert code == 1, said
    assert "squall: FLAKY, it passes alone: tests/live/test_a.py::test_it" in said
    assert "squall: fails alone, too: tests/unit/test_c.py::test_it" in said
    assert said.count("squall: once more, alone") == 2


def test_nobody_gets_a_second_try_who_did_not_ask(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = ran(checkout, {"live/test_a.py": FIRST_TIME_ONLY}, capfd)
    assert (code, "once more" in said) == (1, False), said


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({f"live/test_{name}.py": FIRST_TIME_ONLY for name in "abcd"}, 1),
        ({"live/test_a.py": "import nothing_of_that_name\n"}, 2),
        ({"live/test_a.py": PASSES}, 0),
    ],
    ids=["four failed", "it cannot be read", "none failed"],
)
def test_what_has_no_second_try(
    checkout: Path, capfd: pytest.CaptureFixture[str], files: dict[str, str], wanted: int
) -> None:
    code, said = ran(checkout, files, capfd, "--again")
    assert (code, "once more" in said) == (wanted, False), said
