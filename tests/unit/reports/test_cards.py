"""Cells of tables get the names of their columns, for screens on which a table has no room."""

from __future__ import annotations

from squall.reports.cards import with_names

HEAD = '<thead><tr><th>check</th><th class="n">p50, <b>ms</b> &amp; more</th></tr></thead>'


def test_each_cell_has_its_columns_name() -> None:
    rows = '<tbody><tr class="bad"><th scope="row">a</th><td class="n">1</td></tr></tbody>'
    assert with_names(f"<table>{HEAD}{rows}</table>") == (
        f'<table>{HEAD}<tbody><tr class="bad"><th scope="row" data-what="check">a</th>'
        '<td class="n" data-what="p50, ms &amp; more">1</td></tr></tbody></table>'
    )


def test_a_name_that_is_there_stays() -> None:
    rows = '<tr><td data-what="mine">1</td><td>2</td></tr>'
    assert 'data-what="mine">1</td><td data-what="p50' in with_names(f"<table>{HEAD}{rows}</table>")


def test_a_table_without_a_head_and_text_outside_of_tables_stay_as_they_are() -> None:
    page = "<td>x</td><table><tr><td>1</td></tr></table><p>thead</p>"
    assert with_names(page) == page


def test_what_stands_in_a_cell_is_no_cell() -> None:
    rows = "<tr><th>a</th><td><details><summary>s</summary><p>text</p></details></td></tr>"
    assert with_names(f"<table>{HEAD}{rows}</table>").count("data-what") == 2
