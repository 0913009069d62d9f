"""Explains what the verdict `valid` is worth: what the configuration promises, which faults were tried, and what was
checked. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from squall.checkers import simulated
from squall.reports import checks, members
from squall.reports.answers import AnsweredQuestion
from squall.reports.checks import CheckResult
from squall.reports.fault_words import FaultRow
from squall.reports.nightly.table import CLASSES
from squall.reports.run_files import RunFiles, integer, mapping, number, objects, texts

LISTED = 4
MEMBER = "member"
"""Is the role of a program under test whose processes are members of a group."""
RUNS = 29
"""With this number of runs, a bug that shows in one run of ten is found with 95 %: 1 - 0.9 ** 29 > 0.95."""


def answers_of(
    files: RunFiles, found: Sequence[CheckResult], faults: Sequence[FaultRow]
) -> tuple[AnsweredQuestion, ...]:
    """Return four questions with answers for the top of a valid run's page: what was promised, what was tried, what was
    checked, and what that is worth. Return none for any other run: its banner says what is wrong.
    """
    if checks.word_of(files) != checks.VALID:
        return ()
    return (
        AnsweredQuestion("What was promised", " ".join(_promised(files))),
        AnsweredQuestion("What was tried", " ".join(_tried(files, faults))),
        AnsweredQuestion("What was looked at", " ".join(_looked_at(files, found))),
        AnsweredQuestion("What that is worth", " ".join(_worth(files, found))),
    )


def _promised(files: RunFiles) -> Iterator[str]:
    guarantee = mapping(files.verdict.get("guarantee"))
    rows = str(guarantee.get("row") or "not known").split("; ")
    # A row may repeat another one: "idempotence off", and "idempotence off, more than one request in flight".
    row = ", ".join(each for each in rows if not any(other.startswith(f"{each}, ") for other in rows))
    classes = [CLASSES.get(each, each) for each in texts(guarantee.get("fault_classes"))]
    yield f"{row}{f', under faults of {_listed(classes)}' if classes else ''}:"
    permitted = sorted(mapping(guarantee.get("permitted")))
    if files.verdict.get("expect") == "safe":
        yield "no anomaly was accepted (--expect safe)."
    elif permitted:
        yield f"{_listed(permitted)} may happen, and no other anomaly."
    else:
        yield "no anomaly is permitted."


def _tried(files: RunFiles, faults: Sequence[FaultRow]) -> Iterator[str]:
    figures, load = checks.figures_of(files), mapping(files.plan.get("workload"))
    sent = "An unknown number of" if figures.sent is None else f"{figures.sent:,}"
    kinds = [(integer(load.get(name), 0), name) for name in ("producers", "readers", "members")]
    program = load.get("command") if load.get("role") == MEMBER else None
    clients = [
        f"{many} {name.removesuffix('s'[: many == 1])}{f' of a group ({program})' if name == 'members' else ''}"
        for many, name in kinds
        if many > 0 and (name != "members" or program)
    ]
    seconds = number(files.plan.get("time_s"))
    clock = " of virtual time" if simulated.KEY in files.run else ""
    yield (
        f"{sent} sends{f', with {_listed(clients)}' if clients else ''}"
        f"{f', in {seconds:g} s{clock}' if seconds is not None else ''}."
    )
    commits = integer(mapping(mapping(files.metrics.get("outcomes")).get("commit")).get("ok"), 0)
    if program and commits > 0:
        yield f"The members committed positions {commits:,} time{'s'[: commits > 1]}."
    landed = [fault for fault in faults if fault.state == "landed"]
    if not figures.planned:
        yield "No fault was planned."
        return
    labels = [fault.label for fault in landed]
    told = labels if len(labels) <= LISTED else [*labels[: LISTED - 1], f"{len(labels) - LISTED + 1} more"]
    yield f"{len(landed)} of {figures.planned} faults landed{f': {_listed(told)}' if told else ''}."
    during = integer(mapping(mapping(files.metrics.get("latency_ms")).get("with_faults")).get("count"))
    if during >= 0:
        yield f"{during:,} records were acknowledged during faults."


def _looked_at(files: RunFiles, found: Sequence[CheckResult]) -> Iterator[str]:
    ran = [check for check in found if check.state != checks.NOT_RUN]
    shown = [check for check in ran if check.state == checks.PERMITTED]
    kinds = len({check.name for check in ran})
    told = f"found {_listed([check.title for check in shown])}" if shown else "found nothing"
    yield f"{kinds} of {len({check.name for check in found})} checks ran and {told}."
    if why := Counter(check.why.removeprefix("the history has ") for check in found if check.state == checks.NOT_RUN):
        yield f"The others had nothing to check: {_listed([each for each, _ in why.most_common()])}."
    reads = len(objects(files.run.get("final_reads")))
    yield "After healing, every partition was read to its end" + (f", {reads} times." if reads > 1 else ".")


def _worth(files: RunFiles, found: Sequence[CheckResult]) -> Iterator[str]:
    figures = checks.figures_of(files)
    if not figures.landed:
        yield "No fault landed: the run shows that the cluster works undisturbed, and says nothing about failures."
    elif checks.is_lossy(files):
        yield "The promise was kept: it does not cover the records that were lost."
    elif figures.acked is not None:
        yield f"Each of the {figures.acked:,} acknowledged records is accounted for."
        if any(_uncommitted(files)):
            yield "Those of transactions that did not commit were promised to no reader, and are not looked for."
        if (done := _processed(files)) is not None:
            yield f"The members reported {done:,} records as processed, counted once each."
    if little := [check.title for check in found if check.state == checks.LITTLE]:
        yield f"{_listed(little)} saw little, and prove{'s' * (len(little) == 1)} little."
    more = (
        "squall nightly" if mapping(files.plan.get("workload")).get("command") else "squall nightly, squall sim --seeds"
    )
    yield (
        "This is a single run: if a bug shows in one run of ten, a single run misses it nine times out of ten, and "
        f"{RUNS} runs with other seeds ({more}) find it with a probability of 95 %."
    )


def _processed(files: RunFiles) -> int | None:
    is_member = mapping(files.plan.get("workload")).get("role") == MEMBER
    return members.processed_by_programs(files) if is_member else None


def _uncommitted(files: RunFiles) -> Iterator[int]:
    """Yield how many transactions ended in each way other than a commit."""
    ended = mapping(mapping(files.metrics.get("transactions")).get("ended"))
    return (integer(count) for how, count in ended.items() if how != "committed" and integer(count) > 0)


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
