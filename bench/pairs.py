"""Measures two checkouts in pairs of measurements; in every second pair the other checkout comes first.

Each pair gives a ratio, so that the machine's speed and other load affect both sides alike. The result is the median of
the ratios, with an interval that needs no assumption on their distribution.
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
MIN_PAIRS = 6
"""Is the least number of pairs for a confidence interval. With fewer, even the range from the smallest to the largest
ratio contains the true median with a probability below `CERTAINTY`.
"""
Side = TypeVar("Side")
Figures = Mapping[str, float]
CHECKOUTS = ("broker/__main__.py", "broker.py")
"""Lists the files by which a checkout, or a prototype of the data path, is recognized."""
MORE_IS_BETTER = "MB/s"
"""Marks, in the name of a figure, that more is better; for every other figure less is better."""


@dataclass(frozen=True, slots=True)
class PairedMeasurement(Generic[Side]):
    """Describes a measurement that is taken in turn on each side of a comparison, such as this checkout and an earlier
    one. `take` measures a side, and returns figures by name. `warm`, if any, warms each side up before the first pair.
    """

    name: str
    take: Callable[[Side], Figures]
    warm: Callable[[Side], object] | None = None


@dataclass(slots=True)
class PairedFigures:
    """Holds the values of one figure, such as MB/s, with one value for each pair: `now` is this checkout, `then` the
    other one, and `peer` a peer if there is one.
    """

    now: list[float] = field(default_factory=list)
    then: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Returns this checkout's figure divided by the other one's, for each pair."""
        return [ours / theirs for ours, theirs in zip(self.now, self.then, strict=True) if theirs]

    def is_worse(self, name: str) -> bool:
        """Return whether the interval of the ratios shows that this checkout is worse."""
        if len(self.ratios) < MIN_PAIRS:
            return False
        low, high = interval(self.ratios)
        return high < 1 if MORE_IS_BETTER in name else low > 1


def interval(values: Sequence[float], certainty: float = CERTAINTY) -> tuple[float, float]:
    """Return two of the values that enclose their median with at least this certainty (the sign test's interval); the
    smallest and the largest value if there are too few.
    """
    ordered, n = sorted(values), len(values)
    cut, missed = 0, 0.5**n
    # `missed`: the probability that at most `cut` of n values lie on one given side of the median.
    while cut + 1 < n / 2 and 2 * (missed + math.comb(n, cut + 1) * 0.5**n) <= 1 - certainty:
        cut += 1
        missed += math.comb(n, cut) * 0.5**n
    return ordered[cut], ordered[n - 1 - cut]


SIDES = {"now": "this checkout", "then": "the one to compare with", "peer": "the peer"}
"""Maps each side of a comparison to its description in error messages. The peer is a third cluster, such as Apache
Kafka.
"""


def measure(
    each: PairedMeasurement[Side], now: Side, then: Side, peer: Side | None, pairs: int
) -> dict[str, PairedFigures]:
    """Take one measurement `pairs` times on each side, and return its figures by name, such as "1024 B, MB/s". The
    sides are this checkout (`now`), the one to compare with (`then`), and a peer such as Apache Kafka, if any. Raises
    RuntimeError or KafkaException if the measurement fails on one of them.
    """
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
        # A failover step that was too quick to be observed has no figure in that pair.
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
    """Return the figures of all measurements by name. A failed measurement has no figures, and its error is printed.

    `slices` lists the measurements, and `pairs` says how often each is taken on every side. The sides are this checkout
    (`now`), the one to compare with (`then`), and a peer such as Apache Kafka, if any.
    """
    rows: dict[str, PairedFigures] = {}
    for each in slices:
        try:
            rows |= measure(each, now, then, peer, pairs)
        except (RuntimeError, KafkaException) as error:
            say(f"{each.name}: no figures, {error}")
            rows[each.name] = PairedFigures()
    return rows


def table(rows: Mapping[str, PairedFigures], peer: str) -> str:
    """Return a table with a row for each figure: the medians of the other checkout ("before") and of this one ("now"),
    and the median of the ratios now / before with its interval. If `peer` names a peer, each row also has the peer's
    median and the median of the ratios now / peer.
    """
    width = max(map(len, rows), default=0) + 1
    lines = [f"{'figure':<{width}}{'before':>10}{'now':>10}{'ratio':>8}  {'interval':<16}"]
    lines[0] += f"{peer:>10}{'ratio':>8}" if peer else ""
    for name, row in rows.items():
        if not row.ratios:
            lines.append(f"{name:<{width}}no figures")
            continue
        low, high = interval(row.ratios)
        sure = f"{low:.3f} to {high:.3f}" if len(row.ratios) >= MIN_PAIRS else f"- (under {MIN_PAIRS} pairs)"
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
    """Return the directory with the files of a revision. `revision` is a directory, or a commit, whose files are then
    unpacked from git into `folder`. Raises PreconditionError if it is neither, or if the directory holds no checkout or
    prototype.
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
