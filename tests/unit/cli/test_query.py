"""`squall query` without a run: the page of its views, and a machine that lacks DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos import cli
from squall.chaos.toolchain import extras
from squall.reports.query_views import VIEWS

PAGE = Path(__file__).resolve().parents[3] / "docs/query.md"
BEGIN, END = "<!-- written by pytest tests/unit/cli/test_query.py --update -->\n", "<!-- end -->\n"


def test_the_page_has_every_view_and_column(update: bool) -> None:
    text = ""
    for view in VIEWS:
        rows = "".join(f"| `{name}` | {about} |\n" for name, _, about in view.columns)
        text += f"\n## {view.name}\n\n{view.about}\n\n| column | |\n|---|---|\n{rows}"
    head, _, rest = PAGE.read_text().partition(BEGIN)
    page = head + BEGIN + text + "\n" + END + rest.partition(END)[2]
    if update:
        PAGE.write_text(page)
    assert PAGE.read_text() == page, f"pytest {__file__} --update rewrites it"


def test_a_missing_extra_is_named_with_the_command_that_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.toml").touch()
    (tmp_path / "run.json").write_text("{}")
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "duckdb" else object())
    assert cli.run(["query", str(tmp_path), "select 1"]) == cli.USAGE
    assert "duckdb is not installed, which is needed to query a run with SQL: pip install 'squall[query]'" in (
        capsys.readouterr().err
    )
