"""Lists a folder of runs, with a row for each run. A row is made from the run's small files alone, such as
verdict.json, and not from its history.
"""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from squall.checkers import simulated
from squall.checkers.anomalies.registry import LOSS
from squall.checkers.losses import permitted_loss
from squall.checkers.nightly.night import RESULTS, Night, UnreadableNight, read_night
from squall.checkers.nightly.results import RunAttempt, parse
from squall.checkers.nightly.runs import with_unexpected
from squall.reports.run_files import Json, integer, mapping, number, objects, texts
from squall.reports.summary import unavailable_to

NO_VERDICT = "no verdict"
REASONS = 2
"""Limits the reasons of a verdict that a row of the list names; the run's own page has all."""
REASON_LETTERS = 200
"""Limits the letters of one reason."""
PAGE, PLAN = "index.html", "plan.toml"
REMOVABLE = ("valid",)
"""Lists the verdicts of the runs that `to_remove` may remove."""


@dataclass(frozen=True, slots=True)
class RunListEntry:
    """Describes one run as a row of the list. A field is None if the files do not say it."""

    name: str
    path: Path
    verdict: str
    """Says how the run was judged: valid, invalid or unknown; `NO_VERDICT` if it was not judged. A run is invalid also
    if its night forbids an anomaly that it shows (`squall nightly --never`).
    """
    began: datetime | None
    workload: str
    where: str
    """Names target and runtime: "squall, process"."""
    configuration: str
    """Describes the settings on which the durability of a record depends, such as "acks=all, min ISR 2 of 3"."""
    seed: int | None
    faults: tuple[str, ...]
    """Lists the kinds of the planned faults, each once."""
    landed: int | None
    planned: int | None
    acked: int | None
    """Counts the acknowledged records. Once the run is judged, records that were sent after healing are included."""
    p99_ms: float | None
    unavailable_s: float | None
    findings: tuple[str, ...]
    """Lists the findings that are not permitted. If there are none, or if the verdict is not `invalid`, the reasons of
    the verdict follow.
    """
    permitted: tuple[str, ...]
    """Lists the permitted anomalies, except for losses, which `loss` describes."""
    loss: str
    """Describes in a line the permitted loss of acknowledged records; empty if there is none."""
    bytes: int
    """Gives the total size of the files in the run directory."""

    @property
    def landed_of(self) -> str:
        """Returns how many of the planned faults landed (took effect, with evidence), as text: "3/4"."""
        return "" if self.planned is None else f"{self.landed if self.landed is not None else '?'}/{self.planned}"

    @property
    def page(self) -> str:
        """Returns the path of the run's page from the folder of runs; empty if there is no page."""
        return f"{self.name}/report.html" if (self.path / "report.html").exists() else ""


def runs_in(root: Path) -> list[RunListEntry]:
    """Return a row for every run directory in `root`, the newest first. A file that cannot be read leaves its cells
    empty.
    """
    night = _NightOfRunFolder(root)
    found = [_row(each, night) for each in _folders(root) if (each / PLAN).exists()]
    return sorted(found, key=lambda row: (row.began.timestamp() if row.began else 0.0, row.name), reverse=True)


def folders_without_plan(root: Path) -> list[Path]:
    """Return the folders in `root` that are no run, for example the rest of a run that was removed partly."""
    return [each for each in _folders(root) if not (each / PLAN).exists()]


def _folders(root: Path) -> list[Path]:
    return [each for each in sorted(root.iterdir())
            if each.is_dir() and not each.is_symlink() and not each.name.startswith(".")]  # fmt: skip


def one(path: Path) -> RunListEntry:
    """Return the row of one run directory in the list of runs."""
    return _row(path, _NightOfRunFolder(path.parent))


def forbidden_by_night(run: Path, verdict: Json) -> tuple[str, ...]:
    """Return the anomalies of a run that its configuration permits and its night forbids (`squall nightly --never`);
    empty for a run of no night.
    """
    return _NightOfRunFolder(run.parent).forbids(run.name, verdict)


def plan_of(path: Path) -> Json:
    """Return the plan of a run directory; empty if it cannot be read."""
    return _toml(path / PLAN)


class _NightOfRunFolder:
    """Finds the nightly session (a night) that made the runs of a folder, if one did."""

    def __init__(self, root: Path) -> None:
        folder = root.resolve().parent
        self._night: Night | None = None
        try:
            self._night = read_night(folder)
            attempts: Iterable[RunAttempt] = self._night.attempts
        except UnreadableNight:
            try:
                attempts = parse((folder / RESULTS).read_text(errors="replace"))[0]
            except OSError:
                attempts = ()
        self._attempts = {Path(each.run).name: each for each in attempts if each.run}

    def forbids(self, run: str, verdict: Json) -> tuple[str, ...]:
        """Return the anomalies that a run shows, that its configuration permits, and that its night forbids
        (`--never`).
        """
        attempt = self._attempts.get(run)
        if attempt is None or self._night is None:
            return attempt.unexpected if attempt else ()
        return with_unexpected(self._night, attempt, verdict)[0].unexpected


def _row(path: Path, night: _NightOfRunFolder) -> RunListEntry:
    plan, info, verdict = plan_of(path), _json(path / "run.json"), _json(path / "verdict.json")
    forbidden = night.forbids(path.name, verdict)
    metrics, faults = mapping(verdict.get("metrics")), mapping(info.get("faults"))
    wall_ms = number(info.get("began_wall_ms"))
    seed, planned, landed = plan.get("seed"), faults.get("planned"), faults.get("landed")
    sends = mapping(mapping(metrics.get("outcomes")).get("send"))
    acked = sends.get("ok", 0) if sends else mapping(info.get("counters")).get("acked")
    if overlooked := simulated.overlooked(path, verdict):
        verdict = {**verdict, "verdict": "unknown", "reasons": [overlooked]}
    word = "invalid" if forbidden else verdict.get("verdict")
    return RunListEntry(
        path.name,
        path,
        word if word in ("valid", "invalid", "unknown") else NO_VERDICT,
        None if wall_ms is None else _moment(wall_ms),
        str(mapping(plan.get("workload")).get("name", "?")),
        f"{plan.get('target', '?')}, {plan.get('runtime', '?')}",
        _configuration(plan),
        seed if isinstance(seed, int) else None,
        tuple(dict.fromkeys(str(each.get("action")) for each in objects(plan.get("faults")))),
        landed if isinstance(landed, int) else None,
        planned if isinstance(planned, int) else None,
        acked if isinstance(acked, int) else None,
        number(mapping(mapping(metrics.get("latency_ms")).get("all")).get("p99")),
        _unavailable(mapping(metrics.get("unavailable")), unavailable_to(verdict)),
        (*(f"{each}, which this night forbids" for each in forbidden), *_findings(verdict, info)),
        tuple(_anomaly_text(each) for each in objects(verdict.get("anomalies")) if _is_permitted_beside_loss(each)),
        str(permitted_loss(verdict) or ""),
        _bytes_of(path),
    )


def _moment(wall_ms: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # no moment that there ever was
        return None


def _bytes_of(path: Path) -> int:
    """Return the total size of all files below a folder, in bytes. Files of a run in progress may vanish meanwhile."""
    total = 0
    for each in path.rglob("*"):
        with suppress(OSError):
            told = each.lstat()
            total += told.st_size if stat.S_ISREG(told.st_mode) else 0
    return total


def _unavailable(measured: Json, stuck: Collection[str]) -> float | None:
    """Return the longest time, in seconds, in which a partition accepted no write, as the run's own page shows it.
    `measured` is the metrics' `unavailable`. The partitions in `stuck` (`summary.unavailable_to`) do not count: a
    single stuck client could not write there, and other clients could.
    """
    partitions = {name: each for name, each in mapping(measured.get("partitions")).items() if name not in stuck}
    known = [gap for each in partitions.values() if (gap := number(mapping(each).get("s"))) is not None]
    return max(known, default=None if stuck else number(mapping(measured.get("overall")).get("s")))


def _configuration(plan: Json) -> str:
    load = mapping(plan.get("workload"))
    told = []
    if "acks" in load:
        acks = integer(load["acks"])
        told.append(f"acks={'all' if acks == -1 else acks}")
    if "min_isr" in load:
        told.append(f"min ISR {load['min_isr']} of {load.get('replication_factor', '?')}")
    if load.get("idempotence") is False:
        told.append("not idempotent")
    if load.get("client", "squall") != "squall":
        told.append(str(load["client"]))
    if load.get("command"):
        told.append(f"{load.get('role', 'producer')} `{load['command']}`")
    settings = {**mapping(mapping(plan.get("cluster")).get("settings")), **mapping(load.get("topic_settings"))}
    if str(settings.get("unclean.leader.election.enable", "")).lower() == "true":
        told.append("unclean elections")
    return ", ".join(told)


def _findings(verdict: Json, info: Json) -> Iterable[str]:
    found = [_anomaly_text(each) for each in objects(verdict.get("anomalies")) if not each.get("permitted")]
    # A simulation is invalid by its invariants too: they are reasons, and no anomalies.
    reasons = texts(verdict.get("reasons")) if verdict.get("verdict") != "invalid" or not found else []
    told, more = reasons[:REASONS], len(reasons) - REASONS
    yield from (each for each in found if not any(reason.startswith(f"{each}, ") for reason in told))
    yield from map(_short, told)
    if more > 0:
        yield f"and {more} more reason{'s'[: more > 1]}"
    if not verdict:
        yield str(info.get("trouble") or "it was not judged: `squall verify` does that")


def _is_permitted_beside_loss(anomaly: Json) -> bool:
    return anomaly.get("permitted") is True and anomaly.get("name") not in LOSS


def _anomaly_text(anomaly: Json) -> str:
    evidence = f" ({anomaly['evidence']})" if anomaly.get("evidence") else ""
    return f"{anomaly.get('name', '?')}{evidence}: {anomaly.get('count', '?')}"


def _short(reason: str) -> str:
    reason = " ".join(reason.split())
    return reason if len(reason) <= REASON_LETTERS else f"{reason[: REASON_LETTERS - 1]}…"


def _toml(path: Path) -> Json:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _json(path: Path) -> Json:
    try:
        found: Any = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return mapping(found)


def to_remove(
    rows: Sequence[RunListEntry], now: datetime, days: float | None, limit_bytes: int | None
) -> list[RunListEntry]:
    """Return the valid runs to remove: those older than `days`, then the oldest until all runs together are below
    `limit_bytes`.

    Runs that are not valid stay, whatever their age and size: a person has to look at them.
    """
    going = []
    left = sum(row.bytes for row in rows)
    # From the oldest on: `runs_in` lists the newest first.
    for row in reversed(rows):
        if row.verdict not in REMOVABLE:
            continue
        old = days is not None and row.began is not None and (now - row.began).total_seconds() > days * 86_400
        if old or (limit_bytes is not None and left > limit_bytes):
            going.append(row)
            left -= row.bytes
    return going


def compared(rows: Sequence[RunListEntry]) -> list[tuple[str, tuple[str, ...]]]:
    """Return (field, its value in each run) for every field of a row."""

    def cells(row: RunListEntry) -> dict[str, str]:
        return {
            "run": row.name,
            "verdict": row.verdict,
            "workload": row.workload,
            "where": row.where,
            "configuration": row.configuration,
            "seed": "" if row.seed is None else str(row.seed),
            "faults": ", ".join(row.faults),
            "landed": row.landed_of,
            "acknowledged": _or_none(row.acked),
            "p99, ms": _tenths(row.p99_ms),
            "longest unavailability, s": _tenths(row.unavailable_s),
            "findings": "; ".join(row.findings),
            "permitted loss": row.loss,
            "permitted": "; ".join(row.permitted),
        }

    told = [cells(row) for row in rows]
    return [(what, tuple(each[what] for each in told)) for what in told[0]]


def _tenths(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _or_none(value: float | None) -> str:
    return "" if value is None else f"{value:,}"
