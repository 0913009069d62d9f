"""Alternating turns: the same thing measured of two checkouts, once this one first, once the other one.

Each pair gives a ratio, so that whatever else the machine does, and how fast it happens to be, meets both. The result
is the median of the ratios, and an interval that needs no assumption on how they are spread.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Generic, TypeVar

from confluent_kafka import KafkaException

from bench.sheet import say
from squall.chaos.errors import PreconditionError
from squall.chaos.toolchain.engine import unpack

CERTAINTY = 0.95
FEWEST = 6
"""Pairs: of fewer, not even the smallest and the largest ratio hold the median so surely."""
Side = TypeVar("Side")
Figures = Mapping[str, float]
CHECKOUTS = ("broker/__main__.py", "broker.py")
"""What a checkout has, or a prototype of the data path."""
MORE_IS_BETTER = "MB/s"
"""Of a figure with this in its name; of every other one less is better."""


@dataclass(frozen=True, slots=True)
class PairedMeasurement(Generic[Side]):
    """Measures something of each side in turn. `take` gives figures by name; `warm` is called once before."""

    name: str
    take: Callable[[Side], Figures]
    warm: Callable[[Side], object] | None = None


@dataclass(slots=True)
class PairedFigures:
    """Holds one figure of all pairs: of this checkout, of the other one and, where there is one, of a peer."""

    now: list[float] = field(default_factory=list)
    then: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """This checkout's figure divided by the other one's, of each pair."""
        return [ours / theirs for ours, theirs in zip(self.now, self.then, strict=True) if theirs]

    def is_worse(self, name: str) -> bool:
        """Return whether the interval says that this checkout does worse."""
        if len(self.ratios) < FEWEST:
            return False
        low, high = interval(self.ratios)
        return high < 1 if MORE_IS_BETTER in name else low > 1


def interval(values: Sequence[float], certainty: float = CERTAINTY) -> tuple[float, float]:
    """Two of the values between which their median lies at least so surely (the sign test's interval); the smallest and
    the largest where there are too few for that.
    """
    ordered, n = sorted(values), len(values)
    cut, missed = 0, 0.5**n
    # `missed`: the probability that at most `cut` of n values lie on one given side of the median.
    while cut + 1 < n / 2 and 2 * (missed + math.comb(n, cut + 1) * 0.5**n) <= 1 - certainty:
        cut += 1
        missed += math.comb(n, cut) * 0.5**n
    return ordered[cut], ordered[n - 1 - cut]


SIDES = {"now": "this checkout", "then": "the one to compare with", "peer": "the peer"}
"""Whose cluster did not do what it was asked for."""


def measure(
    each: PairedMeasurement[Side], now: Side, then: Side, peer: Side | None, pairs: int
) -> dict[str, PairedFigures]:
    """Rows by figure. RuntimeError or KafkaException where a side does not do what it is asked for."""
    rows: dict[str, PairedFigures] = {}
    sides = [(now, "now"), (then, "then"), *([(peer, "peer")] if peer is not None else [])]
    if each.warm is not None:
        for side, _ in sides:
            each.warm(side)
    for number in range(pairs):
        found: dict[str, Figures] = {}
        for side, place in sides if number % 2 == 0 else reversed(sides):
            try:
                found[place] = each.take(side)
            except (RuntimeError, KafkaException) as error:
                raise RuntimeError(f"pair {number + 1}, {SIDES[place]}: {error}") from error
        # A step of a failover that was too quick to be seen has no figure in that pair.
        for figure in (figure for figure in found["now"] if all(figure in figures for figures in found.values())):
            row = rows.setdefault(f"{each.name}, {figure}", PairedFigures())
            for place, figures in found.items():
                getattr(row, place).append(figures[figure])
        told = (
            f"{figure} {value:.4g} / {found['then'].get(figure, math.nan):.4g}"
            for figure, value in found["now"].items()
        )
        say(f"{each.name}, pair {number + 1} of {pairs}: {'; '.join(told)}")
    return rows


def measured(
    slices: Iterable[PairedMeasurement[Side]], now: Side, then: Side, peer: Side | None, pairs: int
) -> dict[str, PairedFigures]:
    """All rows. A slice that fails has none, and that is said."""
    rows: dict[str, PairedFigures] = {}
    for each in slices:
        try:
            rows |= measure(each, now, then, peer, pairs)
        except (RuntimeError, KafkaException) as error:
            say(f"{each.name}: no figures, {error}")
            rows[each.name] = PairedFigures()
    return rows


def table(rows: Mapping[str, PairedFigures], peer: str) -> str:
    """Medians before and now, the median of the ratios, and its interval; this checkout divided by the peer."""
    width = max(map(len, rows), default=0) + 1
    lines = [f"{'figure':<{width}}{'before':>10}{'now':>10}{'ratio':>8}  {'interval':<16}"]
    lines[0] += f"{peer:>10}{'ratio':>8}" if peer else ""
    for name, row in rows.items():
        if not row.ratios:
            lines.append(f"{name:<{width}}no figures")
            continue
        low, high = interval(row.ratios)
        sure = f"{low:.3f} to {high:.3f}" if len(row.ratios) >= FEWEST else f"- (under {FEWEST} pairs)"
        line = f"{name:<{width}}{_figure(row.then)}{_figure(row.now)}{statistics.median(row.ratios):8.3f}"
        line += f"  {sure:<16}"
        if row.peer:
            to_peer = [ours / theirs for ours, theirs in zip(row.now, row.peer, strict=True)]
            line += f"{_figure(row.peer)}{statistics.median(to_peer):8.3f}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def _figure(values: Sequence[float]) -> str:
    return f"{statistics.median(values):10.4g}"


def checkout(revision: str, folder: Path) -> Path:
    """Return the folder with the files of a revision: a directory is taken as it is, anything else is asked of git.
    Raises Refused if git knows no such revision.
    """
    if Path(revision).is_dir():
        if not any((Path(revision) / each).exists() for each in CHECKOUTS):
            raise PreconditionError(f"--against {revision}: no checkout: it has none of {', '.join(CHECKOUTS)}")
        return Path(revision).resolve()
    root = Path(__file__).resolve().parents[1]
    try:
        packed = subprocess.run(["git", "archive", revision], cwd=root, capture_output=True)
    except FileNotFoundError:
        raise PreconditionError(
            f"--against {revision}: neither a directory nor, as there is no git here, a commit"
        ) from None
    if packed.returncode:
        said = packed.stderr.decode(errors="replace").strip()
        raise PreconditionError(f"--against {revision}: neither a directory nor a commit of this checkout: {said}")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as files:
        unpack(files, folder)
    return folder
