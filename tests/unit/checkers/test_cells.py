"""Every cell of the matrix of guarantees, walked with histories in which each anomaly fires.

Short histories, one for each anomaly and each kind of evidence, take place in one run. The run is judged under each row
and each class of faults. What a cell permits is permitted by that cell; all else that fires is forbidden, by the cell
of the worst faults. `MATRIX` is section 4 of the documents, written down once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from squall.checkers import mechanisms
from squall.checkers.anomalies.anomaly import JEPSEN
from squall.checkers.anomalies.registry import CATALOG, find_all
from squall.checkers.findings import Finding, findings_of
from squall.checkers.guarantees import (
    ADDED,
    ALWAYS,
    ANY,
    BASE,
    NO_FAULT,
    GuaranteeRow,
    PermissionCellName,
    RunConfiguration,
    guarantee_for,
)
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import LATE_END, ClientProcess, RecordedFault
from squall.checkers.history.values import AFTER_HEALING
from squall.checkers.leaderships import Leaderships
from squall.checkers.mechanisms import MechanismSign
from squall.checkers.plan_facts import facts_of
from squall.checkers.promises import GROUPS, IDEMPOTENCE, OF_FAMILY, ONE_IN_FLIGHT, ORDER
from squall.checkers.reasons import mechanism_of
from squall.checkers.signs import RunCircumstances
from squall.checkers.verdict import JudgedFinding, decide, to_json
from squall.checkers.verdict_inputs import VerdictInputs
from tests.support.histories.anomaly_cases import CASES
from tests.support.histories.builder import MS, HistoryBuilder, merged
from tests.unit.checkers.test_guarantees import REACHED

NOBODY: frozenset[str] = frozenset()
LOSS = frozenset({"lost-write", "unseen"})
TAIL = LOSS | {"inconsistent-offset/acks", "stale-ack/acks", "send-reorder/acks"}
"""Anomalies when records are lost that no reader got: the loss, and its effects on other checks."""
READ = TAIL | {
    "inconsistent-offset/reads",
    "duplicate/reads",
    "send-reorder/reads",
    "wrong-offset/reads",
    "offset-regression/high watermark",
    "offset-regression/last stable offset",
    "thrown-back/log truncated",
    "thrown-back/offset out of range",
}
"""Anomalies when records are lost that readers got."""
HOLED = READ | {"poll-skip", "int-poll-skip"}
"""Anomalies when a segment file inside the log is lost."""
UNCLEAN = READ | {"wrong-offset", "offset-regression"}
LATE_NAMES = ("G1a", "dirty-read", "torn-txn", "lost-txn", "G1c")
LATE_NAMES += ("lost-position", "uncommitted-offset", "eos-duplicate", "eos-loss")
LATE = frozenset(f"{name}/{LATE_END}" for name in LATE_NAMES)
OF_TRANSACTIONS = frozenset(
    {"torn-txn", "lost-txn", "poll-skip", "int-poll-skip", "G1a", "dirty-read", "G1c", "zombie-write"}
    | {"hanging-txn", "stuck-consumer"}
)
"""Anomalies that are permitted, too, if records of transactions may be lost."""

OF_GROUPS = frozenset(
    {"lost-position", "commit-ahead", "dual-ownership", "uncommitted-offset", "eos-duplicate", "eos-loss"}
)
"""Anomalies that are permitted, too, if committed offsets, members or inputs of groups may be lost."""

PROMISED = {IDEMPOTENCE, ONE_IN_FLIGHT, *OF_FAMILY.values()}
BROKEN = {
    "duplicate": IDEMPOTENCE,
    "send-reorder": IDEMPOTENCE,
    "replica-divergence": "replicated log",
    "nonmonotonic-poll": "reads in the log's order",
    "torn-txn": "transactions",
    "dual-ownership": GROUPS,
    "stuck-producer": "progress after healing",
}
"""Anomaly -> the promise that it breaks."""

SERVED = LOSS | {"lso-violation", "corrupt", "wrong-lookup", "stuck-consumer", "stuck-group", "not-converged"}
"""Anomalies that are permitted if Apache Kafka's leader has a damaged batch."""
COLUMNS = ("", "W1", "WM", "D", "DM")
"""Classes of faults (`FaultClass`): the column "" holds for processes, network and clocks (P, N, C)."""
MATRIX: dict[str, tuple[frozenset[str], ...]] = {
    "acks=0": (
        TAIL | {"send-reorder"},
        *[READ | {"send-reorder"}] * 2,
        *[HOLED | {"send-reorder", "corrupt", "wrong-lookup"}] * 2,
    ),
    "acks=1": (TAIL, READ, READ, HOLED, HOLED),
    "acks=all, min ISR 2 or more, flush.messages=1": (NOBODY, NOBODY, NOBODY, NOBODY, HOLED),
    "acks=all, flush.messages=1": (NOBODY, NOBODY, NOBODY, HOLED, HOLED),
    "acks=all, min ISR 2 or more": (NOBODY, NOBODY, READ, NOBODY, HOLED),
    "acks=all, min ISR 1": (NOBODY, READ, READ, HOLED, HOLED),
    "unclean leader election": (UNCLEAN,) * 5,
    "unclean elections by request": (UNCLEAN,) * 5,
    "requests that arrive twice": (frozenset({"failed-yet-read"}),) * 5,
    "idempotence off": (frozenset({"duplicate"}),) * 5,
    "idempotence off, more than one request in flight": (frozenset({"send-reorder"}),) * 5,
    "read_uncommitted": (frozenset({"G1a", "dirty-read", "torn-txn"}),) * 5,
    "transactions V1": (LATE,) * 5,
    "auto-commit": (frozenset({"eos-duplicate", "eos-loss"}),) * 5,
    "positions committed before outputs (at most once)": (frozenset({"eos-loss"}),) * 5,
    "positions committed after outputs (at least once)": (frozenset({"eos-duplicate"}),) * 5,
    "positions committed in transactions (exactly once)": (NOBODY,) * 5,
    "truncation to the high watermark": (READ | {"inconsistent-offset", "replica-divergence"},) * 5,
    "Apache Kafka's fetch answers": (*[frozenset({"lso-violation"})] * 3, *[SERVED] * 2),
    "ISR by messages": (frozenset({"stuck-producer", "not-converged"}),) * 5,
}
"""The anomalies that each row (a configuration) permits, by column."""
WITH_IT = {
    "acks=0": frozenset({"duplicate", "send-reorder", "wrong-offset"}),
    "acks=1": frozenset({"duplicate", "send-reorder", "wrong-offset"}),
    "idempotence off, more than one request in flight": frozenset({"duplicate"}),
}
"""What other rows permit that hold wherever this one does: Kafka has no idempotence with acks=0 and acks=1."""
FLUSHED = {"flush.messages": "1"}
STRONGEST = "acks=all, min ISR 2 or more, flush.messages=1"
"""The configuration that permits nothing, except if a damaged replica was the only one in sync (DM)."""
ROWS: dict[str, GuaranteeRow] = {row.name: row for row in (*BASE, *ADDED)}
SILENT = ("read_uncommitted",)
"""Rows whose readers are not checked: see `test_what_a_reader_at_read_uncommitted_gets_is_not_even_found`."""


# ------------------------------------------------------------------------------------------- one run with everything


def _reordered_for_readers() -> HistoryBuilder:
    """A reader got two records in the wrong order. Both are gone before the final reads."""
    h = HistoryBuilder()
    p = h.producer()
    first, second = h.send(p), h.send(p)
    h.info(first)
    h.info(second)
    h.poll(h.reader(), [(0, second.val), (1, first.val)])
    h.final([], end=0)
    return h


def _circle_after_a_late_end() -> HistoryBuilder:
    """The commit of an earlier transaction is asked for twice. The next one of its epoch and another one, of another
    producer, read each other's record and commit.
    """
    h = HistoryBuilder()
    p, q = h.producer(request_timeout_ms=100, isolation=1), h.producer(isolation=1)
    h.initialised(p)
    before = h.begin(p)
    first = h.ok(h.send(p, txn=before), 0).val
    h.ask_end(before, "commit")
    h.tick(100 * MS)
    before.t1, before.completion = h.tick(), {"st": 0, "how": "commit", "pid": 4000, "pe": 0}
    mine, theirs = h.begin(p), h.begin(q, "b")
    one, two = h.ok(h.send(p, txn=mine), 2).val, h.ok(h.send(q, txn=theirs), 3).val
    h.poll(p, [(3, two)], at=3, txn=mine)
    h.poll(q, [(2, one)], at=2, txn=theirs)
    h.end(mine, "commit")
    h.end(theirs, "commit")
    for isolation in (0, 1):
        h.final([(0, first), (2, one), (3, two)], end=6, position=6, isolation=isolation)
    return h


def _key(anomaly: str, evidence: str) -> str:
    return f"{anomaly}/{evidence}" if evidence else anomaly


def _permits(permitted: Iterable[str], anomaly: str, evidence: str) -> bool:
    return anomaly in permitted or _key(anomaly, evidence) in permitted


@dataclass(frozen=True)
class Everything:
    """The findings of one run, and the process of each."""

    findings: tuple[Finding, ...]
    processes: tuple[ClientProcess, ...]


@cache
def everything() -> Everything:
    """Return for each anomaly and kind of evidence the shortest history that shows it, all side by side."""
    shortest = {}
    for sentence in sorted(CASES, key=lambda each: -len(CASES[each].found)):
        shortest |= dict.fromkeys(CASES[sentence].found, sentence)
    builders = [CASES[sentence].build() for sentence in sorted(set(shortest.values()))]
    lines = merged([*builders, _reordered_for_readers(), _circle_after_a_late_end()])
    history = parse(lines)
    assert history.problem is None, history.problem
    by_run = ("replica-divergence", "not-converged", "stuck-producer", "stuck-consumer")
    shown_by_the_run = [Finding(name, "", -1, 1, (), ((0, 1),)) for name in by_run]
    return Everything((*findings_of(find_all(history)), *shown_by_the_run), tuple(history.processes))


FAULTS = {
    "": ("P", None),
    "W1": ("W1", {"isr": {"t-0": [1, 2, 3]}}),
    "WM": ("WM", None),
    "D": ("D", None),
    "DM": ("DM", None),
}


def _fault(column: str) -> RecordedFault:
    fault_class, evidence = FAULTS[column]
    action, params = ("damage", {"how": "file"}) if "D" in column else ("any", {})
    # It does not tell which file it took: a segment of any log may be gone.
    return RecordedFault(0, action, fault_class, (), "node:1", (1,), params, 0, 1, 2, evidence or {"gone": True}, "")


def _as_planned(process: ClientProcess, plan: RunConfiguration) -> ClientProcess:
    """Return a process with the plan's settings; a reader keeps its isolation level. All commit offsets as planned."""
    if process.role != "producer":
        return replace(process, settings={**process.settings, "commits": plan.commits})
    planned = {name: getattr(plan, name) for name in ("acks", "idempotence", "max_in_flight", "commits")}
    return replace(process, client="squall", settings={**process.settings, **planned})


EVERY_SIGN = MechanismSign(sum(MechanismSign))
HAPPENED = RunCircumstances(Leaderships(unknown=""), everywhere=EVERY_SIGN)
"""Circumstances in which every mechanism is an explanation of every finding."""
NOTHING_HAPPENED = RunCircumstances(Leaderships(unknown=""))


def judged(
    plan: dict[str, Any], column: str, *, whose: bool = False, ground: RunCircumstances = HAPPENED
) -> tuple[JudgedFinding, ...]:
    """Judge all findings under a plan and a class of faults. whose: judge each by the settings of its own process."""
    found = everything()
    findings = found.findings if whose else tuple(replace(each, proc=-1) for each in found.findings)
    findings = tuple(replace(each, signs=int(ground.everywhere)) for each in findings)
    facts = facts_of(plan)
    processes = [_as_planned(process, facts.configuration) for process in found.processes]
    case = VerdictInputs(
        "r", findings=findings, plan=facts, processes=processes, faults=[_fault(column)], circumstances=ground
    )
    return decide(case).anomalies


def plan_of(row: str) -> dict[str, Any]:
    """Return a plan to which the row applies. For a row of `ADDED` the plan's base row permits nothing."""
    plan = REACHED[row]
    if row in (each.name for each in BASE):
        return plan
    workload = plan["workload"]
    return {**plan, "workload": {**workload, "topic_settings": {**workload.get("topic_settings", {}), **FLUSHED}}}


def permitted_in(row: str, column: str) -> frozenset[str]:
    """Return the anomalies that a row permits under these faults: those of its first column and of this one."""
    always, by_class = MATRIX[row][0], MATRIX[row][COLUMNS.index(column)]
    return always | by_class


CELLS = [
    (row, column)
    for row in MATRIX
    if row not in SILENT
    for column in COLUMNS
    # Under DM no base row permits nothing: what the others add does not show beside it.
    if column != "DM" or row in (each.name for each in BASE)
]


# ------------------------------------------------------------------------------------------------------- the walk


def test_the_matrix_has_these_rows_and_cells() -> None:
    assert MATRIX.keys() == ROWS.keys()
    for name, row in ROWS.items():
        cells = (row.always, row.w1, row.wm, row.d, row.dm)
        assert tuple(frozenset(cell.permits) for cell in cells) == MATRIX[name], name


def test_everything_that_some_cell_permits_fires() -> None:
    fires = {_key(each.anomaly, each.evidence) for each in everything().findings}
    named = {each.anomaly for each in everything().findings}
    permitted = {key for cells in MATRIX.values() for cell in cells for key in cell} | OF_TRANSACTIONS
    assert {key for key in permitted if key not in fires | named} == set()


@pytest.mark.parametrize(("row", "column"), CELLS)
def test_a_cell_permits_what_it_names_and_forbids_all_else_that_fires(row: str, column: str) -> None:
    own, others = permitted_in(row, column), WITH_IT.get(row, NOBODY)
    seen = set()
    for each in judged(plan_of(row), column):
        expected = _permits(own | others, each.name, each.evidence)
        assert each.permitted is expected, (each.name, each.evidence, each.why)
        assert each.cell is not None
        if _permits(own, each.name, each.evidence):
            seen |= {each.name, _key(each.name, each.evidence)} & own
            # Where another row permits it whatever the evidence is, that is said.
            assert each.cell.row == row or each.name in others - own, (each.name, each.evidence)
            assert each.cell.under in (ALWAYS, ANY, column)
        if not expected:
            assert each.cell.row in ((row, STRONGEST) if each.name in LOSS else PROMISED)
            assert each.cell.under == (ALWAYS if not column else column)
    assert seen == own, "each of them fired, and was permitted by this row"


@pytest.mark.parametrize(("row", "column"), CELLS)
def test_a_cell_permits_nothing_whose_mechanism_did_not_happen(row: str, column: str) -> None:
    for each in judged(plan_of(row), column, ground=NOTHING_HAPPENED):
        ways = guarantee_for(facts_of(plan_of(row)).configuration, [FAULTS[column][0]]).ways_of(
            each.name, each.evidence
        )
        if any(mechanism_of(reason) is mechanisms.ITSELF for reason, _ in ways):
            assert each.permitted is True, (each.name, each.evidence)
        elif each.permitted is not False or (ways and "that did not happen" not in each.why):
            pytest.fail(f"{each.name}/{each.evidence} is permitted by nothing: {each.why}")


@pytest.mark.parametrize(("row", "column"), CELLS)
def test_a_mechanism_that_nobody_could_look_at_makes_it_unknown(row: str, column: str) -> None:
    unlooked = RunCircumstances(
        Leaderships(unknown="nodes/2/trace.jsonl is gone"), power_unknown="node 2 was not looked at"
    )
    for each in judged(plan_of(row), column, ground=unlooked):
        ways = guarantee_for(facts_of(plan_of(row)).configuration, [FAULTS[column][0]]).ways_of(
            each.name, each.evidence
        )
        needed = [mechanism_of(reason) for reason, _ in ways]
        if mechanisms.ITSELF in needed:
            assert each.permitted is True
        elif whys := [why for mechanism in needed if all(why := [*map(unlooked.why_unknown, mechanism.needs)])]:
            assert (each.permitted, any(why[0] in each.why for why in whys)) == (None, True), each.name
        else:
            assert each.permitted is False


@pytest.mark.parametrize("column", [column for column in COLUMNS if column != "DM"])
def test_the_same_run_under_the_strongest_row_is_forbidden_all_of_it(column: str) -> None:
    found = judged(plan_of(STRONGEST), column)
    assert {each.permitted for each in found} == {False}
    cells = {each.name: each.cell for each in found if each.cell}
    assert {cell.row for cell in cells.values()} == {STRONGEST, *PROMISED} - {ONE_IN_FLIGHT}
    for name, row in BROKEN.items():
        assert cells[name].row == row, name
    for name in cells.keys() - LOSS - {"send-reorder"}:
        assert cells[name].source == CATALOG[name].source.removeprefix(f"{JEPSEN}; "), "not where acks are written of"
    keys = {_key(each.name, each.evidence) for each in found} | {each.name for each in found}
    assert {key for cells in MATRIX.values() for cell in cells for key in cell} <= keys


@pytest.mark.parametrize("row", [row.name for row in BASE])
@pytest.mark.parametrize("column", ["W1", "WM", "D", "DM"])
def test_what_only_worse_faults_permit_is_forbidden_without_them(row: str, column: str) -> None:
    always = permitted_in(row, "") | WITH_IT.get(row, NOBODY)
    more = permitted_in(row, column) - always
    for each in judged(plan_of(row), ""):
        if _permits(more, each.name, each.evidence) and not _permits(always, each.name, each.evidence):
            assert each.permitted is False and each.cell is not None
            assert each.cell.under == ALWAYS
            assert each.cell.row in ((row,) if each.name in LOSS else PROMISED)


@pytest.mark.parametrize("row", [row.name for row in BASE])
@pytest.mark.parametrize("column", COLUMNS)
def test_each_process_is_judged_by_its_own_row(row: str, column: str) -> None:
    """A reader is judged as if all producers used acks=all."""
    plan = plan_of(row)
    topics = {**plan, "workload": {**plan["workload"], "acks": -1, "idempotence": True}}
    facts = facts_of(topics).configuration
    of_readers = next(each.name for each in BASE if each.holds(facts))
    roles = {process.proc: process.role for process in everything().processes}
    for each in judged(plan, column, whose=True):
        for proc in each.processes:
            reads = roles.get(proc) in ("reader", "final")
            own = permitted_in(of_readers if reads else row, column) | (NOBODY if reads else WITH_IT.get(row, NOBODY))
            assert each.permitted is _permits(own, each.name, each.evidence), (each.name, each.evidence, proc)


@pytest.mark.parametrize("row", [row.name for row in BASE if row.name not in ("acks=0", "acks=1")])
@pytest.mark.parametrize("column", COLUMNS)
def test_where_records_of_transactions_may_be_lost_what_follows_is_permitted_by_the_same_cell(
    row: str, column: str
) -> None:
    plan = plan_of(row)
    plan = {**plan, "workload": {**plan["workload"], "generation": 2}}
    lossy = "lost-write" in permitted_in(row, column)
    follows = [each for each in judged(plan, column) if each.name in OF_TRANSACTIONS]
    assert {each.name for each in follows} == OF_TRANSACTIONS
    for each in follows:
        assert each.permitted is lossy, (each.name, each.evidence)
        assert each.cell is not None and each.cell.under == (column or ALWAYS)
        assert each.cell.row in ((row,) if lossy else PROMISED)


@pytest.mark.parametrize("row", [row.name for row in BASE if row.name not in ("acks=0", "acks=1")])
@pytest.mark.parametrize("column", COLUMNS)
def test_where_committed_records_may_be_lost_positions_and_outputs_may_be_too(row: str, column: str) -> None:
    plan = plan_of(row)
    plan = {**plan, "workload": {**plan["workload"], "commits": "transaction"}}
    lossy = "lost-write" in permitted_in(row, column)
    follows = [each for each in judged(plan, column) if each.name in OF_GROUPS]
    assert {each.name for each in follows} == OF_GROUPS
    for each in follows:
        if each.evidence == "own commit":
            assert each.permitted is False, "a program did that itself, whatever was lost"
            continue
        assert each.permitted is lossy, (each.name, each.evidence)
        whose = row if lossy else GROUPS
        assert each.cell is not None and (each.cell.row, each.cell.under) == (whose, column or ALWAYS)


def test_what_a_reader_at_read_uncommitted_gets_is_not_even_found() -> None:
    """It may get everything; so the cell of its row is what `squall guarantees` prints, and no finding needs it."""
    plan = facts_of(REACHED["read_uncommitted"]).configuration
    permitted = guarantee_for(replace(plan, isolation=0, transaction_version=2), ["P"])
    for name in MATRIX["read_uncommitted"][0]:
        assert permitted.ways_of(name, "reads") and permitted.cells[name].row == "read_uncommitted"
    h = HistoryBuilder()
    p = h.producer()
    h.initialised(p)
    txn = h.begin(p)
    val = h.ok(h.send(p, txn=txn), 0).val
    h.poll(h.reader(isolation=0), [(0, val)])
    h.end(txn, "abort")
    h.final([(0, val)], end=2, position=2)
    h.final([], end=2, position=2, isolation=1)
    assert not list(find_all(h.history()))


# ------------------------------------------------------------------------------------------------ what people see


def test_a_verdict_names_the_cell_and_its_source() -> None:
    found = decide(
        VerdictInputs(
            "r", findings=everything().findings, plan=facts_of(REACHED["acks=all, min ISR 1"]), faults=[_fault("W1")]
        )
    )
    written = {(each["name"], each["evidence"]): each["cell"] for each in to_json(found)["anomalies"]}
    assert written["lost-write", ""] == {
        "row": "acks=all, min ISR 1",
        "under": "W1",
        "source": "KIP-966: Eligible Leader Replicas (the last replica standing)",
    }
    assert written["phantom", ""]["row"] == "replicated log"


@pytest.mark.parametrize(("idempotence", "row"), [(True, IDEMPOTENCE), (False, ONE_IN_FLIGHT)])
def test_the_promise_of_an_order_is_that_of_its_producer(idempotence: bool, row: str) -> None:
    """The harness's own writer is idempotent: its promise is not cited for the workload's producers."""
    settings = {"idempotence": idempotence, "max_in_flight": 1}
    plan = REACHED["acks=all, min ISR 2 or more"]
    plan = facts_of({**plan, "workload": {**plan["workload"], **settings}})
    producer = ClientProcess(0, "producer", "program", "", "", settings)
    writer = replace(producer, proc=1, settings={AFTER_HEALING: True, "idempotence": True})
    reordered = Finding("send-reorder", "final", 0, 3, (), ((0, 3),))
    found = decide(VerdictInputs("r", findings=[reordered], plan=plan, processes=[producer, writer]))
    assert [each.cell for each in found.anomalies] == [PermissionCellName(row, NO_FAULT, ORDER[row])]
    assert found.reasons == (f"send-reorder (final): 3, not permitted: {row}",)
    assert found.guarantee is not None and " / " not in found.guarantee.row


def test_where_everything_is_promised_that_forbids() -> None:
    case = VerdictInputs("r", findings=everything().findings, plan=facts_of(REACHED["acks=0"]), expect="safe")
    cells = {each.cell for each in decide(case).anomalies}
    assert cells == {PermissionCellName("--expect safe permits no anomaly", ANY, "the run's plan, or --expect safe")}


def test_where_the_plan_is_not_known_no_cell_is_named() -> None:
    assert {each.cell for each in decide(VerdictInputs("r", findings=everything().findings)).anomalies} == {None}
