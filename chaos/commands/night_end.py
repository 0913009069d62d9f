"""Ends a night (all runs of one `squall nightly`): writes its result files, makes the reports and prints the summary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from squall.chaos.commands.json_output import set_json_result
from squall.chaos.errors import HarnessError, error_message
from squall.chaos.nightly import outcome as outcomes
from squall.chaos.nightly.announcement import announce
from squall.chaos.nightly.budget import MIB, PAGE_SHARE
from squall.chaos.nightly.directory import NightDirectory, bytes_of, write_whole
from squall.chaos.nightly.findings import NightFinding
from squall.chaos.nightly.full_disk import is_full
from squall.chaos.nightly.player import read_verdict
from squall.chaos.screen import console
from squall.chaos.typed import absolute_command, place, typed
from squall.checkers.nightly.night import SCHEMA
from squall.reports.run_files import objects

if TYPE_CHECKING:
    from rich.console import Console

    from squall.chaos.commands.outputs import NightlyOutput, NightRunRow
    from squall.chaos.nightly.accepted import AcceptedFinding
    from squall.chaos.nightly.items import PlannedRun
    from squall.chaos.nightly.outcome import NightResult
    from squall.chaos.nightly.player import NightRunner
    from squall.chaos.nightly.scheduling import ScheduledNight
    from squall.checkers.nightly.results import RunAttempt
    from squall.reports.nightly.report import NightlyReport
    from squall.reports.nightly.standing import FindingStatus

INTERRUPTED = 130
ALLURE = "allure"
"""Names the folder of a night that holds Allure's page."""


def end(
    directory: NightDirectory, opened: ScheduledNight, player: NightRunner, flags: dict[str, Any], *, interrupted: bool
) -> int:
    """Write the night's result files, make its reports, print its summary, and return the exit code. With --no-report,
    after an interruption, or if the disk is full, no reports are made.

    opened: the night as it was planned. flags: the options of `squall nightly`, by name.
    """
    selected = tuple(player.items)
    ids = {each.item for each in selected}
    early = "the night was interrupted before" if interrupted else "the night stopped at a run that is not valid (-x)"
    early = player.disk_full or early
    begun = {item for item, attempts in player.attempts.items() if attempts}
    left_out = {each.item: player.left_out.get(each.item, early) for each in selected if each.item not in begun}
    outcome = outcomes.NightResult(
        opened.id,
        selected,
        player.attempts,
        left_out,
        opened.matrix.unknown_share,
        str(directory.path),
        opened.matrix.max_unplayed,
        # Only the report knows earlier nights: until it is made, every finding is new.
        by_cause=night_findings((), player, flags["accepted"]),
        fail_on=flags["fail_on"],
    )
    not_selected = [each.item for each in opened.items if each.item not in ids]
    if player.disk_full:
        code = _end_full(directory, outcome, not_selected, player.disk_full)
        _announce(directory, outcome, flags, code, player, interrupted=True)
        return code
    _add_checks(directory, outcome)
    # Before the report: a report that fails or is killed must not leave a night without an end.
    _write_end(directory, outcome, not_selected, interrupted=interrupted)
    page, report_s = "", None
    if flags["report"] and not interrupted:
        # The page of an earlier session is replaced, so its bytes are free.
        # The page of an earlier session is replaced, so its bytes are free.
        room = opened.matrix.keep_mib * MIB - bytes_of(directory.path) + bytes_of(directory.path / ALLURE)
        before_s = player.elapsed_s()
        try:
            page, report = pages(directory, console(stderr=True), room)
        except KeyboardInterrupt:  # the runs are over, and their results are said; --resume makes the report
            interrupted, report = True, None
            _write_end(directory, outcome, not_selected, interrupted=True)
        if report is not None:
            report_s = round(player.elapsed_s() - before_s)
            by_cause = night_findings(report.found, player, flags["accepted"])
            before, contradicted = outcome.exit, tuple(report.contradicted)
            outcome = replace(outcome, by_cause=by_cause, contradicted=contradicted)
            _tolerate(directory, outcome)
            # Known and accepted findings may not fail the night, which shows only now.
            if contradicted or outcome.exit != before:
                _write_end(directory, outcome, not_selected, interrupted=False)
    code = _conclude(directory, outcome, flags, page, interrupted=interrupted)
    _announce(directory, outcome, flags, code, player, interrupted=interrupted, report_s=report_s, page=page)
    return code


def night_findings(
    found: Sequence[FindingStatus], player: NightRunner, accepted: Mapping[str, AcceptedFinding]
) -> tuple[NightFinding, ...]:
    """Return the findings of a night. found: the findings of the durability report, which come first. accepted: the
    entries of accepted.toml, by fingerprint (the key by which a finding is recognised in another night).

    A failed attempt that is in no finding of `found` becomes a new finding of its own, without a fingerprint.
    """
    today = datetime.now(UTC).date()
    findings = [
        NightFinding(
            fingerprint=each.first["fingerprint"],
            anomalies=each.anomalies,
            cause=each.first["cause"],
            configurations=each.configurations,
            attempts=frozenset((row["item"], row["attempt"]) for row in each.rows),
            nights=each.nights,
            accepted=accepted.get(each.first["fingerprint"]),
            today=today,
        )
        for each in found
    ]
    explained = {attempt for each in findings for attempt in each.attempts}
    for item in player.items:
        for each in player.attempts.get(item.item, ()):
            key = item.item, each.attempt
            if each.fails and key not in explained:
                why, names = outcomes.found(each), (item.configuration,)
                anomalies = _anomalies(player.directory, each)
                findings.append(NightFinding("", anomalies, why, names, frozenset({key}), (), None, today))
    return tuple(findings)


def _anomalies(directory: NightDirectory, attempt: RunAttempt) -> tuple[str, ...]:
    """Return the anomalies of an attempt that are forbidden by its configuration or by the night's --never. If a check
    has several kinds of evidence, the kind follows the name in brackets: "inconsistent-offset (acks)".
    """
    verdict = read_verdict(directory.path / attempt.run)[1] if attempt.run else {}
    shown = [each for each in objects(verdict.get("anomalies")) if each.get("permitted") is False]
    kinds = ((each.get("name"), each.get("evidence")) for each in shown)
    names = (f"{name} ({evidence})" if evidence else str(name) for name, evidence in kinds)
    return tuple(dict.fromkeys((*names, *attempt.unexpected)))


def _announce(
    directory: NightDirectory,
    outcome: NightResult,
    flags: dict[str, Any],
    code: int,
    player: NightRunner,
    *,
    interrupted: bool,
    report_s: int | None = None,
    page: str = "",
) -> None:
    """Hand the result to --json, summary.json, --metrics and --notify. If one of them fails, print that and keep the
    exit code. report_s: the seconds that the durability report took; None if it was not made. page: the path of its
    page; empty if there is none.
    """
    planned = directory.planned()[0]
    output = night_output(
        outcome,
        interrupted=interrupted,
        began=str(planned.get("began", "")),
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(player.elapsed_s()),
        report_s=report_s,
        report=str(Path(page).absolute()) if page else None,
        commit=str(planned.get("commit", "")),
    )
    set_json_result(lambda: output)
    facts = {**msgspec.to_builtins(output), "exit": code}
    for failed in announce(facts, directory.facts, flags["metrics"], flags["notify"]):
        click.echo(f"squall: {failed}", err=True)


def _end_full(directory: NightDirectory, outcome: NightResult, not_selected: Sequence[str], full: str) -> int:
    """End a night whose disk is full: write the files that still fit, print the summary, and return the exit code.
    full: a sentence that says which disk is full.
    """
    code = outcome.exit or outcomes.TOO_LITTLE

    def write_end() -> None:
        _write_end(directory, outcome, not_selected, interrupted=True, code=code)

    def write_summary() -> None:
        write_whole(directory.summary, outcomes.markdown(outcome))

    # Each for itself: the second may fit where the first did not.
    for write in (write_end, write_summary):
        try:
            write()
        except OSError as error:
            if not is_full(error):
                raise
    click.echo(outcomes.text(outcome), nl=False)
    played, planned = len(outcome.last), len(outcome.items)
    ended_early = f"the night ended early: {full}. {played} of {planned} runs are on record and stay so."
    click.echo(f"squall: {ended_early} Make room, then: {typed('nightly', '--resume', directory.path)}", err=True)
    return code


def night_run(item: PlannedRun, left_out: str, attempts: Sequence[RunAttempt] = ()) -> NightRunRow:
    """Return one run of a night as --json prints it. left_out: the reason why the run was not started; empty if it was.
    attempts: none if the run was not started, several if it was tried again.
    """
    from squall.chaos.commands.outputs import NightRunRow

    return NightRunRow(
        item=item.item,
        configuration=item.configuration,
        faults=item.faults,
        seed=item.seed,
        left_out=left_out,
        attempts=tuple(asdict(each) for each in attempts),
    )


def night_output(outcome: NightResult, **more: Any) -> NightlyOutput:
    """Return a night as --json prints it. more: fields that only the command knows, such as the start time."""
    from squall.chaos.commands.outputs import FindingRun, NightCounts, NightFindingRow, NightlyOutput

    folder = Path(outcome.folder).absolute()

    def found_in(item: str, number: int) -> FindingRun:
        attempt = next(each for each in outcome.attempts[item] if each.attempt == number)
        run = str(folder / attempt.run) if attempt.run else ""
        return FindingRun(item=item, run=run, explain=absolute_command("explain", run) if run else "")

    return NightlyOutput(
        night=outcome.night,
        folder=str(folder),
        sentence=outcome.sentence(),
        fail_on=outcome.fail_on,
        counts=NightCounts(
            planned=len(outcome.items),
            played=len(outcome.last),
            retried=outcome.retried,
            left_out=len(outcome.left_out),
            **{verdict.replace(" ", "_"): count for verdict, count in outcome.counts().items()},
        ),
        findings=tuple(
            NightFindingRow(
                state=each.state,  # type: ignore[arg-type]  # one of the four
                fingerprint=each.fingerprint,
                anomalies=each.anomalies,
                cause=each.cause,
                configurations=each.configurations,
                runs=tuple(found_in(*one) for one in sorted(each.attempts)),
                nights=each.nights,
                accepted=None if each.accepted is None else each.accepted.model_dump(mode="json"),
            )
            for each in outcome.by_cause
        ),
        runs=tuple(
            night_run(item, outcome.left_out.get(item.item, ""), outcome.attempts.get(item.item, ()))
            for item in outcome.items
        ),
        without_any_run=tuple(outcome.configurations_without_run),
        contradicted=tuple(outcome.contradicted),
        **more,
    )


def _write_end(
    directory: NightDirectory,
    outcome: NightResult,
    not_selected: Sequence[str],
    *,
    interrupted: bool,
    code: int = INTERRUPTED,
) -> None:
    """Write end.json: when and how the night ended, the counts of verdicts, and the runs that did not take place.
    not_selected: runs that -k leaves out. code: the exit code to write if the night was interrupted.
    """
    content = {
        "schema": SCHEMA,
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "exit": code if interrupted else outcome.exit,
        "interrupted": interrupted,
        "left_out": [{"item": item, "why": why} for item, why in outcome.left_out.items()],
        "not_selected": not_selected,
        "retried": outcome.retried,
        "counts": outcome.counts(),
        "contradicted": outcome.contradicted,
    }
    directory.write(directory.end, content)


def _allure(directory: NightDirectory, say: Console, room: int) -> None:
    from squall.chaos.toolchain import allure

    needed = int(PAGE_SHARE * bytes_of(directory.allure))
    if needed > room:
        too_large = f"Allure's page would take {needed // MIB} MiB, more than --keep-mib leaves: not made"
        say.print(f"{too_large}; {directory.allure} is there for any Allure", markup=False, soft_wrap=True)
        return
    try:
        page = allure.make_page(
            directory.allure, directory.path / ALLURE, f"Squall, night {directory.path.name}", say.print
        )
        say.print(f"Allure: {place(page)}", markup=False, soft_wrap=True)
    except HarnessError as trouble:
        say.print(str(trouble), markup=False, soft_wrap=True)


def pages(directory: NightDirectory, say: Console, room: int) -> tuple[str, NightlyReport | None]:
    """Make Allure's page and the durability report. Return the report's path and its data; if it cannot be made, print
    that and return "" and None. room: bytes that Allure's page may take.
    """
    from squall.chaos.commands.durability import NightSelection, make_report

    _allure(directory, say, room)
    say.print("the durability report: collecting the night ...")
    try:
        path, report = make_report(directory.path, NightSelection(), say.print)
        return str(path), report
    except Exception as error:  # the runs are judged, whatever becomes of their table
        failed = f"the durability report could not be made: {error_message(error)}"
        say.print(f"{failed}; again: {typed('report', '--nightly', directory.path)}", markup=False, soft_wrap=True)
    return "", None


def _add_checks(directory: NightDirectory, outcome: NightResult) -> None:
    """Add the checks of each run to the night's junit.xml."""
    from squall.chaos.nightly.plugin import case_of
    from squall.reports.junit import NightlyTestCase, add_checks

    cases = []
    for item in outcome.items:
        if last := outcome.last.get(item.item):
            run = directory.path / last.run if last.run else None
            cases.append(NightlyTestCase(*case_of(item), seconds=last.seconds, run=run))
    if directory.junit.exists():
        add_checks(directory.junit, cases)


def _tolerate(directory: NightDirectory, outcome: NightResult) -> None:
    """Change junit.xml: a run with findings counts as skipped, and not as failed, if none of its findings fails the
    night. The reason for skipping it lists the findings.
    """
    from squall.chaos.nightly.plugin import case_of
    from squall.reports.junit import tolerate

    failing = {item.item for item, _ in outcome.failing}
    cases: dict[tuple[str, str], str] = {}
    for item, attempt in outcome.findings:
        if item.item not in failing:
            shown = [each.line() for each in outcome.by_cause if (item.item, attempt.attempt) in each.attempts]
            cases[case_of(item)] = "; ".join(shown)
    if cases and directory.junit.exists():
        tolerate(directory.junit, cases)


def _conclude(
    directory: NightDirectory, outcome: NightResult, flags: dict[str, Any], page: str, *, interrupted: bool
) -> int:
    text = outcomes.text(outcome, page)
    write_whole(directory.summary, outcomes.markdown(outcome, page))
    for flag, content in (("summary", outcomes.markdown(outcome, page)), ("mail", text)):
        if (file := flags[flag]) is not None:
            try:
                file.write_text(content)
            except OSError as error:  # the night is over: its exit code stays
                click.echo(f"squall: --{flag} {file} cannot be written: {error.strerror}", err=True)
    click.echo(text, nl=False)
    click.echo(f"night: {place(directory.path)}")
    if interrupted:
        click.echo(f"interrupted; it goes on with: {typed('nightly', '--resume', directory.path)}")
        return INTERRUPTED
    return outcome.exit
