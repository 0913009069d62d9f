"""Presents the verdict for people: one row for each check, whether or not it found something. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from squall.checkers.anomalies.registry import CATALOG, FOUND, LOOKED_FOR
from squall.checkers.engines import REFERENCE, SPARK
from squall.checkers.guarantees import SAFE_EXPECTED
from squall.reports import summary
from squall.reports.run_files import Json, RunFiles, integer, mapping, number, objects, texts

VALID, INVALID, UNKNOWN = "valid", "invalid", "unknown"
FAILED, PERMITTED, CLEAN, NOT_RUN, UNJUDGED = "not permitted", "permitted", "none found", "not run", "not judged"
LITTLE = "ran on little"
_NO_FINDINGS = "the checks did not run to their end"
WITNESSES = 20
PARTITIONS_NAMED = 6
OUTCOMES = ("ok", "fail", "info")
_ENGINES = {SPARK: "Spark searched the history.", REFERENCE: "The reference engine searched the history."}
INVARIANT = "invariant "
"""Precedes the name of an invariant of the simulator in the name of its check."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Holds the result of one check with one kind of evidence. `evidence` says what is needed to see the finding, for
    example "acks" for an acknowledgement (`squall.checkers.anomalies.anomaly`); empty if the check has only one kind.
    `count` is None if the check did not run or the number is not known.
    """

    name: str
    evidence: str
    state: str
    count: int | None
    definition: str
    why: str
    witnesses: tuple[Json, ...] = ()
    cell: str = ""
    """Names the cell of the guarantee matrix that permits the finding, or the promise that forbids it; empty if none is
    known.
    """
    blames: str = ""
    """Names the client that caused the finding, for example "the program under test"; empty if the cluster caused it,
    or if it is permitted.
    """
    moments: tuple[str, ...] = ()
    """Lists, for an invariant of the simulator, when and where it was broken, a line each."""
    partitions: tuple[tuple[str, int], ...] = ()
    """Lists (partition, number of findings there), most findings first; empty if the numbers are not known."""

    @property
    def title(self) -> str:
        """Returns the check's name, with the kind of evidence if the check has several."""
        return f"{self.name} ({self.evidence})" if self.evidence else self.name

    @property
    def key(self) -> str:
        """Returns a text that no other check of the run has. Findings of one title may be judged differently, each with
        its own reason.
        """
        return "; ".join((self.title, self.state, self.why, self.cell))

    @property
    def unseen(self) -> str:
        """Returns a sentence that names the partitions that have findings, but no witness in verdict.json; empty if
        there are no such partitions.
        """
        shown = {name for each in self.witnesses if isinstance(name := each.get("partition"), str)}
        missing = [f"{name} ({count:,})" for name, count in self.partitions if name not in shown] if shown else []
        left = len(missing) - PARTITIONS_NAMED
        more = f" and {left} more partition{'s'[: left > 1]}" if left > 0 else ""
        are = "is" if len(missing) == 1 else "are"
        return f"{', '.join(missing[:PARTITIONS_NAMED])}{more} {are} not among them." if missing else ""

    @property
    def invariant(self) -> str:
        """Returns the name of the simulator's invariant that broke; empty if the check is one of the history."""
        return self.name.removeprefix(INVARIANT) if self.name.startswith(INVARIANT) else ""


def word_of(files: RunFiles) -> str:
    """Return valid, invalid or unknown. The word is unknown also if verdict.json says something else, says nothing, or
    is of another run.
    """
    word = files.verdict.get("verdict")
    judged, run = files.verdict.get("run"), files.run.get("run")
    if word not in (VALID, INVALID) or (judged and run and judged != run) or files.overlooked:
        return UNKNOWN
    return str(word)


def banner_of(files: RunFiles) -> str:
    """Return the verdict in capitals. An invalid verdict is followed by the client that caused the findings, unless the
    cluster did; a valid one by the permitted losses.
    """
    word, blames = word_of(files), files.verdict.get("blames")
    if is_lossy(files):
        return f"{word.upper()}, {summary.loss(files, permitted=True)}"
    return f"{word.upper()}: {blames}" if word == INVALID and blames else word.upper()


def is_lossy(files: RunFiles) -> bool:
    """Return whether a run is valid and lost acknowledged records, which its configuration permits."""
    return word_of(files) == VALID and summary.loss(files, permitted=True) is not None


def reasons_of(files: RunFiles) -> list[str]:
    """Return the reasons of the verdict; never empty if the verdict is not valid."""
    word, reasons = word_of(files), texts(files.verdict.get("reasons"))
    if not files.verdict:
        reasons = ["there is no verdict that can be read: nothing was judged"]
        if files.run.get("trouble"):
            reasons.append(f"the run itself had trouble: {files.run['trouble']}")
    elif files.overlooked:
        reasons = [files.overlooked]
    elif word == UNKNOWN and not reasons:
        reasons = ["verdict.json gives no reason, or is not about this run"]
    return reasons


def checks_of(files: RunFiles) -> list[CheckResult]:
    """Return every check: first those whose findings are not permitted, then those with other findings, then the rest
    in the catalogue's order.
    """
    found = [_found(each) for each in objects(files.verdict.get("anomalies"))]
    order = {FAILED: 0, UNJUDGED: 1, PERMITTED: 2}
    found.sort(key=lambda check: order[check.state])
    ran = _ran(files)
    seen = {check.name for check in found}
    found = [*_invariants(files), *found]
    why = mapping(files.verdict.get("not_run"))
    little = mapping(files.verdict.get("ran_on_little"))
    rest = [
        CheckResult(
            name, "", LITTLE if name in little else CLEAN, 0, CATALOG[name].definition, str(little.get(name, ""))
        )
        if name in ran
        else CheckResult(name, "", NOT_RUN, None, CATALOG[name].definition, str(why.get(name) or _NO_FINDINGS))
        for name in FOUND
        if name not in seen
    ]
    return found + rest


def _invariants(files: RunFiles) -> list[CheckResult]:
    """Return a check for each broken invariant of a simulation."""
    by_name: dict[str, list[Json]] = {}
    for each in files.violations:
        by_name.setdefault(str(each.get("name")), []).append(each)
    return [
        CheckResult(
            name=INVARIANT + name,
            evidence="",
            state=FAILED,
            count=len(broken),
            definition=str(broken[0].get("definition") or "an invariant of the simulator"),
            why=f"an invariant must never break (this one is from: {broken[0].get('source') or 'docs/sim.md'})",
            moments=tuple(_moment(files, each) for each in broken[:WITNESSES]),
        )
        for name, broken in by_name.items()
    ]


def _moment(files: RunFiles, violation: Json) -> str:
    """Describe one broken invariant in a line, with its time in seconds since the load began."""
    at = files.simulated_seconds(violation.get("t"))
    where = "" if violation.get("topic") is None else f"{violation.get('topic')}-{violation.get('partition')}"
    who = "" if violation.get("node") is None else f"broker {violation.get('node')}"
    place = ", ".join(filter(None, (where, who)))
    return f"{'' if at is None else f'{at:.3f} s  '}{place}: {violation.get('message')}"


def _found(entry: Json) -> CheckResult:
    name = str(entry.get("name"))
    permitted = entry.get("permitted")
    # null in verdict.json: it is not known whether it is permitted.
    state = {True: PERMITTED, False: FAILED}.get(permitted, UNJUDGED) if isinstance(permitted, bool) else UNJUDGED
    known = CATALOG.get(name)
    return CheckResult(
        name=name,
        evidence=str(entry.get("evidence") or ""),
        state=state,
        count=integer(entry.get("count")) if integer(entry.get("count")) >= 0 else None,
        definition=str(entry.get("definition") or (known.definition if known else "")),
        why=str(entry.get("why") or ""),
        witnesses=tuple(objects(entry.get("witnesses"))[:WITNESSES]),
        cell=_cell(state, mapping(entry.get("cell"))),
        blames=str(entry.get("blames") or ""),
        partitions=tuple(summary.partitions_of(entry)),
    )


def _cell(state: str, cell: Json) -> str:
    """Describe in words the cell of the guarantee matrix that decides a finding. `cell` is the finding's entry of that
    name in verdict.json. `state` is PERMITTED, FAILED, or another state if it is not known whether the finding is
    permitted.

    Return an empty text if `cell` is empty, as in verdicts of earlier versions, or for --expect safe, which
    `CheckResult.why` explains.
    """
    if not cell or cell.get("row") == SAFE_EXPECTED.row:
        return ""
    which = f'"{cell.get("row")}", under {cell.get("under")}'
    does = {PERMITTED: f"the cell {which}, permits this", FAILED: f"the promise of {which}, forbids this"}.get(
        state, f"it depends on the cell {which}"
    )
    return f"{does[0].upper()}{does[1:]} ({cell.get('source')})"


def _ran(files: RunFiles) -> set[str]:
    """Return the names of the checks that ran to their end; none if the verdict does not say so."""
    told = [*texts(files.verdict.get("reasons")), *texts(files.verdict.get("notes"))]
    if any(_NO_FINDINGS in each for each in told):
        return set()
    listed = next((each.removeprefix(LOOKED_FOR) for each in told if each.startswith(LOOKED_FOR)), "")
    return {name.strip() for name in listed.split(",")} - {""}


def notes_of(files: RunFiles) -> list[str]:
    """Return the verdict's notes without the list of checks, which has its own table."""
    return [each for each in texts(files.verdict.get("notes")) if not each.startswith(LOOKED_FOR)]


def sentence(files: RunFiles) -> str:
    """Return the verdict in a few sentences. If there are several reasons, the text ends with a colon, and the list of
    `reasons_of` is to follow.
    """
    word, reasons = word_of(files), reasons_of(files)
    if word == VALID:
        return _valid_sentence(files)
    lost = summary.loss(files, permitted=True)
    if word == INVALID:
        return _broken_sentence(files, reasons) + (f" Beside that, {lost}." if lost else "")
    start = f"{lost}. Nothing is proven either way" if lost else "Nothing is proven either way"
    if len(reasons) > 1:
        return f"{start}, for {len(reasons)} reasons:"
    return f"{start}: {reasons[0] if reasons else 'verdict.json gives no reason'}."


def judged_by(files: RunFiles) -> str:
    """Return in a sentence which engine searched the history; empty if none did, or if an early version did not record
    it.
    """
    return _ENGINES.get(str(files.verdict.get("engine")), "")


def _valid_sentence(files: RunFiles) -> str:
    """Say how many checks ran, and why their findings are permitted."""
    ran = sum(check.state != NOT_RUN for check in checks_of(files))
    found = any(check.state == PERMITTED for check in checks_of(files))
    said = f"{ran} checks ran{', and what they found is permitted' if found else ' and found nothing'}."
    end = "After healing, every partition was read to its end."
    return " ".join(filter(None, [said, *summary.permitted(files), end]))


def _broken_sentence(files: RunFiles, reasons: list[str]) -> str:
    """Say what the findings mean, where they are, and what they break: the configuration's promise, or --expect safe.
    If verdict.json has no finding to describe, give the first of its `reasons` instead.
    """
    said = summary.broken(files)
    if not said and files.violations:
        names = list(dict.fromkeys(str(each.get("name")) for each in files.violations))
        said = [f"The simulator saw {len(names)} broken invariant{'s'[: len(names) > 1]}: {', '.join(names)}."]
    if not said:
        return f"{summary.held_to(files)[:-1]}: {reasons[0] if reasons else 'verdict.json gives no reason'}."
    if files.verdict.get("blames"):
        return f"{' '.join(said)} Nothing was found against the cluster."
    lost = summary.loss(files, permitted=False)
    where = summary.lost_by_partition(lost) if lost else summary.found_by_partition(files)
    return " ".join(filter(None, [*said, summary.held_to(files), where]))


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """Holds the key numbers of a run; a number that is not known is None."""

    sent: int | None
    sent_after: int
    """Counts those records of `sent` that were sent after healing. `p50_ms`, `p99_ms` and `timed` do not include them.
    """
    acked: int | None
    failed: int | None
    unknown: int | None
    read: int | None
    landed: int
    planned: int | None
    unavailable_s: float | None
    unavailable_partition: str
    stuck_clients: dict[str, str]
    """Maps a partition to the client that got no acknowledgement there for too long, while new clients got some
    (`summary.stuck_clients`).
    """
    clients: dict[str, str]
    """Maps a partition to the only client for which it was unavailable (`summary.unavailable_to`). The partition served
    other clients.
    """
    p50_ms: float | None
    p99_ms: float | None
    timed: int
    """Counts the measured latencies; 0 if the number is not known. With fewer than 100 latencies, p99 is close to the
    largest.
    """

    @property
    def unavailable_to(self) -> str:
        """Returns the client to which the worst partition was unavailable while it served others; empty if it is not
        known that it served others.
        """
        return self.clients.get(self.unavailable_partition, "")


def figures_of(files: RunFiles) -> KeyFigures:
    """Return the key numbers of a run. The numbers of sends come from the history if it was analysed, else from the
    workload's own counters.

    The workload does not count writes after healing, the history does. If the history was analysed, `sent` is the sum
    of acknowledged, failed and unknown sends, writes after healing included.
    """
    sends = mapping(mapping(files.metrics.get("outcomes")).get("send"))
    counters = mapping(files.run.get("counters"))
    gaps = {
        name: length
        for name, gap in mapping(mapping(files.metrics.get("unavailable")).get("partitions")).items()
        if (length := number(mapping(gap).get("s"))) is not None
    }
    worst = max(gaps, key=lambda name: gaps[name], default="")
    latency = mapping(mapping(files.metrics.get("latency_ms")).get("all"))

    def count(history_key: str, counter: str) -> int | None:
        # An outcome that no send had is missing in the table.
        value = sends.get(history_key, 0) if sends else counters.get(counter)
        return value if isinstance(value, int) else None

    read = counters.get("read")
    of_load = counters.get("sent")
    sent = sum(integer(sends.get(each), 0) for each in OUTCOMES) if sends else count("sent", "sent")
    return KeyFigures(
        sent=sent,
        sent_after=max(0, sent - of_load) if sent is not None and isinstance(of_load, int) else 0,
        acked=count("ok", "acked"),
        failed=count("fail", "failed"),
        unknown=count("info", "info"),
        read=read if isinstance(read, int) else None,
        landed=files.landed(),
        planned=files.planned_faults(),
        unavailable_s=gaps.get(worst),
        unavailable_partition=worst,
        stuck_clients=summary.stuck_clients(files.verdict),
        clients=summary.unavailable_to(files.verdict),
        p50_ms=number(latency.get("p50")),
        p99_ms=number(latency.get("p99")),
        timed=integer(latency.get("count"), 0),
    )
