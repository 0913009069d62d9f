"""Says in sentences what a verdict means: how much was lost, where, and which promise that breaks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from squall.checkers.anomalies import stuck
from squall.checkers.anomalies.registry import CATALOG, LOSS
from squall.checkers.losses import LossCount, loss_of
from squall.reports.run_files import Json, RunFiles, integer, mapping, number, objects


def broken(files: RunFiles) -> list[str]:
    """Say what the findings that are not permitted mean, a sentence each, the gravest first."""
    lost = loss(files, permitted=False)
    blaming = [each for each in objects(files.verdict.get("anomalies")) if _blames(each)]
    still = [each for each in blaming if each.get("name") in STUCK]
    did = [each for each in blaming if each not in still]
    others = _beside_loss(files, permitted=False)
    sentences = [f"{_were_lost(lost)}."] if lost else []
    sentences += dict.fromkeys(map(_of_client, still))
    sentences += [f"{_other(name, each)}." for name, each in others.items()]
    return [*sentences, *dict.fromkeys(map(_of_member, did))]


def permitted(files: RunFiles) -> list[str]:
    """Say why findings are permitted, a sentence for each reason: the loss first, and where it was."""
    lost = loss(files, permitted=True)
    sentences = [f"The loss is permitted: {' or '.join(lost.reasons)}."] if lost and lost.reasons else []
    sentences += [lost_by_partition(lost)] if lost else []
    by_reason: dict[str, list[str]] = {}
    for name, each in _beside_loss(files, permitted=True).items():
        reason = " or ".join(dict.fromkeys(str(one.get("why") or "the configuration permits it") for one in each))
        by_reason.setdefault(reason, []).append(_other(name, each))
    return sentences + [f"{'; '.join(those)}: {reason}." for reason, those in by_reason.items()]


STUCK = (stuck.PRODUCER, stuck.CONSUMER)


def stuck_clients(verdict: Json) -> dict[str, str]:
    """Map a partition to the client that got no acknowledgement there for too long while fresh clients' writes were
    acknowledged.
    """
    blaming = (each for each in objects(verdict.get("anomalies")) if _blames(each))
    producers = (each for each in blaming if each.get("name") == stuck.PRODUCER)
    return {str(w.get("partition")): str(each["blames"]) for each in producers for w in objects(each.get("witnesses"))}


def unavailable_to(verdict: Json) -> dict[str, str]:
    """Map a partition to the client that got no acknowledgement there for too long while fresh clients did. Partitions
    whose longest time without an acknowledgement ended before healing are left out.
    """
    metrics = mapping(verdict.get("metrics"))
    healed = number(mapping(metrics.get("after_healing")).get("healed_s")) or 0.0
    gaps = mapping(mapping(metrics.get("unavailable")).get("partitions"))
    ends = {name: (number(mapping(gap).get("from_s")) or 0.0) + (number(mapping(gap).get("s")) or 0.0)
            for name, gap in gaps.items()}  # fmt: skip
    return {name: client for name, client in stuck_clients(verdict).items() if ends.get(name, healed) >= healed}


def _blames(entry: Json) -> bool:
    return entry.get("permitted") is False and bool(entry.get("blames"))


def _beside_loss(files: RunFiles, *, permitted: bool) -> dict[str, list[Json]]:
    """Return the findings that are neither losses nor stuck clients, by the anomaly's name: the permitted ones, or
    those that are not permitted.
    """
    others: dict[str, list[Json]] = {}
    for each in objects(files.verdict.get("anomalies")):
        beside = each.get("name") not in LOSS and not (_blames(each) and each.get("name") in STUCK)
        if beside and each.get("permitted") is permitted:
            others.setdefault(str(each.get("name")), []).append(each)
    return others


def _of_client(entry: Json) -> str:
    """Return a sentence about a stuck client: it made no progress, while a fresh client did. `entry` is the anomaly in
    verdict.json that blames the stuck client.
    """
    blames = str(entry["blames"])
    where = ", ".join(dict.fromkeys(str(each.get("partition")) for each in objects(entry.get("witnesses"))))
    did, fresh = ("read", "read") if entry.get("name") == stuck.CONSUMER else ("had acknowledged", "wrote")
    return f"{blames[0].upper()}{blames[1:]} {did} nothing in {where} for too long, while a fresh client {fresh} there."


def _of_member(entry: Json) -> str:
    """Return a sentence such as "The program under test did this: ...": the reason of a finding that blames group
    members.
    """
    why = str(entry.get("why") or "").removeprefix("not permitted: ")
    return f"{why[:1].upper()}{why[1:]}."


def _counted(name: str, entries: Sequence[Json]) -> int:
    """Return the number in the sentence about an anomaly: how many witnesses it has. If `AnomalyDefinition.counts` is
    "processes" or "partitions", it is the number of these, each counted once. `entries` are the anomaly's entries in
    verdict.json, one for each kind of evidence.
    """
    counts = CATALOG[name].counts if name in CATALOG else ""
    named = {key for each in entries for key in each.get(counts) or ()} if counts else set()
    return len(named) or sum(map(_count, entries))


def loss(files: RunFiles, *, permitted: bool) -> LossCount | None:
    """Return the acknowledged records that were lost as the configuration permits, or, if not `permitted`, against it.
    None if there are none.
    """
    metrics = files.metrics or files.verdict.get("metrics")
    return loss_of({**files.verdict, "metrics": metrics}, permitted=permitted)


def _were_lost(loss: LossCount) -> str:
    return f"{loss.amount} {'was' if loss.lost == 1 else 'were'} lost{loss.share}"


def _other(name: str, entries: Sequence[Json]) -> str:
    known, count = CATALOG.get(name), _counted(name, entries)
    if known is None or not known.meaning:
        return f"{name}: {count:,}"
    return f"{count:,} {(known.meaning_of_one if count == 1 else known.meaning).format(others=_others(entries))}"


def _others(entries: Sequence[Json]) -> str:
    """Return the text for {others} in the sentence about an anomaly, such as "12" in "3 records were stored after 12
    that were sent later": the sum of the witnesses' field `other` (`AnomalyDefinition.other`), taken once for each
    process and partition. Return "others" if the sum is not known, because verdict.json does not keep all witnesses.
    """
    witnesses = [witness for each in entries for witness in objects(each.get("witnesses"))]
    places = {(each.get("partition"), each.get("proc")): integer(each.get("other"), 0) for each in witnesses}
    partitions = {name for each in entries for name in mapping(each.get("partitions"))}
    processes = {process for each in entries for process in each.get("processes") or ()}
    whole = len(witnesses) == sum(map(_count, entries)) or len(partitions) == len(processes) == 1
    return f"{sum(places.values()):,}" if witnesses and whole else "others"


def _count(anomaly: Json) -> int:
    return max(integer(anomaly.get("count"), 0), 0)


def held_to(files: RunFiles) -> str:
    """Say in a sentence what the findings violate: what the configuration promises, or what `--expect safe` demands."""
    wrong = [each for each in objects(files.verdict.get("anomalies")) if each.get("permitted") is False]
    if files.verdict.get("expect") == "safe":
        whys = {str(each.get("why") or "") for each in wrong}
        why = whys.pop() if len(whys) == 1 else ""
        return f"{why[0].upper()}{why[1:]}." if why else "This breaks what you asked for (--expect safe)."
    rows = dict.fromkeys(row for each in wrong if (row := str(mapping(each.get("cell")).get("row") or "")))
    row = "; ".join(rows) or str(mapping(files.verdict.get("guarantee")).get("row") or "")
    return f"This breaks what the configuration promises{f' ({row})' if row else ''}."


def by_partition(files: RunFiles) -> list[tuple[str, int]]:
    """Return (partition, findings that are not permitted), the worst first; empty if verdict.json does not count by
    partition.
    """
    found: Counter[str] = Counter()
    for each in objects(files.verdict.get("anomalies")):
        if each.get("permitted") is False:
            for name, count in mapping(each.get("partitions")).items():
                found[name] += integer(count, 0)
    return sorted(((name, count) for name, count in found.items() if count > 0), key=lambda row: (-row[1], row[0]))


def partitions_of(entry: Json) -> list[tuple[str, int]]:
    """Return (partition, number of findings there) of an anomaly of verdict.json, those with most first."""
    found = {name: integer(count, 0) for name, count in mapping(entry.get("partitions")).items()}
    return sorted(found.items(), key=lambda each: (-each[1], each[0]))


def lost_by_partition(lost: LossCount) -> str:
    """Say where a loss was, in a sentence; empty if that is not known."""
    return _places("Lost", lost.partitions)


def found_by_partition(files: RunFiles) -> str:
    """Return a sentence such as "Found by partition: orders-0: 3, orders-1: 2." without permitted findings; empty if
    verdict.json does not count by partition.
    """
    return _places("Found", [(name, count, None) for name, count in by_partition(files)])


def _places(what: str, rows: Sequence[tuple[str, int, int | None]], most: int = 6) -> str:
    """Return a sentence such as "Lost by partition: orders-0: 3 of 90, orders-1: 2 of 80." `what` is its first word.
    `rows` holds (partition, number, its acknowledged records or None), the worst first; only the first `most` are
    named.
    """
    if len(rows) < 2:
        return f"All in {rows[0][0]}." if rows else ""
    words = [f"{name}: {count:,}" + (f" of {acked:,}" if acked else "") for name, count, acked in rows[:most]]
    left = len(rows) - most
    more = f", and {left} more partition{'s'[: left > 1]}" if left > 0 else ""
    return f"{what} by partition: {', '.join(words)}{more}."
