"""`accepted.toml`: what it may say, and each mistake in it with its line."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from squall.chaos import cli
from squall.chaos.nightly.accepted import FILE, AcceptedFileError, read_accepted

ENTRY = """
[[accepted]]
fingerprint = "0123456789ab"
owner = "alice"
until = 2026-12-31
why = "KAFKA-17754"
"""


def test_an_entry_counts_until_its_day_is_over(tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_text(ENTRY)
    (entry,) = read_accepted(file).values()
    assert (entry.fingerprint, entry.owner, entry.why) == ("0123456789ab", "alice", "KAFKA-17754")
    assert [entry.expired(date(2026, 12, day)) for day in (30, 31)] == [False, False]
    assert entry.expired(date(2027, 1, 1))
    file.write_text("")
    assert read_accepted(file) == {}


def test_an_expired_entry_is_told_whenever_a_night_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, words = tmp_path / "mine.toml", ["nightly", "--list", "--vary", "runtime=sim", "--out", str(tmp_path / "n")]
    file.write_text(ENTRY.replace("2026", "2020"))
    assert cli.run([*words, "--accepted", str(file)]) == 0
    told = "finding 0123456789ab was accepted by alice until 2020-12-31: it fails nights again"
    assert told in capsys.readouterr().err
    file.write_text(ENTRY.replace("2026", "9999"))
    assert cli.run([*words, "--accepted", str(file)]) == 0
    assert "accepted by" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ('"0123456789ab"', '"0123"', "line 3: fingerprint: 12 hexadecimal digits are needed"),
        ('"alice"', '" "', "line 4: owner: it must not be empty"),
        ("2026-12-31", '"2026-12-31"', "line 5: until: a date is needed, without quotes: 2026-12-31"),
        ("2026-12-31", "2026-13-31", "not TOML"),
        ("until = 2026-12-31", "", "line 2: until: is missing"),
        ("why", "reason", "line 6: reason: there are: fingerprint, owner, until, why"),
        ("[[accepted]]", "[[accept]]", "accept: there is only [[accepted]]"),
        ("[[accepted]]", f"{ENTRY}\n[[accepted]]", "line 10: fingerprint: 0123456789ab is accepted twice"),
    ],
)
def test_a_mistake_is_said_with_its_line(was: str, now: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_text(ENTRY.replace(was, now))
    with pytest.raises(AcceptedFileError, match="^") as wrong:
        read_accepted(file)
    assert f"{file}: {said}" in str(wrong.value)


def test_a_night_with_a_mistake_in_the_file_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["nightly", "--list", "--vary", "runtime=sim", "--accepted", "none.toml"]) == 3
    assert "none.toml: cannot be read: No such file or directory" in capsys.readouterr().err
    Path(FILE).write_text("[[accepted]]\n")
    assert cli.run(["nightly", "--list", "--vary", "runtime=sim"]) == 3
    assert f"{FILE}: line 1: owner: is missing" in capsys.readouterr().err
