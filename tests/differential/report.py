"""The report of a comparison: counts for each API, each known difference, and all unexplained ones."""

from __future__ import annotations

import pprint
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import jinja2

from squall.chaos.nightly.directory import write_whole
from squall.reports.page import environment
from tests.differential.compare import BEHIND, EQUAL, EXPLAINED, OUTCOMES, UNEXPLAINED, Result
from tests.differential.named import NAMED

COMMAND = ".venv/bin/python -m tests.differential"
SHOWN = 40
"""How many unexplained answers the terminal shows; the page and the text file have all."""
WIDTH = 110


def write(results: Sequence[Result], sequences: int, out: Path) -> Path:
    """Write the page, and the text file of unexplained answers. Returns the page's path."""
    page = out / "report/index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    shared = environment()
    assert shared.loader is not None
    loader = jinja2.ChoiceLoader([jinja2.FileSystemLoader(Path(__file__).parent), shared.loader])
    own = shared.overlay(loader=loader)
    unexplained = [result for result in results if result.outcome == UNEXPLAINED]
    text = own.get_template("differential.html.j2").render(
        headline=headline(results, sequences),
        good=not unexplained,
        counts=counts(results),
        outcomes=OUTCOMES,
        named=_named(results),
        unexplained=[(result, text_of(result)) for result in unexplained],
    )
    write_whole(page, text)
    write_whole(out / "unexplained.txt", "\n\n".join(map(text_of, unexplained)) + "\n" if unexplained else "")
    return page


def headline(results: Sequence[Result], sequences: int) -> str:
    """Return one sentence with the totals."""
    count = Counter(result.outcome for result in results)
    return (
        f"{len(results):,} answers, {sequences:,} random sequences: {count[EQUAL]:,} equal, {count[EXPLAINED]:,} differ"
        f" as named, {count[UNEXPLAINED]:,} unexplained, {count[BEHIND]:,} behind a difference"
    )


def counts(results: Sequence[Result]) -> list[tuple[str, int, Counter[str]]]:
    """Return (API, number of answers, counts of outcomes) in the order of the APIs' names."""
    found: dict[str, Counter[str]] = {}
    for result in results:
        found.setdefault(result.api, Counter())[result.outcome] += 1
    return [(api, count.total(), count) for api, count in sorted(found.items())]


def _named(results: Sequence[Result]) -> list[tuple[object, int]]:
    """Return each known difference with the number of answers that have it, largest first. If all rows were played, 0
    means that the entry is superfluous.
    """
    count = Counter(
        name for result in results for name in {each.named.name for each in result.differences if each.named}
    )
    return sorted(((each, count[each.name]) for each in NAMED), key=lambda pair: -pair[1])


def text_of(result: Result) -> str:
    """Return a description of an unexplained answer: the request, where the answers differ, both values, and the
    command that repeats it.
    """
    lines = [f"{result.row}: {result.api} v{result.version}", f"  {result.request}"]
    for each in result.differences:
        mark = f" [{each.named.name}]" if each.named is not None else ""
        lines.append(f"  at {each.path or 'the whole answer'}: ours {each.ours!r}, Kafka's {each.theirs!r}{mark}")
    for whose, tree in (("ours", result.ours), ("Kafka's", result.theirs)):
        lines.append(
            f"  {whose}:\n" + "\n".join(f"    {line}" for line in pprint.pformat(tree, width=WIDTH).splitlines())
        )
    return "\n".join((*lines, f"  again: {COMMAND} {result.repeat}"))
