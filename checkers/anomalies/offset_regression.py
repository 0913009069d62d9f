"""Finds offset-regression: a reported high watermark, last stable offset, latest offset or log start goes back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.answers import answers
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery, WitnessRule
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import LISTED, LISTED_START, ReportedBounds

ANOMALIES = (
    AnomalyDefinition(
        "offset-regression",
        AnomalyFamily.READERS,
        "for one client in one leader epoch, the high watermark or the last stable offset goes back; or the latest "
        "offset, of either isolation level, goes back, in any epoch; or a leader lists an earliest offset below a log "
        "start that it had told any client in that epoch, or below an offset up to which it had deleted records",
        source="KIP-207: Offsets returned by ListOffsetsResponse should be monotonically increasing",
        other="the offset reported before",
        needs=(HistoryNeed.MARKS,),
        meaning="reported high watermarks, last stable offsets or log starts went back",
        meaning_of_one="reported high watermark, last stable offset or log start went back",
    ),
)

HIGH_WATERMARK, LAST_STABLE_OFFSET, LOG_START = "high watermark", "last stable offset", "log start"
"""Are the kinds of evidence: they name the offset that went back."""


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each reported offset that is below an earlier one of the same client and partition. A
    response counts as earlier if it came before the other one's request was sent.

    The offsets of a Fetch response are compared with earlier ones of the same leader epoch, because a new leader may
    know a lower high watermark than the old leader. So a response whose epoch is unknown proves nothing. The first
    fetch after a ListOffsets response is not compared with it, because the request may have been sent before
    ListOffsets. The second fetch is, because a client has one fetch at a time under way to a leader.

    A latest offset of ListOffsets is compared with those of earlier epochs, too. A new leader answers with an error
    until its high watermark is at least as high as every latest offset that its predecessors returned (KIP-207). The
    same holds at read_committed: the markers that ended the transactions below the last stable offset were replicated,
    so the new leader has them (Redpanda PR 7544).

    Earliest offsets of ListOffsets are compared by `_log_starts`.
    """
    yield from _log_starts(seen.view(answers))
    # Not from `hw_before`, which Spark reads: so a mistake of the converter shows when both are compared.
    before: dict[tuple[object, ...], int] = {}
    settled: dict[tuple[object, ...], int] = {}
    highest: dict[tuple[object, ...], dict[int, int]] = {}
    for each in seen.view(answers):
        epoch, listed = each.epoch, each.kind == LISTED
        if epoch < 0:
            continue
        for which, off in ((HIGH_WATERMARK, each.hw), (LAST_STABLE_OFFSET, each.lso)):
            if off < 0:
                continue
            reported = which, each.proc, each.part
            by_epoch = highest.setdefault(reported, {})
            earlier = max(before.get((listed, reported, epoch), -1), before.get((False, reported, epoch), -1))
            if not listed:
                earlier = max(earlier, settled.get((reported, epoch), -1))
                settled[reported, epoch] = before.get((True, reported, epoch), -1)
            else:
                earlier = max(earlier, max((mark for past, mark in by_epoch.items() if past < epoch), default=-1))
            if off < earlier:
                yield Witness("offset-regression", which, each.part, off, -1, each.op, each.proc, earlier)
            before[listed, reported, epoch] = off
            by_epoch[epoch] = max(by_epoch.get(epoch, -1), off)


def _log_starts(reported: list[ReportedBounds]) -> Iterator[Witness]:
    """Yield a witness for each earliest offset in a ListOffsets response that is below a log start which any client had
    learned before.

    While a broker leads, its log start only grows. A later leader may have an older log start, because it is written to
    disk once a minute, and DeleteRecords waits only for the replicas that are alive (KIP-107). So only responses of one
    leader epoch are compared. A poll may return a response that arrived before the poll began. So a poll's log start is
    compared only with responses to later requests.
    """
    known: dict[tuple[int, int], list[ReportedBounds]] = defaultdict(list)
    for each in reported:
        if each.epoch >= 0 and each.log_start >= 0:
            known[each.part, each.epoch].append(each)
    for each in reported:
        if each.kind == LISTED_START and each.epoch >= 0:
            earlier = max((one.log_start for one in known[each.part, each.epoch] if one.t1 < each.t0), default=-1)
            if each.log_start < earlier:
                yield Witness(
                    "offset-regression", LOG_START, each.part, each.log_start, -1, each.op, each.proc, earlier
                )


LOG_STARTS = f"""
select 'offset-regression' anomaly, 'log start' evidence, listed.part, listed.log_start off, -1L val, listed.op,
       listed.proc, max(before.log_start) other
from told listed join told before on before.part = listed.part and before.epoch = listed.epoch
  and before.t1 < listed.t0 and before.log_start > listed.log_start
where listed.kind = {LISTED_START} and listed.epoch >= 0
group by listed.part, listed.log_start, listed.op, listed.proc
"""


def _queries(_: ConversionResult) -> Queries:
    return [
        WitnessQuery(LOG_STARTS, ("told",)),
        *(_mark(mark, name) for mark, name in (("hw", "high watermark"), ("lso", "last stable offset"))),
    ]


def _mark(mark: str, name: str) -> WitnessRule:
    return WitnessRule(
        "told",
        f"{mark} >= 0 and {mark} < {mark}_before",
        "'offset-regression'",
        evidence=f"'{name}'",
        off=mark,
        proc="proc",
        other=f"{mark}_before",
    )


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
