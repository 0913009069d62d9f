"""Runs side by side as a page: what differs in their plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos import cli
from squall.reports.compared_page import differences
from tests.unit.reports.test_run_list import put


def test_settings_that_differ_are_named_and_the_others_are_counted() -> None:
    kill = {"action": "kill", "target": "leader", "at_s": 2.0, "duration_s": 3.0, "params": {}}
    one = {"seed": 7, "time_s": 20.0, "workload": {"acks": -1, "idempotence": True}, "faults": [kill]}
    other = {"seed": 8, "time_s": 20.0, "workload": {"acks": -1}, "faults": [kill, {**kill, "params": {"power": True}}]}
    told, same = differences([one, other])
    assert same == 3
    assert told == [
        ("seed", ("7", "8")),
        ("workload.idempotence", ("true", "")),
        ("fault 2", ("", "kill leader at 2.0 s for 3.0 s (power True)")),
    ]


def test_parameters_in_another_order_are_no_difference() -> None:
    cut = {"action": "partition", "target": "leader", "at_s": 2.0, "duration_s": 3.0}
    one, other = {"shape": "isolate", "manner": "hold"}, {"manner": "hold", "shape": "isolate"}
    assert differences([{"faults": [{**cut, "params": params}]} for params in (one, other)]) == ([], 1)


def test_a_cell_says_of_which_run_it_is_and_what_no_run_has_is_no_row(tmp_path: Path) -> None:
    runs = [put(tmp_path, name, 1, verdict) for name, verdict in (("one", "valid"), ("two", "invalid"))]
    assert cli.run(["runs", *map(str, runs)]) == 0
    text = (tmp_path / "compared.html").read_text()
    assert '<td data-what="1: one">' in text and '<td data-what="2: two">' in text
    assert '<tr class="differs"><th scope="row">verdict</th>' in text
    assert "tbody tr > th { font-weight: 400; }" in text, "only rows that differ are bold"
    assert "permitted loss" not in text, "the same columns of `squall runs` are empty"


def test_the_command_makes_a_page_beside_the_first_run_whose_links_move_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [put(tmp_path / place, name, 1, "valid") for place, name in (("a", "one"), ("b", "two"), ("a", "three"))]
    for run in runs[:2]:
        (run / "report.html").write_text("")
    assert cli.run(["runs", *map(str, runs)]) == 0
    page = tmp_path / "a/compared.html"
    assert f"page: {page}" in capsys.readouterr().out
    text = page.read_text()
    assert 'href="one/report.html"' in text and 'href="../b/two/report.html"' in text
    assert "three/report.html" not in text, "it has no page"
    assert "They have the same plan." in text
    assert str(tmp_path) not in text


def test_the_terminal_shows_how_the_plans_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [put(tmp_path, name, 1, "valid") for name in ("one", "two")]
    assert cli.run(["runs", *map(str, runs)]) == 0
    assert "They have the same plan." in capsys.readouterr().out
    (runs[1] / "plan.toml").write_text((runs[1] / "plan.toml").read_text().replace("seed = 8", "seed = 9"))
    assert cli.run(["runs", *map(str, runs)]) == 0
    out = capsys.readouterr().out
    assert ["seed", "8", "9"] in [line.split() for line in out.partition("setting")[2].splitlines()]
    assert "settings are the same in all plans." in out
