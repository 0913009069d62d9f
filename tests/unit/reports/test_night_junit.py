"""A night's junit.xml has the checks of its runs."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from squall.reports.figure import standalone
from squall.reports.junit import NightlyTestCase, add_checks, tolerate

NIGHT = """<testsuites><testsuite name="squall nightly">
<testcase classname="squall.sim appends" name="kill-seed1" time="0.1"/>
<testcase classname="squall.sim appends" name="kill-seed2" time="0.1"/>
</testsuite></testsuites>"""
RUN = """<testsuites><testsuite name="squall r" tests="2" failures="1">
<testcase classname="squall" name="lost-write"><failure message="2 found"/></testcase>
<testcase classname="squall" name="verdict"/>
</testsuite></testsuites>"""


def test_each_run_is_a_suite_whose_class_is_the_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/junit.xml").write_text(RUN)
    (tmp_path / "half").mkdir()
    (tmp_path / "half/junit.xml").write_text("<testsuites><tests")
    path = tmp_path / "junit.xml"
    path.write_text(NIGHT)
    name = "squall.sim appends"
    cases = [
        NightlyTestCase(name, "kill-seed1", 7.25, tmp_path / "run"),
        NightlyTestCase(name, "kill-seed2", 3.0, tmp_path / "half"),
        NightlyTestCase(name, "never played", 1.0, None),
    ]
    add_checks(path, cases)
    night, of_run = ElementTree.parse(path).getroot().findall("testsuite")
    assert [each.get("time") for each in night] == ["7.250", "3.000"]
    assert (of_run.get("name"), of_run.get("failures")) == (f"{name} kill-seed1", "1")
    assert [(each.get("classname"), each.get("name")) for each in of_run] == [
        (f"{name}.kill-seed1", "lost-write"),
        (f"{name}.kill-seed1", "verdict"),
    ]


def test_what_does_not_fail_the_night_is_skipped_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(RUN)
    path, name = tmp_path / "night.xml", "squall.sim appends"
    failed = '-seed{0}" time="0.1"><failure message="lost"/></testcase>'
    path.write_text(
        NIGHT.replace('-seed1" time="0.1"/>', failed.format(1)).replace('-seed2" time="0.1"/>', failed.format(2))
    )
    add_checks(path, [NightlyTestCase(name, f"kill-seed{seed}", 7.25, tmp_path) for seed in (1, 2)])
    tolerate(path, {(name, "kill-seed1"): "accepted by alice"})
    night, accepted, found = ElementTree.parse(path).getroot().findall("testsuite")
    assert [(each.get("failures"), each.get("skipped")) for each in (night, accepted, found)] == [
        ("1", "1"), ("0", "1"), ("1", "0")
    ]  # fmt: skip
    assert [
        each.get("message")
        for each in (each for suite in (night, accepted) for each in suite.findall("testcase/skipped"))
    ] == ["accepted by alice"] * 2


def test_the_figure_of_a_page_stands_alone_in_colours_of_its_own() -> None:
    figure = '<svg viewBox="0 0 1 1" aria-labelledby="timeline-title timeline-desc"><path stroke="var(--ink)"/></svg>'
    alone = standalone(f"<p><svg><g/></svg>{figure}</p>")
    assert alone == figure.replace("var(--ink)", "#0a0b0c")
    assert standalone("<p>no figure</p>") == ""
