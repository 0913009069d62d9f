"""Writes the page of a folder of runs: the number of runs of each verdict, and a row for each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from squall.reports.page import environment
from squall.reports.run_list import NO_VERDICT, PAGE, RunListEntry

WORDS = ("invalid", "unknown", NO_VERDICT, "valid")


def render(root: Path, rows: Sequence[RunListEntry]) -> Path:
    """Write `root`/index.html, and return its path."""
    counts = Counter(row.verdict for row in rows)
    losing = sum(row.verdict == "valid" and bool(row.loss) for row in rows)
    worst = next((word for word in WORDS if counts[word]), "unknown")
    text = (
        environment()
        .get_template("runs.html.j2")
        .render(
            root=root.name,
            rows=rows,
            word="unknown" if worst == NO_VERDICT else worst,
            lossy=worst == "valid" and losing,
            headline=", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word]) or "no runs",
            sentence=sentence(counts, losing),
        )
    )
    path = root / PAGE
    fresh = path.with_suffix(".html.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
    return path


def sentence(counts: Counter[str], losing: int) -> str:
    """Say in words what the numbers of runs by verdict (`counts`) mean. `losing` is the number of valid runs that lost
    acknowledged records.
    """
    runs = "1 valid run" if losing == 1 else f"{losing} valid runs"
    lost = f" {runs} lost acknowledged records, as permitted." if losing else ""
    if counts["invalid"]:
        return f"Something was found that its configuration does not permit: begin with the red rows.{lost}"
    if counts["unknown"] or counts[NO_VERDICT]:
        return f"Nothing forbidden was found.{lost} Unknown runs prove nothing: their rows say why."
    return f"Nothing forbidden was found.{lost}" if counts["valid"] else "There is nothing to look at yet."
