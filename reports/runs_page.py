"""The page of a folder of runs: how many are what, and a row for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from reports.page import environment
from reports.shelf import NO_VERDICT, PAGE, ShelvedRun

WORDS = ("invalid", "unknown", NO_VERDICT, "valid")


def render(root: Path, rows: Sequence[ShelvedRun]) -> Path:
    """Write `root`/index.html, and return its path."""
    counts = Counter(row.verdict for row in rows)
    worst = next((word for word in WORDS if counts[word]), "unknown")
    text = (
        environment()
        .get_template("runs.html.j2")
        .render(
            root=root.name,
            rows=rows,
            word="unknown" if worst == NO_VERDICT else worst,
            headline=", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word]) or "no runs",
            sentence=sentence(counts),
        )
    )
    path = root / PAGE
    fresh = path.with_suffix(".html.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
    return path


def sentence(counts: Counter[str]) -> str:
    """What that means."""
    if counts["invalid"]:
        return "Something was found that its configuration does not permit: begin with the red rows."
    if counts["unknown"] or counts[NO_VERDICT]:
        return "Nothing was found that is not permitted. The yellow rows prove nothing: each says why."
    return "Nothing was found that is not permitted." if counts["valid"] else "There is nothing to look at yet."
