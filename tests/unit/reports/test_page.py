"""The page: one file, the verdict first, whatever state the run directory is in."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from squall.chaos.commands.night_evidence import evidence_of
from squall.reports import figure
from squall.reports.page import render
from tests.support.effort import stride

FILES = (
    "run.json",
    "plan.toml",
    "nemesis.jsonl",
    "verdict.json",
    "metrics.json",
    "series.json",
    "nodes/1/trace.jsonl",
    "history.jsonl",
)
NONSENSE: tuple[Any, ...] = (None, "x", -1, [None, {}], {"a": []})
_VOID = {"meta", "br", "path", "use", "image", "rect"}


class _Balanced(HTMLParser):
    """Tags that were opened and not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in _VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.opened.pop() == tag


def banner(path: Path) -> str:
    """The word in the page's banner."""
    found = re.findall(r'<section class="banner (\w+)".*?<h1>(\w+)</h1>', path.read_text(), re.S)
    assert len(found) == 1 and found[0][0].upper() == found[0][1]
    return str(found[0][0])


@pytest.mark.gate
@pytest.mark.usefixtures("drawn")
def test_a_valid_run_says_so_and_has_every_section(run_dir: Path) -> None:
    page = render(run_dir)
    text = page.read_text()
    assert banner(page) == "valid"
    assert not re.search(r"Undefined|None</|&lt;(p|td|svg)", text)
    for words in (
        "What happened",
        "Faults",
        "Measures",
        "plan.toml",
        "./squall run --plan",
        "broker 2",
        "1 of 1",
        "1,234",
    ):
        assert words in text
    assert 'aria-label="What this page could not read"' not in text
    balanced = _Balanced()
    balanced.feed(text)
    assert balanced.opened == []


def test_the_page_of_a_run_says_what_its_night_forbids(run_dir: Path, tmp_path: Path) -> None:
    run = tmp_path / "n1/runs/r1"
    run.parent.mkdir(parents=True)
    run_dir.rename(run)
    assert banner(render(run)) == "valid"
    line = {"item": "a", "attempt": 1, "verdict": "valid", "exit": 0, "began": "2026-07-04T01:00:00+00:00",
            "seconds": 1.0, "why": "", "run": "runs/r1", "unexpected": ["lost-write", "unseen"]}  # fmt: skip
    (tmp_path / "n1/results.jsonl").write_text(json.dumps(line) + "\n")
    evidence_of(run, ["lost-write", "unseen"])
    text = (run / "report.html").read_text()
    assert "This run's night forbids lost-write, unseen.</strong> By its configuration alone, the run is VALID." in text
    assert 'class="banner invalid"' in text and "<h1>INVALID in its night</h1>" in text


@pytest.mark.usefixtures("drawn")
def test_the_page_needs_nothing_from_elsewhere(run_dir: Path) -> None:
    text = render(run_dir).read_text()
    assert not re.search(r"<script[^>]*\bsrc\b|<link\b|@import", text)
    loaded = re.findall(r'src="([^"]*)"|url\(([^)]*)\)|xlink:href="([^"]*)"', text)
    assert loaded and all("".join(each).startswith(("#", "data:")) for each in loaded)
    # Raw files lie beside the page: a reader follows a link, and nothing is loaded.
    links = re.findall(r'<a\b[^>]* href="([^"]*)"', text)
    assert all(link.startswith("#") or (run_dir / link).is_file() for link in links), links
    assert {"plan.toml", "nodes/2/trace.jsonl"} < set(links)


@pytest.mark.parametrize("word", ["valid", "invalid", "unknown"])
def test_the_banner_is_the_verdicts_word(run_dir: Path, verdicts: dict[str, Any], word: str) -> None:
    (run_dir / "verdict.json").write_text(json.dumps(verdicts[word]))
    assert banner(render(run_dir)) == word


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_told_and_only_a_missing_verdict_changes_the_word(run_dir: Path, name: str) -> None:
    (run_dir / name).unlink()
    page = render(run_dir)
    assert name in page.read_text().split("<h2")[0]
    assert banner(page) == ("unknown" if name == "verdict.json" else "valid")


@pytest.mark.parametrize("name", [*FILES, "violations.json"])
@pytest.mark.parametrize("depth", [1_100, 100_000])
def test_a_file_that_is_nested_deep_never_takes_the_page_down(run_dir: Path, name: str, depth: int) -> None:
    (run_dir / name).write_bytes(b'{"deep":' + b"[" * depth + b"]" * depth + b"}\n")
    assert banner(render(run_dir)) in ("valid", "unknown")


@pytest.mark.parametrize("name", FILES[:-1])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
def test_a_cut_file_never_takes_the_page_down(run_dir: Path, name: str, share: float) -> None:
    whole = (run_dir / name).read_bytes()
    (run_dir / name).write_bytes(whole[: int(len(whole) * share)])
    page = render(run_dir)
    assert banner(page) == ("unknown" if name == "verdict.json" else "valid")


@pytest.mark.parametrize("name", [*FILES[:1], *FILES[2:-1]])
def test_values_of_other_types_never_take_the_page_down(run_dir: Path, name: str, verdicts: dict[str, Any]) -> None:
    (run_dir / "verdict.json").write_text(json.dumps(verdicts["invalid"]))
    whole = json.loads((run_dir / name).read_text().splitlines()[-1])
    for place, wrong in list(product(places(whole), NONSENSE))[:: stride(11)]:
        (run_dir / name).write_text(json.dumps(replaced(whole, place, wrong)) + "\n")
        assert banner(render(run_dir)) != "valid", (place, wrong)


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a JSON value, as the keys that lead to it."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, each in inner for place in ((*here, key), *places(each, (*here, key)))]


def replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """A copy of a JSON value with another one at `place`."""
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = replaced(value[place[0]], place[1:], new)
    return copy


def test_a_figure_that_cannot_be_drawn_is_told_in_its_place(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_drawing(*_: Any) -> None:
        raise ValueError("not drawn")

    monkeypatch.setattr(figure, "draw", no_drawing)
    text = render(run_dir).read_text()
    assert "There is no timeline. Drawing failed: ValueError: not drawn." in text


def test_a_verdict_about_another_run_is_no_verdict(run_dir: Path, verdicts: dict[str, Any]) -> None:
    (run_dir / "verdict.json").write_text(json.dumps({**verdicts["valid"], "run": "r2"}))
    page = render(run_dir)
    assert banner(page) == "unknown"
    assert "about another run, r2" in page.read_text()


def test_what_a_file_says_is_text_and_never_markup(run_dir: Path, verdicts: dict[str, Any]) -> None:
    evil = "<img src=x onerror=alert(1)>"
    (run_dir / "verdict.json").write_text(json.dumps({**verdicts["unknown"], "reasons": [evil]}))
    lines = (run_dir / "nemesis.jsonl").read_text().replace('"kill"', json.dumps(evil))
    (run_dir / "nemesis.jsonl").write_text(lines)
    text = render(run_dir).read_text()
    assert "<img" not in text
    assert "&lt;img" in text


def test_a_lost_writes_story_tells_the_truncation_that_took_it(run_dir: Path, verdicts: dict[str, Any]) -> None:
    (run_dir / "verdict.json").write_text(json.dumps(verdicts["invalid"]))
    text = render(run_dir).read_text()
    assert "Broker 1 truncates appends-0-0 from 90 to 50, which covers 60: epoch 0 ends at 50." in text
    assert "Epoch 1: broker 2 leads, from offset 50 (in sync: 2,3). In the end offset 60 is of this epoch." in text
    assert "record 7 of process 3" in text


@pytest.mark.usefixtures("drawn")
def test_a_page_is_rendered_the_same_from_the_same_directory(run_dir: Path) -> None:
    assert render(run_dir).read_bytes() == render(run_dir).read_bytes()
