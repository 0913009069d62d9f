"""Adds faults to a transaction's story: when each was on, and which requests it delayed, dropped or changed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from squall.reports.fault_words import FaultRow
from squall.reports.run_files import Json, RunFiles, mapping, number, objects
from squall.reports.transactions.moments import FAULTS, TxnMoment, length_text
from squall.reports.transactions.observed import ObservedTxn

JUST_BEFORE_S = 1.0
"""An EndTxn request belongs to a transaction only if the transaction's client requested the end at most this many
seconds before.
"""


def short_of(row: FaultRow) -> str:
    """Describe a fault by its kind, and by the Kafka API that it affects if it names one, as in "protocol EndTxn"."""
    what, _, rest = row.what.partition(" (")
    api = next((each.removeprefix("api ") for each in rest.rstrip(")").split(", ") if each.startswith("api ")), "")
    return f"{what} {api}".strip()


def moments_of_fault(
    files: RunFiles, row: FaultRow, txns: Sequence[ObservedTxn], called: Mapping[int, str]
) -> Iterable[TxnMoment]:
    """Yield the begin of a fault, each request that a protocol fault delayed, dropped or changed, and the fault's end,
    with the evidence that the fault had an effect.

    `row` must have begun. `txns` are the transactions to which the requests may belong. `called` maps the operation of
    a transaction to its name, such as "T1".
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
    """Return the name of the transaction that an EndTxn request belongs to; empty if none is known. It is the one with
    the transactional id in `said` whose end was requested last, at most JUST_BEFORE_S before `came`.

    `called` maps operations to names such as "T1". `came` is when the request came, in seconds. `said` is the text of
    the fault's evidence about the request.
    """
    near = [
        txn
        for txn in txns
        if f"of {txn.id}" in said and txn.asked is not None and 0 <= came - txn.asked <= JUST_BEFORE_S
    ]
    return called[max(near, key=lambda txn: txn.asked or 0.0).op] if near else ""
