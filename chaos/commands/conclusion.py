"""Ends every command that judges a run: renders the report, prints the results as tables and returns the exit code."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress

from squall.chaos.errors import error_message
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.progress import Progress
from squall.chaos.screen import console
from squall.chaos.toolchain.extras import no_report
from squall.chaos.typed import shortened, typed
from squall.checkers.history import seal
from squall.checkers.history.conversion import convert_once
from squall.checkers.losses import permitted_loss
from squall.reports.junit import write_junit
from squall.reports.terminal import summary

EXIT_CODES = {"valid": 0, "invalid": 1}
UNKNOWN, INTERRUPTED = 2, 130


def load_report() -> None:
    """Import the report's modules early, while other work runs. If a library is missing, `conclude` reports that later.
    """
    with suppress(ImportError):
        import squall.reports.figure
        import squall.reports.page  # noqa: F401


def conclude(
    directory: RunDirectory, *, keep_data: bool, progress: Progress | None = None, always_page: bool = True
) -> int:
    """Render the report and junit.xml, print the run's results as tables, and return the exit code: 0 valid, 1 invalid,
    2 unknown. An error in rendering does not change the verdict. After Ctrl-C, print which verdict the run has, and
    return 130.

    progress: shows that the report is being made. always_page: if False, a valid run that lost no acknowledged record
    gets no page; the command that makes it is printed instead.
    """
    before = seal.stamp(directory.verdict)
    try:
        return _conclude(directory, keep_data=keep_data, progress=progress, always_page=always_page)
    except KeyboardInterrupt:
        return interrupted(directory, before, drawn=False)


def interrupted(directory: RunDirectory, before: dict[str, int] | None, *, drawn: bool = True) -> int:
    """Print which verdict the run has after an interruption, and return 130.

    before: the size and checksum of verdict.json when the command began, such as {"bytes": 812, "crc32": 99}; None if
    there was no such file. An equal file means that the run was not judged again. drawn: False if the run's page still
    has to be made.
    """
    now, word = seal.stamp(directory.verdict), "unknown"
    with suppress(OSError, ValueError, LookupError, TypeError):
        word = str(json.loads(directory.verdict.read_text())["verdict"])
    if now is None:
        said = f"there is no verdict yet. To judge the run: {typed('verify', directory.path)}"
    elif now == before and drawn:
        said = f"the run was not judged again; its earlier verdict is {word}"
    else:
        said = f"the verdict is {word}. To make the page: {typed('report', directory.path)}"
    console(stderr=True).print(f"interrupted: {said}", markup=False, soft_wrap=True)
    return INTERRUPTED


def _conclude(directory: RunDirectory, *, keep_data: bool, progress: Progress | None, always_page: bool) -> int:
    verdict = json.loads(directory.verdict.read_text())
    out = console()
    page = always_page or verdict["verdict"] != "valid" or permitted_loss(verdict) is not None
    try:
        with ExitStack() as shown:
            if progress is not None:
                shown.enter_context(progress.shown())
                shown.enter_context(progress.phase("report"))
            write_junit(directory.path)
            if page:
                from squall.reports.page import render  # without its libraries there is a verdict all the same

                convert_once(directory.path)
                render(directory.path)
    except ModuleNotFoundError as missing:
        out.print(no_report(missing), markup=False, soft_wrap=True)
    except Exception as error:  # an error of the report must not hide the verdict
        out.print(f"the report could not be rendered: {error_message(error)}", markup=False, soft_wrap=True)
    if not keep_data:
        from squall.chaos.runs.judgement import prune_data

        prune_data(directory, verdict)
    summary(directory.path, out, shortened)
    if not page:
        out.print(f"No page was made. To make one: {typed('report', directory.path)}", markup=False, soft_wrap=True)
    return EXIT_CODES.get(verdict["verdict"], UNKNOWN)
