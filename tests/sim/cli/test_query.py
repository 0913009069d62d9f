"""`squall query` on a simulated run: the views have the contents of the run's files, and nothing is written."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path

import pytest

from squall.chaos import cli
from squall.reports.query import QUOTES, QueryError, opened, query
from squall.reports.query_views import VIEWS
from tests.support.json_output import checked

ROOT = Path(__file__).resolve().parents[3]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return the run directory of a simulation that lost a record."""
    plan = ROOT / "tests/sim/plans/kip_101_loss.toml"
    assert cli.run(["sim", "--plan", str(plan), "--mutant", "1", "--runs", str(tmp_path)]) == 1
    capsys.readouterr()
    return (tmp_path / "latest").resolve()


def test_views_say_what_the_files_say_and_only_read(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(run)
    for view in VIEWS:
        told = query(run, f"select * from {view.name}")
        assert told.columns == tuple(name for name, _, _ in view.columns), view.name

    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    sends = {line["op"] for line in lines if line["e"] == "i" and line["f"] == "send"}
    ended = Counter(("ok", "fail", "info")[line["st"]] for line in lines if line["e"] == "c" and line["op"] in sends)
    rows = query(run, "select outcome, count(*) from records where kind = 'send' group by all").rows
    assert {outcome: count for outcome, count in rows if outcome != "info"} == {
        outcome: count for outcome, count in ended.items() if outcome != "info"
    }
    faults = json.loads((run / "run.json").read_text())["faults"]
    told = query(run, "select count(*), count_if(landed) from faults")
    assert told.rows == [(faults["planned"], faults["landed"])] and faults["landed"]
    found = json.loads((run / "verdict.json").read_text())["anomalies"]
    told = query(run, "select name, count, permitted from findings")
    assert told.rows == [(each["name"], each["count"], each["permitted"]) for each in found]
    (partition,) = {each["partition"] for each in found[0]["witnesses"]}
    assert query(run, f"select distinct \"partition\" from witnesses where name = '{found[0]['name']}'").rows == [
        (partition,)
    ]
    assert query(run, "select count(*) from events where event = 'became_leader'").rows[0][0] > 0

    sql = "select name, count from findings"
    assert cli.run(["query", str(run), sql, "--json"]) == 0
    out, err = capsys.readouterr()
    told_as_json = checked("query", out)
    assert err == "", "nobody reads a table beside the object"
    assert [each["name"] for each in told_as_json["columns"]] == ["name", "count"]
    assert cli.run(["query", str(run), sql, "--csv"]) == 0
    told_as_csv = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert told_as_csv == [["name", "count"], *([str(cell) for cell in row] for row in told_as_json["rows"])]
    assert contents(run) == before

    microseconds = query(run, "select began_s * 1e6 from operations where began_s is not null").rows
    assert microseconds == [(pytest.approx(round(each)),) for (each,) in microseconds]


def test_columns_that_are_words_of_sql_are_to_be_quoted_and_the_error_says_so(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(run) as connection:
        words = "select keyword_name from duckdb_keywords() where keyword_category = 'reserved'"
        reserved = {word for (word,) in connection.execute(words).fetchall()}
    for name in {name for view in VIEWS for name, _, _ in view.columns} & reserved:
        assert f'"{name}"' in QUOTES
    assert query(run, 'select "offset" from records where "offset" >= 0').rows
    assert cli.run(["query", str(run), "select * from records where offset >= 0"]) == cli.USAGE
    err = capsys.readouterr().err
    assert "syntax error" in err and QUOTES in err and "Usage:" not in err


def test_what_would_write_or_read_files_is_refused(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    for sql in (
        f"copy (select 1) to '{out}'",
        "create table t(a int)",
        f"attach '{tmp_path / 'x.db'}'",
        f"select * from read_csv('{run / 'history.jsonl'}')",
        "set enable_external_access = true",
        "select 1; select 2",
        "select nonsense from records",
        "",
    ):
        with pytest.raises(QueryError):
            query(run, sql)
    assert not out.exists()
