"""Consumer groups as page and terminal show them: a lane for each member, with what it held, and rebalances. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workloads.section import Lane, Rows, Section, Span, Strip

CAPTION = (
    "Seconds of load, as above. A lane for each process that was a member: a thin green bar where it held partitions, "
    "a tall red mark where it lost them (fenced, expired or crashed). The first lane has a mark for each generation."
)
MOST_LANES = 40
MARK_S = 0.05
GONE = ("lost", "crashed")


def section_of(figures: Mapping[str, Any]) -> Section | None:
    """The section of these figures; None where nobody was a member of a group. KeyError, TypeError for what is none of
    `checkers.measured_groups`.
    """
    groups = {name: each for name, each in figures.items() if isinstance(each, Mapping)}
    if not groups:
        return None
    # A workload has one group. Another one is told in words and figures, and has no lanes.
    first = next(iter(groups.values()))
    sentence = " ".join(_sentence(name, each) for name, each in groups.items())
    return Section("Consumer groups", sentence, _strip(first), [_rebalances(groups)])


def _sentence(name: str, group: Mapping[str, Any]) -> str:
    members, unowned, unfair = group["members"], group["unowned"], group["unfair"]
    said = f"Group {name}: {_count(len(members), 'process', 'processes')} held partitions"
    said += f" in {_count(group['generations'], 'generation', 'generations')}."
    if unowned is None:
        said += " No partition changed its owner."
    else:
        said += (
            f" {unowned['partition']} was without an owner for {unowned['longest_s']:.2f} s from "
            f"{unowned['from_s']:.2f} s on, the longest of all; all partitions together {unowned['total_s']:.2f} s."
        )
    if unfair["generations"]:
        said += f" In {_count(unfair['generations'], 'generation', 'generations')} one member got up to"
        said += f" {unfair['most']} partitions more than another."
    return said


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _strip(group: Mapping[str, Any]) -> Strip | None:
    held = [each for member in group["members"] for each in member["held"]]
    if not held:
        return None
    begin_s = min(each["from_s"] for each in (*held, *group["began"]))
    end_s = max(each["to_s"] for each in held)
    began = [(each["from_s"], f"generation {each['generation']}: {each['from_s']:.2f} s") for each in group["began"]]
    generations = [Span(at_s, at_s + MARK_S, "neutral", title) for at_s, title in began]
    members = group["members"][:MOST_LANES]
    lanes = [Lane("generations", generations)]
    lanes += [Lane(f"process {each['process']}", list(_spans(each["held"]))) for each in members]
    left_out = len(group["members"]) - len(members)
    more = f" {_count(left_out, 'later process has', 'later processes have')} no lane." if left_out else ""
    return Strip("What each member of the group held, and when", begin_s, end_s, lanes, CAPTION + more)


def _spans(held: Sequence[Mapping[str, Any]]) -> Iterator[Span]:
    for each in held:
        names, begin_s, end_s = each["partitions"], each["from_s"], each["to_s"]
        yield Span(begin_s, end_s, "good", f"{begin_s:.2f} to {end_s:.2f} s: {', '.join(names)}")
        if any(word in each["ended"] for word in GONE):
            yield Span(end_s - MARK_S, end_s, "bad", f"{each['ended']} at {end_s:.2f} s: {', '.join(names)}")


def _rebalances(groups: Mapping[str, Mapping[str, Any]]) -> Rows:
    rows = [
        (name, _fault(each), f"{each['count']:,}")
        for name, group in groups.items()
        for each in group["rebalances"]
        if each["count"] or each["fault"] is not None
    ]
    return Rows("Rebalances, by the fault that began last before them", ("group", "fault", ">rebalances"), rows)


def _fault(each: Mapping[str, Any]) -> str:
    return "before the first fault" if each["fault"] is None else f"{each['action']} (fault {each['fault']})"
