"""Writes a run's page: one HTML file that needs no network, the verdict first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from squall.checkers.losses import acknowledged_in
from squall.checkers.metrics import SCHEMA as METRICS_SCHEMA
from squall.reports import checks, operations_section, worth
from squall.reports.answers import AnsweredQuestion
from squall.reports.cards import with_names
from squall.reports.causes import groups_of
from squall.reports.fault_words import FaultRow, fault_rows
from squall.reports.links import COLUMNS, LinkedWitnessGroup, shown_groups, story_anchor, witness_of
from squall.reports.operations import COLOURS, KEY
from squall.reports.operations_section import OperationsSection, anchors_of
from squall.reports.problems import StorySubject
from squall.reports.raw_files import raw_files
from squall.reports.run_files import PAGE, Json, RunFiles, mapping, number, objects, read_run, texts
from squall.reports.run_list import forbidden_by_night
from squall.reports.samples import LatencySamples, read_samples
from squall.reports.sections.of_run import section_of
from squall.reports.sections.of_transactions import in_figures
from squall.reports.sections.strip import strip_svg
from squall.reports.sent_words import section_of_sent
from squall.reports.story_index import rendered_stories
from squall.reports.transactions.observed import TransactionFacts
from squall.reports.transactions.reading import transactions_of
from squall.reports.transactions.section import TransactionsSection as TxnSection
from squall.reports.transactions.section import section_of as txn_section_of

if TYPE_CHECKING:
    from squall.reports.figure import Timeline

FILE = PAGE

assert METRICS_SCHEMA == 1, "the page's metrics tables are written for this schema"


def render(run_dir: Path) -> Path:
    """Write `run_dir`/report.html from the files that are in `run_dir`, and return its path.

    Raises OSError if the page itself cannot be written, and nothing for the state of the files that it reads.
    """
    path = run_dir / FILE
    fresh = path.with_suffix(".html.new")
    fresh.write_text(page_of(run_dir), encoding="utf-8")
    # At once: a browser that reloads the page never sees half of it.
    fresh.replace(path)
    return path


def page_of(run_dir: Path, place: str = "") -> str:
    """Return the page as HTML. `place` is set for a page that is exported with its run: the path, in a checkout, at
    which the run will be unpacked. Such a page links only to the exported files (`raw_files.sent`).
    """
    files = read_run(run_dir)
    from squall.reports import figure  # its libraries are an extra, and other pages do without

    span = figure.time_span(files)
    rows = fault_rows(files)
    load = files.phase("warm-up", "load", "load with faults", "settle")
    samples = read_samples(files, load[0] or span[0], load[1] or span[1]) if span else LatencySamples()
    timeline, trouble = _timeline(files, rows, samples, span)
    found = checks.checks_of(files)
    own, own_trouble = section_of(files)
    transactions, txns, txns_trouble = _transactions(files)
    sections = [each for each in (own, in_figures(files)) if each is not None]
    told, problems = _rendered_stories(files, transactions)
    groups = shown_groups(found, groups_of(files, found), problems)
    operations, operations_trouble = _operations(files, rows, found, groups)
    text = (
        environment()
        .get_template("page.html.j2")
        .render(
            files=files,
            word=checks.word_of(files),
            banner=checks.banner_of(files),
            lossy=checks.is_lossy(files),
            sentence=checks.sentence(files),
            reasons=checks.reasons_of(files),
            forbidden=forbidden_by_night(run_dir, files.verdict),
            notes=checks.notes_of(files),
            figures=checks.figures_of(files),
            engine=checks.judged_by(files),
            worth=worth.answers_of(files, found, rows),
            guarantee=mapping(files.verdict.get("guarantee")),
            command=files.command_in_checkout(place),
            told=told,
            contents=_contents(told, [each.title for each in sections], txns is not None, bool(operations.shown)),
            operations=operations.shown,
            operations_rest=operations.rest,
            operations_trouble=operations_trouble,
            operation_anchors=anchors_of(operations.shown),
            operation_key=[(COLOURS[kind], name) for kind, name in KEY],
            timeline=timeline,
            timeline_trouble=trouble,
            exact_gaps=samples.exact_gaps,
            sections=[(each, strip_svg(each.strip) if each.strip is not None else "") for each in sections],
            own_trouble=own_trouble,
            txns=txns,
            txns_trouble=txns_trouble,
            checks=found,
            groups=groups,
            witness_columns=COLUMNS,
            witnesses=[witness_of(groups, number) for number in range(len(told))],
            faults=rows,
            sent=section_of_sent(files.sent, mapping(files.plan.get("workload"))),
            latency=_latency_rows(files),
            unavailable=_unavailable_rows(files),
            reading=mapping(files.metrics.get("reading")),
            healing=mapping(files.metrics.get("after_healing")),
            final_reads=objects(files.run.get("final_reads")),
            converged=mapping(files.run.get("converged")),
            exits=objects(files.run.get("node_exits")),
            versions=_versions(files),
            colours={node: figure.colour_of(node) for node in files.nodes},
            raw=raw_files(run_dir, sent_only=bool(place)),
            seconds=_second_by_second(files, rows),
        )
    )
    return with_names(text)


@cache
def environment() -> jinja2.Environment:
    """Return the environment of templates, with the filters that they use."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("squall.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(count=_count, seconds=_seconds, ms=_ms, mapping=mapping, objects=objects, texts=texts)
    return environment


def _operations(
    files: RunFiles,
    rows: Sequence[FaultRow],
    found: Sequence[checks.CheckResult],
    groups: dict[str, list[LinkedWitnessGroup]],
) -> tuple[OperationsSection, str]:
    """Return the section of operations and an empty text. If making the section fails, return an empty section and the
    error.
    """
    try:
        return operations_section.section_of(files, rows, found, groups), ""
    except Exception as error:  # the page says so, and all the rest of it stands
        return OperationsSection(), f"{type(error).__name__}: {error}."


def _contents(
    stories: Sequence[_RenderedPartitionStory], sections: Sequence[str], transactions: bool, operations: bool
) -> list[tuple[str, str]]:
    """Return (anchor, heading) of each part of the page, in their order. `sections` lists the headings of the
    workload's own sections.
    """
    own = [(title.lower().replace(" ", "-"), title) for title in sections]
    return [
        *([("story", "What happened")] if stories else []),
        ("timeline", "The whole run" if stories else "What happened"),
        *([("operations", "Operations")] if operations else []),
        *own,
        *([("transactions", "Transactions")] if transactions else []),
        *(("checks", "Checks"), ("faults", "Faults"), ("measures", "Measures"), ("plan", "Plan"), ("files", "Files")),
    ]


def _timeline(
    files: RunFiles, rows: Any, samples: LatencySamples, span: tuple[float, float] | None
) -> tuple[Timeline | None, str]:
    """Return the figure, or None and the reason why there is none. An error while drawing is such a reason, so that the
    page still shows the verdict.
    """
    from squall.reports import figure

    if span is None:
        return None, "run.json does not say when the load was, and series.json does not either."
    try:
        return figure.draw(files, rows, samples, span), ""
    except Exception as error:  # the page says so, and all the rest of it stands
        return None, f"Drawing failed: {type(error).__name__}: {error}."


def _transactions(files: RunFiles) -> tuple[TransactionFacts | None, TxnSection | None, str]:
    """Return (facts, section, reason). The facts say what the run's transactions did, and the section presents them on
    the page. The section is None if the run had no transactions, or if it cannot be made. Only in the second case
    `reason` is not empty.
    """
    found = None
    try:
        found = transactions_of(files)
        if found.too_large:
            return found, None, "history.jsonl is too long to be read for them."
        return found, txn_section_of(files, found), ""
    except Exception as error:  # the page says so, and all the rest of it stands
        return found, None, f"Drawing failed: {type(error).__name__}: {error}."


@dataclass(frozen=True, slots=True)
class _RenderedPartitionStory:
    """Holds a story as the page shows it. `trouble` says why the story is missing."""

    title: str
    summary: str = ""
    lines: tuple[tuple[str, str, int], ...] = ()
    """Lists (time, sentence, number of the first moment in the picture that the sentence describes)."""
    ends: tuple[str, ...] = ()
    left_out: int = 0
    svg: str = ""
    caption: str = ""
    answers: tuple[AnsweredQuestion, ...] = ()
    trouble: str = ""


def _rendered_stories(
    files: RunFiles, found: TransactionFacts | None
) -> tuple[list[_RenderedPartitionStory], list[StorySubject]]:
    """Return the rendered stories of a run's gravest problems, and the subject of each. If rendering fails, the only
    story says so in `trouble`, so that the page still shows the verdict.
    """
    try:
        tellings = rendered_stories(files, found)
        shown = [
            _RenderedPartitionStory(
                told.title,
                told.summary,
                tuple((*line, place) for line, place in zip(told.lines, told.places, strict=True)),
                told.ends,
                told.left_out,
                told.draw(story_anchor(number), linked=True),
                told.caption,
                told.answers,
            )
            for number, told in enumerate(tellings)
        ]
        return shown, [told.problem for told in tellings]
    except Exception as error:  # the page says so, and all the rest of it stands
        return [_RenderedPartitionStory("What happened", trouble=f"{type(error).__name__}: {error}")], []


def _latency_rows(files: RunFiles) -> list[tuple[str, Json]]:
    latency = mapping(files.metrics.get("latency_ms"))
    named = (("all", "all the time"), ("without_faults", "no fault on"), ("with_faults", "a fault on"))
    return [(name, mapping(latency[key])) for key, name in named if mapping(latency.get(key))]


def _unavailable_rows(files: RunFiles) -> list[tuple[str, Json, Json]]:
    """Return (partition, its longest unavailability, its other metrics) from metrics.json, the longest unavailability
    first. The other metrics have an additional key `acked`, the number of all acknowledged sends.
    """
    gaps = mapping(mapping(files.metrics.get("unavailable")).get("partitions"))
    partitions = mapping(files.metrics.get("partitions"))
    told = {name: {**mapping(each), "acked": acknowledged_in(each)} for name, each in partitions.items()}
    rows = [(name, mapping(gaps.get(name)), mapping(told.get(name))) for name in {**partitions, **gaps}]
    return sorted(rows, key=lambda row: (-(number(row[1].get("s")) or 0), row[0]))


SECONDS_AT_MOST = 600
_SERIES = (("acked", "acknowledged"), ("failed", "failed"), ("unknown", "unknown outcome"), ("read", "read"))
_LATENCIES = (("p50_ms", "p50, ms"), ("p99_ms", "p99, ms"), ("max_ms", "max, ms"))


def _second_by_second(files: RunFiles, rows: Sequence[FaultRow]) -> list[list[str]]:
    """Return the numbers of series.json (operations and latencies, which the timeline draws) and the faults as a table:
    a head, and a row for each second. The table is empty if the numbers are not known.
    """
    begins = files.series.get("second")
    if not isinstance(begins, list) or not begins:
        return []
    table = [["second", *(name for _, name in (*_SERIES, *_LATENCIES)), "faults that are on"]]
    for place, begin in enumerate(begins[:SECONDS_AT_MOST]):
        at = number(begin) or 0.0
        cells = [files.series.get(key) for key, _ in (*_SERIES, *_LATENCIES)]
        told = [number(cell[place]) if isinstance(cell, list) and place < len(cell) else None for cell in cells]
        on = [row.label for row in rows if row.began is not None and _is_on(row, at)]
        table.append([f"{at:.2f}", *("" if each is None else f"{each:,.4g}" for each in told), ", ".join(on)])
    return table


def _is_on(row: FaultRow, second: float) -> bool:
    began, length = row.began or 0.0, row.length
    return began < second + 1 and (length is None or began + length > second)


def _versions(files: RunFiles) -> dict[str, str]:
    own = {"squall": str(files.run["squall"])} if files.run.get("squall") else {}
    return {**own, **{str(k): str(v) for k, v in mapping(files.run.get("versions")).items()}}


def _count(value: Any) -> str:
    return f"{value:,.0f}" if number(value) is not None else "not known"


def _seconds(value: Any) -> str:
    at = number(value)
    return f"{at:.2f} s" if at is not None else "not known"


def _ms(value: Any) -> str:
    at = number(value)
    if at is None:
        return "not known"
    return f"{at:,.0f} ms" if at >= 100 else f"{at:.3g} ms"
