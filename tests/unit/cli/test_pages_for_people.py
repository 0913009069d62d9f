"""Our pages: their commands exist with all their options, and what they quote is there."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from squall.chaos import cli
from squall.chaos.nightly.directory import NIGHTS
from squall.chaos.nightly.matrix import seconds
from squall.checkers.nightly import store
from squall.checkers.verdict import UNKNOWN
from tests.night.__main__ import name_of as night_name
from tests.night.__main__ import parser as night_parser
from tests.night.parts import PARTS
from tests.night.record import Folder
from tests.support.pages import commands, pages

ROOT = Path(__file__).resolve().parents[3]
NIGHT = re.compile(r"squall test --night([^>|\n]*)")
CALLED = re.compile(r"(?:\./)?squall (.*)")


def calls(page: str) -> list[list[str]]:
    """The words of every call of Squall in a page's code blocks."""
    typed = (CALLED.fullmatch(each.text) for each in commands((ROOT / page).read_text()))
    return [shlex.split(found[1], comments=True) for found in typed if found]


def unknown_options(words: list[str]) -> list[str]:
    """Options of a call that its command does not have. `squall test` passes options on."""
    found: click.Command | None = cli.squall
    while isinstance(found, click.Group) and not words[0].startswith("-"):
        found = found.get_command(click.Context(found), words[0])
        words = words[1:]
    assert found is not None
    if found.context_settings.get("ignore_unknown_options"):
        return []
    known = {name for option in found.params for name in (*option.opts, *option.secondary_opts)}
    return [word for word in words if word.startswith("-") and word not in known]


@pytest.mark.parametrize("page", pages())
def test_the_commands_of_a_page_exist_with_all_their_options(page: str) -> None:
    assert [(words, strange) for words in calls(page) if (strange := unknown_options(words))] == []
    if page in ("README.md", "docs/tutorial.md", "docs/ci.md", "docs/workloads/command.md"):
        assert calls(page)


@pytest.mark.parametrize(("page", "example"), [("tutorial", "incident"), ("run", "zombie")])
def test_a_plan_on_a_page_is_that_of_the_example(page: str, example: str) -> None:
    shown = tomllib.loads((ROOT / f"docs/{page}.md").read_text().partition("```toml\n")[2].partition("```")[0])
    kept = tomllib.loads((ROOT / f"docs/examples/{example}.toml").read_text())
    assert {name: kept[name] for name in shown} == shown


def test_the_workflow_of_tests_calls_what_there_is_and_names_no_registry() -> None:
    text = (ROOT / ".github/workflows/nightly.yml").read_text()
    steps = yaml.safe_load(text)["jobs"]["nightly"]["steps"]
    ran = " ".join(each["run"] for each in steps if "run" in each)
    assert re.findall(r"\./squall (\w+)", ran) == ["setup", "doctor", "test"]
    (night,) = NIGHT.findall(ran)
    for how in re.findall(r"how=(--\w+)", ran):
        assert night_parser(PARTS).parse_args(shlex.split(night.replace("$how", how)))
    assert "://" not in text
    kept = " ".join(each["with"]["path"] for each in steps if "upload-artifact" in each.get("uses", ""))
    for name in ("report", "allure", "junit.xml", "runs"):
        assert f"nights/*/{name}" in kept


def test_the_workflow_of_tests_keeps_all_that_a_night_goes_on_with_until_it_has_ended() -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())["jobs"]["nightly"]["steps"]
    restored, saved = (
        each["with"]["path"].split() for each in steps if re.match("actions/cache/(restore|save)", each.get("uses", ""))
    )
    assert restored == saved
    folder = Folder(Path("nights/tests-tonight"))
    matrix = folder.matrix(night_name("20260704T011700", folder.path))
    for path in (folder.path, matrix, Path("nights") / store.FOLDER):
        assert any(path.match(pattern) for pattern in saved), path
    *_, removed, save = [each.get("run") or each["uses"] for each in steps]
    assert "actions/cache/save" in save
    assert removed.split("rm -rf ")[1].split() == [each for each in saved if not each.endswith(store.FOLDER)]


def test_the_workflow_of_a_matrix_plays_a_night_within_its_job_and_keeps_what_it_knows() -> None:
    text = (ROOT / "docs/examples/nightly.yml").read_text()
    job = yaml.safe_load(text)["jobs"]["nightly"]
    assert "://" not in text
    ran = "\n".join(each["run"] for each in job["steps"] if "run" in each)
    assert re.findall(r"squall/squall (\w+)", ran) == ["setup", "doctor", "nightly"]
    (words,) = re.findall(r"squall (nightly .*)", ran)
    assert unknown_options(shlex.split(words)) == []
    assert seconds(words.split("--budget ")[1].split()[0]) < job["timeout-minutes"] * 60
    restored, saved = (
        each["with"] for each in job["steps"] if re.match("actions/cache/(restore|save)", each.get("uses", ""))
    )
    assert (restored["path"], restored["key"]) == (saved["path"], saved["key"])
    assert restored["path"] == str(NIGHTS / store.FOLDER)


@pytest.mark.parametrize("name", ["squall-nightly.service", "crontab"])
def test_schedules_call_a_night_with_options_that_it_has(name: str) -> None:
    (words,) = re.findall(r"/squall/squall (nightly [^>\n]*)", (ROOT / "docs/examples/schedule" / name).read_text())
    assert unknown_options(shlex.split(words)) == []
    assert "--fail-on new" in words and "--metrics" in words


@pytest.mark.parametrize(
    ("code", "said"), [(0, ""), (1, "red\n"), ("locked", "The last night still runs: no new one was begun.\n")]
)
def test_the_line_of_the_crontab_prints_only_what_somebody_must_know(
    code: int | str, said: str, tmp_path: Path
) -> None:
    *_, line = (ROOT / "docs/examples/schedule/crontab").read_text().splitlines()
    squall = tmp_path / "squall"
    squall.write_text(f"#!/bin/sh\necho red\nexit {code}\n")
    squall.chmod(0o755)
    command = line.split("  ", 1)[1].replace("/srv/squall/squall", str(squall)).replace("/srv/nights", str(tmp_path))
    (tmp_path / "nights").mkdir()
    (tmp_path / "nights/last.log").write_text("of the night that runs\n")
    with (tmp_path / "nights/lock").open("w") as lock:
        if code == "locked":
            fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (said, "")
    assert (tmp_path / "nights/last.log").read_text() == ("of the night that runs\n" if code == "locked" else "red\n")


def test_the_crontab_removes_old_nights_and_keeps_the_store(tmp_path: Path) -> None:
    (line,) = [each for each in (ROOT / "docs/examples/schedule/crontab").read_text().splitlines() if " find " in each]
    command = line.split("  ", 1)[1].replace("/srv/nights", str(tmp_path))
    assert command.split("&& ")[1] in (ROOT / "docs/ci.md").read_text()
    old, young, kept = (tmp_path / "nights" / name for name in ("20260704T010000", "20260904T010000", "store"))
    for each in (old, young, kept):
        (each / "runs").mkdir(parents=True)
    for each in (old, kept):
        os.utime(each, (0, 0))
    subprocess.run(["sh", "-c", command], check=True)
    assert [each.exists() for each in (old, young, kept)] == [False, True, True]


def test_the_page_of_unknown_quotes_what_verdicts_say() -> None:
    said = "".join((ROOT / "checkers" / name).read_text() for name in ("coverage.py", "verdict.py"))
    page = (ROOT / "docs/unknown.md").read_text()
    for words in ("the checks did not run to their end", "a loss was expected, and none was found"):
        assert words in said
        assert words in page
    assert f"`{UNKNOWN}`" in page
