"""Makes the section on transactions from metrics.json: how they ended, and what was read before it was committed."""

from __future__ import annotations

from squall.reports.run_files import Json, RunFiles, integer, mapping, number
from squall.workloads.section import SectionTable, WorkloadSection

ENDED = {
    "committed": "committed",
    "aborted": "aborted by their clients",
    "timed_out": "aborted by their time-out",
    "failed": "refused: fenced, INVALID_TXN_STATE, or a record not written",
    "left": "left open by their clients",
    "unknown": "of unknown end",
}
UNCOMMITTED = {
    "aborted": "that were aborted or failed",
    "never_ended": "that their clients left open",
    "before_commit": "before their commit was asked for",
}
GOT = "What readers at read_uncommitted got of transactions"
WHEN = {"under_load": "under load", "final_reads": "in the final reads"}


def in_figures(files: RunFiles) -> WorkloadSection | None:
    """Return the section on transactions; None if the run had no transactions, or if the measurements cannot be read.
    """
    told = mapping(files.metrics.get("transactions"))
    ended, got = mapping(told.get("ended")), mapping(told.get("read_uncommitted"))
    counts = [(words, integer(ended.get(name), 0)) for name, words in ENDED.items()]
    if not any(count > 0 for _, count in counts):
        return None
    amounts = [
        (which, when, mapping(mapping(got.get(key)).get(name)))
        for key, when in WHEN.items()
        for name, which in UNCOMMITTED.items()
    ]
    rows = [
        [which, when, *(f"{integer(each.get(name), 0):,}" for name in AMOUNTS)]
        for which, when, each in amounts
        if integer(each.get("reads"), 0) > 0
    ]
    return WorkloadSection(
        "Transactions in figures",
        f"{_commits(ended, mapping(told.get('commit_ms')))} {_seen(mapping(got.get('under_load')))}",
        None,
        (
            SectionTable(
                "How transactions ended", ("", ">transactions"), [[words, f"{count:,}"] for words, count in counts]
            ),
            *([SectionTable(GOT, ("", "", ">transactions", ">offsets", ">reads"), rows)] if rows else []),
        ),
    )


AMOUNTS = ("transactions", "offsets", "reads")


def _commits(ended: Json, took: Json) -> str:
    committed, total = integer(ended.get("committed"), 0), sum(integer(ended.get(name), 0) for name in ENDED)
    said = f"{committed:,} of {total:,} transactions were committed"
    p50, p99 = number(took.get("p50")), number(took.get("p99"))
    return f"{said}." if p50 is None or p99 is None else f"{said} (p50 {p50:,.1f} ms, p99 {p99:,.1f} ms)."


def _seen(under_load: Json) -> str:
    """Say how many records of uncommitted transactions were read under load by readers at read_uncommitted. If there
    were none, the run does not show that readers at read_committed were kept from such records.
    """
    never = [mapping(under_load.get(name)) for name in ("aborted", "never_ended")]
    transactions, offsets, _ = (sum(integer(each.get(name), 0) for each in never) for name in AMOUNTS)
    if not offsets:
        return (
            "Under load no reader at read_uncommitted got a record of a transaction that did not commit: so nothing "
            "shows that readers at read_committed were kept from any."
        )
    return (
        f"Under load readers at read_uncommitted got the records of {transactions:,} transactions that did not commit, "
        f"at {offsets:,} offsets; readers at read_committed must not get them."
    )
