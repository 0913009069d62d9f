"""Writes junit.xml: a test case for each check, and one for the verdict, so that CI shows a run as it shows tests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from squall.reports import checks, summary
from squall.reports.checks import CheckResult
from squall.reports.run_files import RunFiles, number, read_run
from squall.reports.stories import witness_text

FILE = "junit.xml"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(run_dir: Path) -> Path:
    """Write `run_dir`/junit.xml and return its path. Raise OSError if the file cannot be written.

    A check fails if it found something that is not permitted. If the verdict is unknown, no check passes: the checks
    that found nothing are skipped, and the case `verdict` is an error that says why.
    """
    files = read_run(run_dir)
    word = checks.word_of(files)
    suite = ElementTree.Element("testsuite", name=_text(f"squall {files.name}"))
    began, ended = number(files.run.get("began_ns")), number(files.run.get("ended_ns"))
    took = f"{(ended - began) / 1e9:.3f}" if began is not None and ended is not None else "0"
    for check in checks.checks_of(files):
        _check_case(suite, check, word)
    _verdict_case(suite, files, word, took)
    kinds = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    counts = {name: str(len(suite.findall(f"testcase/{kind}"))) for name, kind in kinds.items()}
    for name, value in {"tests": str(len(suite)), "time": took, **counts}.items():
        suite.set(name, value)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    path = run_dir / FILE
    _write(path, root)
    return path


@dataclass(frozen=True, slots=True)
class NightlyTestCase:
    """Describes a run of a night as a test case: its name, its duration, and the path of its own junit.xml (None if it
    has none).
    """

    classname: str
    name: str
    seconds: float
    run: Path | None


def add_checks(path: Path, cases: Iterable[NightlyTestCase]) -> None:
    """Give the test cases of a night's junit.xml the durations of their runs, and append the checks of each run as a
    test suite. The class name of these checks names the run. Checks of a run whose own junit.xml cannot be read are
    left out.
    """
    root = ElementTree.parse(path).getroot()
    known = {(each.get("classname"), each.get("name")): each for each in root.iter("testcase")}
    for case in cases:
        whole = known.get((case.classname, case.name))
        if whole is None:
            continue
        whole.set("time", f"{case.seconds:.3f}")
        for suite in _suites(case.run):
            suite.set("name", f"{case.classname} {case.name}")
            for check in suite.iter("testcase"):
                check.set("classname", f"{case.classname}.{case.name}")
            root.append(suite)
    _write(path, root)


def tolerate(path: Path, cases: Mapping[tuple[str, str], str]) -> None:
    """Turn failures that do not fail the night into skipped cases: those of the runs, and those of their checks.

    `cases` maps class and name of a run's test case to the reason why the failure does not fail the night.
    """
    root = ElementTree.parse(path).getroot()
    of_checks = {f"{classname}.{name}": why for (classname, name), why in cases.items()}
    for suite in root.iter("testsuite"):
        for case in suite.iter("testcase"):
            classname, name = case.get("classname", ""), case.get("name", "")
            why = cases.get((classname, name)) or of_checks.get(classname)
            if why is not None and (failure := case.find("failure")) is not None:
                failure.tag, failure.attrib = "skipped", {"message": _text(why)}
        for count, kind in (("failures", "failure"), ("skipped", "skipped")):
            suite.set(count, str(len(suite.findall(f"testcase/{kind}"))))
    _write(path, root)


def _write(path: Path, root: ElementTree.Element) -> None:
    ElementTree.indent(root)
    fresh = path.with_suffix(".xml.new")
    ElementTree.ElementTree(root).write(fresh, encoding="utf-8", xml_declaration=True)
    fresh.replace(path)


def _suites(run: Path | None) -> list[ElementTree.Element]:
    try:
        return [] if run is None else ElementTree.parse(run / FILE).getroot().findall("testsuite")
    except (OSError, ElementTree.ParseError):
        return []


def _case(suite: ElementTree.Element, name: str, took: str = "0") -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname="squall", name=_text(name), time=took)


def _check_case(suite: ElementTree.Element, check: CheckResult, word: str) -> None:
    case = _case(suite, check.title)
    if check.state == checks.FAILED:
        failure = ElementTree.SubElement(case, "failure", type=_text(check.name), message=_text(_message(check)))
        lines = [f"{witness_text(each)}: {json.dumps(each, sort_keys=True)}" for each in check.witnesses]
        failure.text = _text("\n".join([check.definition, *lines, *check.moments]))
    elif check.state == checks.UNJUDGED:
        ElementTree.SubElement(case, "error", type="unknown", message=_text(_message(check)))
    elif check.state in (checks.NOT_RUN, checks.LITTLE):
        ElementTree.SubElement(case, "skipped", message=_text(f"{check.state}: {check.why}"))
    elif word == checks.UNKNOWN:
        ElementTree.SubElement(case, "skipped", message=_text(f"{check.state}, but the verdict is unknown"))
    elif check.state == checks.PERMITTED:
        ElementTree.SubElement(case, "system-out").text = _text(f"permitted: {_message(check)}")


def _verdict_case(suite: ElementTree.Element, files: RunFiles, word: str, took: str) -> None:
    case = _case(suite, "verdict", took)
    reasons = checks.reasons_of(files)
    lost = summary.loss(files, permitted=True)
    told = {"permitted loss": lost, "engine": files.verdict.get("engine")}
    if any(told.values()):
        properties = ElementTree.SubElement(case, "properties")
        for name, value in told.items():
            if value:
                ElementTree.SubElement(properties, "property", name=name, value=_text(str(value)))
    if word == checks.VALID:
        ElementTree.SubElement(case, "system-out").text = _text(f"{lost}\n" * bool(lost) + checks.sentence(files))
        return
    kind = "failure" if word == checks.INVALID else "error"
    failure = ElementTree.SubElement(case, kind, type=word, message=_text(f"{checks.banner_of(files)}: {reasons[0]}"))
    failure.text = _text("\n".join([*reasons, f"repeat: {files.command_in_checkout() or 'not known'}"]))


def _message(check: CheckResult) -> str:
    return f"{check.count if check.count is not None else 'an unknown number'} found: {check.why or check.definition}"


def _text(text: str) -> str:
    """Return the text without characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)
