"""Adds the network messages of a simulation to a story of transactions: which broker requested a marker, and which
messages were lost.

Only the simulation of a shrunk plan (`squall shrink`) records its messages, in messages.jsonl.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from squall.reports.run_files import RunFiles
from squall.reports.story_facts import SimMessage, wires_of
from squall.reports.transactions.moments import FAULTS, TxnMoment

APIS = ("InitProducerId", "AddPartitionsToTxn", "EndTxn", "WriteTxnMarkers", "Produce")
"""Lists the requests that belong to transactions."""
LOST_AT_MOST = 8
ARRIVED_BEFORE_S = 0.002
"""A WriteTxnMarkers request is taken as the cause of a marker that is written at most this many seconds after it
arrived.
"""


def moments_of_messages(wires: Sequence[SimMessage], begin: float, end: float) -> Iterable[TxnMoment]:
    """Yield a moment for each message sent from `begin` to `end` (in seconds) and lost, at most LOST_AT_MOST."""
    lost = [wire for wire in wires if wire.arrives is None and begin <= wire.sent <= end]
    for wire in lost[:LOST_AT_MOST]:
        ends = f"from {_name(wire.source)} to {_name(wire.target)}"
        text = f"The {wire.api} {wire.kind} {ends} is lost on its way."
        yield TxnMoment(wire.sent, FAULTS, "lost", f"{wire.api} {wire.kind} lost", text)


def asked_for(wires: Sequence[SimMessage], marker: TxnMoment) -> str:
    """Say which broker asked for a marker; empty if no message shows it."""
    if marker.node < 0:
        return ""
    came = [
        wire
        for wire in wires
        if (wire.api, wire.kind, wire.target) == ("WriteTxnMarkers", "request", str(marker.node))
        and wire.arrives is not None
        and 0 <= marker.t - wire.arrives <= ARRIVED_BEFORE_S
    ]
    if not came:
        return ""
    return f"{_name(came[-1].source).capitalize()} had asked for it at {came[-1].sent:.4f} s (WriteTxnMarkers)."


def _name(host: str) -> str:
    return f"broker {host}" if host.isdigit() else f"the client ({host})"


def messages_of(files: RunFiles) -> list[SimMessage]:
    """Return the messages of transactions, in order of sending; none if messages were not recorded."""
    return sorted((wire for wire in wires_of(files, 0.0) if wire.api in APIS), key=lambda wire: wire.sent)
