"""Says of a transaction's story when faults were on, and which requests they held or struck. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from squall.reports.fault_words import FaultRow
from squall.reports.run_files import Json, RunFiles, mapping, number, objects
from squall.reports.transactions.moments import FAULTS, TxnMoment, length_text
from squall.reports.transactions.observed import ObservedTxn

JUST_BEFORE_S = 1.0
"""An EndTxn that came so soon after its transaction's end was asked for is that transaction's."""


def short_of(row: FaultRow) -> str:
    """A fault without its parameters, but with the API that it is about."""
    what, _, rest = row.what.partition(" (")
    api = next((each.removeprefix("api ") for each in rest.rstrip(")").split(", ") if each.startswith("api ")), "")
    return f"{what} {api}".strip()


def moments_of_fault(
    files: RunFiles, row: FaultRow, txns: Sequence[ObservedTxn], called: Mapping[int, str]
) -> Iterable[TxnMoment]:
    """Its begin, its end with what proves it, and of a fault of the protocol each request that it struck.

    `row` has begun. `txns`: whose requests these may be; `called`: their names, by operation.
    """
    assert row.began is not None
    hit, short = f" of {row.hit}" if row.hit else "", short_of(row)
    yield TxnMoment(row.began, FAULTS, "fault", short, f"Fault {row.id} begins: {row.what}{hit}.")
    line = next((each for each in files.faults if each.get("id") == row.id), {})
    api = str(mapping(line.get("params")).get("api") or "request")
    for struck in objects(mapping(line.get("evidence")).get("struck")):
        yield from _struck(files, row, api, struck, txns, called)
    if row.length is not None:
        told = f" {row.evidence}" if row.evidence else ""
        text = f"Fault {row.id} ({short}) has ended.{told}"
        yield TxnMoment(row.began + row.length, FAULTS, "fault ends", f"{short} ends", text)


def _struck(
    files: RunFiles, row: FaultRow, api: str, struck: Json, txns: Sequence[ObservedTxn], called: Mapping[int, str]
) -> Iterable[TxnMoment]:
    came, answered = files.seconds(struck.get("came_ns")), files.seconds(struck.get("answered_ns"))
    if came is None:
        return
    held_s, said = (number(struck.get("held_ms")) or 0.0) / 1000, str(struck.get("said") or "")
    whose = _whose(txns, called, came, said)
    name = f"{api} of {whose}" if whose else api
    details, over = f" ({said})" if said else "", str(struck.get("link") or "").replace("->", " to ")
    does = "holds" if held_s else "strikes"
    text = f"Fault {row.id} {does} the {name}{details}{f', from {over}' if over else ''}."
    yield TxnMoment(came, FAULTS, "struck", f"{does} {name}", text)
    if held_s:
        answer = f"; the answer is {struck.get('answer')}" if answered is not None else ""
        text = f"Fault {row.id} lets the {name} go after {length_text(held_s)}{answer}."
        yield TxnMoment(came + held_s, FAULTS, "let go", f"lets {name} go", text)


def _whose(txns: Sequence[ObservedTxn], called: Mapping[int, str], came: float, said: str) -> str:
    """Of which transaction an EndTxn is: of the one whose end was asked for just before, by that transactional id."""
    near = [
        txn
        for txn in txns
        if f"of {txn.id}" in said and txn.asked is not None and 0 <= came - txn.asked <= JUST_BEFORE_S
    ]
    return called[max(near, key=lambda txn: txn.asked or 0.0).op] if near else ""
