"""What a verdict means, in a sentence: how much was lost, where, and whose expectation that breaks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from checkers.anomalies import stuck
from checkers.anomalies.registry import CATALOG, LOSS
from reports.run_files import Json, RunFiles, integer, mapping, objects


def broken(files: RunFiles) -> list[str]:
    """What the findings that are not permitted mean, a sentence each, the gravest first."""
    wrong = [each for each in objects(files.verdict.get("anomalies")) if each.get("permitted") is False]
    lost = sum(_count(each) for each in wrong if each.get("name") in LOSS)
    sentences = [_loss(files, lost)] if lost else []
    sentences += dict.fromkeys(_of_client(each) for each in wrong if each.get("blames"))
    others: dict[str, list[Json]] = {}
    for each in wrong:
        if each.get("name") not in LOSS and not each.get("blames"):
            others.setdefault(str(each.get("name")), []).append(each)
    return sentences + [_other(name, _counted(name, each), _others(each)) for name, each in others.items()]


def _of_client(entry: Json) -> str:
    """What a client that stood still means, while fresh clients were served."""
    blames = str(entry["blames"])
    where = ", ".join(dict.fromkeys(str(each.get("partition")) for each in objects(entry.get("witnesses"))))
    did, fresh = ("read", "read") if entry.get("name") == stuck.CONSUMER else ("had acknowledged", "wrote")
    return f"{blames[0].upper()}{blames[1:]} {did} nothing in {where} for too long, while a fresh client {fresh} there."


def _counted(name: str, entries: Sequence[Json]) -> int:
    """How many there are of what its meaning counts, over all kinds of evidence."""
    counts = CATALOG[name].counts if name in CATALOG else ""
    named = {key for each in entries for key in each.get(counts) or ()} if counts else set()
    return len(named) or sum(map(_count, entries))


def _loss(files: RunFiles, lost: int) -> str:
    acked = acknowledged(files)
    if acked is None or lost > acked:
        return _other("lost-write", lost)
    was = "was" if lost == 1 else "were"
    return f"{lost:,} of {acked:,} acknowledged records {was} lost ({_percent(lost / acked)})."


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "less than 1%"


def _other(name: str, count: int, others: str = "") -> str:
    known = CATALOG.get(name)
    if known is None or not known.meaning:
        return f"{name}: {count:,}."
    return f"{count:,} {(known.meaning_of_one if count == 1 else known.meaning).format(others=others)}."


def _others(entries: Sequence[Json]) -> str:
    """The sum of `other` over processes and partitions; "others" if a witness that was not kept may have more."""
    witnesses = [witness for each in entries for witness in objects(each.get("witnesses"))]
    places = {(each.get("partition"), each.get("proc")): integer(each.get("other"), 0) for each in witnesses}
    partitions = {name for each in entries for name in mapping(each.get("partitions"))}
    processes = {process for each in entries for process in each.get("processes") or ()}
    whole = len(witnesses) == sum(map(_count, entries)) or len(partitions) == len(processes) == 1
    return f"{sum(places.values()):,}" if witnesses and whole else "others"


def _count(anomaly: Json) -> int:
    return max(integer(anomaly.get("count"), 0), 0)


def acknowledged(files: RunFiles) -> int | None:
    """How many sends were acknowledged, after healing too; None where the history was not analysed."""
    sends = mapping(mapping(files.metrics.get("outcomes")).get("send"))
    return integer(sends.get("ok"), 0) if sends else None


def held_to(files: RunFiles) -> str:
    """Whose expectation a finding breaks, to follow "This breaks"."""
    expect = str(files.verdict.get("expect") or "config")
    if expect == "safe":
        return "--expect safe, which permits nothing"
    wrong = [each for each in objects(files.verdict.get("anomalies")) if each.get("permitted") is False]
    rows = dict.fromkeys(row for each in wrong if (row := str(mapping(each.get("cell")).get("row") or "")))
    row = "; ".join(rows) or str(mapping(files.verdict.get("guarantee")).get("row") or "")
    return f"what the configuration promises ({row})" if row else "what the configuration promises"


def by_partition(files: RunFiles, names: Iterable[str] | None = None) -> list[tuple[str, int, int | None]]:
    """(partition, findings that are not permitted, acknowledged records of it), the worst first.

    names: of which anomalies; None: of all. Empty where verdict.json does not tell partitions apart.
    """
    wanted = None if names is None else tuple(names)
    found: Counter[str] = Counter()
    for each in objects(files.verdict.get("anomalies")):
        if each.get("permitted") is False and (wanted is None or each.get("name") in wanted):
            for name, count in mapping(each.get("partitions")).items():
                found[name] += integer(count, 0)
    partitions = mapping(files.metrics.get("partitions"))
    rows = [(name, count, acknowledged_in(partitions.get(name))) for name, count in found.items() if count > 0]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def acknowledged_in(partition: object) -> int | None:
    """How many sends of a partition of metrics.json were acknowledged, after healing too; None: nobody knows."""
    count = integer(mapping(partition).get("acked"))
    return count + integer(mapping(partition).get("acked_after_healing"), 0) if count >= 0 else None


def lost_by_partition(files: RunFiles) -> list[tuple[str, int, int | None]]:
    """`by_partition` of lost records alone."""
    return by_partition(files, LOSS)


def table(rows: Sequence[tuple[str, int, int | None]], most: int = 6) -> str:
    """Rows of `by_partition` in one sentence; the worst `most` of them."""
    words = [f"{name}: {count:,}" + (f" of {acked:,}" if acked else "") for name, count, acked in rows[:most]]
    more = f", and {len(rows) - most} more partitions" if len(rows) > most else ""
    return ", ".join(words) + more
