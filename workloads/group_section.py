"""Describes consumer groups for reports, on the web page and in the terminal: a lane for each member with the
partitions it owned, and a table of rebalances. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from squall.workloads.section import SectionTable, TimelineBar, TimelineLane, TimelineStrip, Tone, WorkloadSection

CAPTION = (
    "Seconds of load, as above. A lane for each process that was a member. Until it learns of its loss a member may "
    "believe to hold what it holds no longer, because its session is over or another one was assigned the partition."
)
MARKED = " The first lane{of} has a mark for each generation."
LEGEND: Sequence[tuple[Tone, str]] = (
    ("good", "holds partitions"),
    ("neutral", "only believes to hold them"),
    ("bad", "lost them (fenced, expired or crashed)"),
    ("mark", "a generation begins"),
)
MOST_LANES = 40
MARK_S = 0.05
GONE = ("lost", "crashed")


def section_of(figures: Mapping[str, Any]) -> WorkloadSection | None:
    """Return the report's section that shows these figures of groups, or None if no process was a member of a group.
    Raise KeyError or TypeError if the figures are not those of `squall.checkers.measured_groups`.
    """
    groups = {name: each for name, each in figures.items() if isinstance(each, Mapping)}
    if not groups:
        return None
    sentence = " ".join(_sentence(name, each) for name, each in groups.items())
    return WorkloadSection("Consumer groups", sentence, strip_of(groups), rebalances_of(groups))


def _sentence(name: str, group: Mapping[str, Any]) -> str:
    members, unowned, unfair = group["members"], group["unowned"], group["unfair"]
    said = f"Group {name}: {_count(len(members), 'process', 'processes')} held partitions"
    if group["generations"]:
        said += f" in {_count(group['generations'], 'generation', 'generations')}."
    else:
        said += "; in which generations is not known, because no member reported one."
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
    return said + _returns(group.get("static") or {})


def _returns(static: Mapping[str, int]) -> str:
    """Return sentences about how often static members came back within their session time-out, and how often the group
    rebalanced all the same. Empty if none came back. `static` holds these counts.
    """
    if not static.get("returns"):
        return ""
    said = f" Static members came back within their session time-out {_count(static['returns'], 'time', 'times')}; the"
    said += f" group rebalanced for {static['rebalanced']:,} of these."
    if unclear := static.get("unclear"):  # which earlier versions did not tell apart
        said += f" For {unclear:,} more it did so while a fault or another member may have been the reason."
    return said


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def strip_of(groups: Mapping[str, Mapping[str, Any]]) -> TimelineStrip | None:
    """Return a timeline with a lane for each member of each group, or None if no member owned a partition. Each group
    also has a lane of its generations. That lane has the group's name if there are several groups, and else the name
    "generations".
    """
    held = [each for group in groups.values() for member in group["members"] for each in member["held"]]
    if not held:
        return None
    begun = [each["from_s"] for group in groups.values() for each in group["began"]]
    begin_s = min([each["from_s"] for each in held] + begun)
    end_s = max(each["to_s"] for each in held)
    lanes, left_out = list[TimelineLane](), 0
    for name, group in groups.items():
        members = group["members"][: MOST_LANES // len(groups)]
        left_out += len(group["members"]) - len(members)
        first, whose = ("generations", "") if len(groups) == 1 else (name, f"{name}, ")
        if group["began"]:
            lanes.append(TimelineLane(first, list(_generations(group))))
        lanes += [TimelineLane(f"{whose}process {each['process']}", list(_spans(each))) for each in members]
    caption, legend = CAPTION, LEGEND
    if begun:
        caption += MARKED.format(of="" if len(groups) == 1 else " of each group")
    else:
        legend = [each for each in LEGEND if each[0] != "mark"]
    more = f" {_count(left_out, 'later process has', 'later processes have')} no lane." if left_out else ""
    return TimelineStrip("What each member of the group held, and when", begin_s, end_s, lanes, caption + more, legend)


def _generations(group: Mapping[str, Any]) -> Iterator[TimelineBar]:
    for each in group["began"]:
        at_s = each["from_s"]
        yield TimelineBar(at_s, at_s + MARK_S, "mark", f"generation {each['generation']}: {at_s:.2f} s")


def _spans(member: Mapping[str, Any]) -> Iterator[TimelineBar]:
    for each in member["held"]:
        names, begin_s, end_s = each["partitions"], each["from_s"], each["to_s"]
        yield TimelineBar(begin_s, end_s, "good", f"{begin_s:.2f} to {end_s:.2f} s: {', '.join(names)}")
        if any(word in each["ended"] for word in GONE):
            yield TimelineBar(end_s - MARK_S, end_s, "bad", f"{each['ended']} at {end_s:.2f} s: {', '.join(names)}")
    for each in member.get("believed", ()):  # which earlier versions did not tell apart
        begin_s, end_s = each["from_s"], each["to_s"]
        said = f"only believed to hold {each['partition']}, and then learnt of its loss"
        yield TimelineBar(begin_s, end_s, "neutral", f"{begin_s:.2f} to {end_s:.2f} s: {said}")


def rebalances_of(groups: Mapping[str, Mapping[str, Any]]) -> list[SectionTable]:
    """Return a table that counts rebalances by cause: members that joined or left, or else the fault before the
    rebalance. Return an empty list if there were none.
    """
    rows = [
        (name, _cause(each, group["rebalances"]), f"{each['count']:,}")
        for name, group in groups.items()
        for each in group["rebalances"]
        if each["count"] or each["fault"] is not None
    ]
    if not any(each["count"] for group in groups.values() for each in group["rebalances"]):
        return []
    title = "Rebalances after the first assignment, by members that came or went, else by the fault before them"
    return [SectionTable(title, ("group", "cause", ">rebalances"), rows)]


def _cause(each: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> str:
    if each.get("members"):
        return "members came or went, as the load has it"
    if each["fault"] is not None:
        return f"{each['action']} (fault {each['fault']})"
    faults = any(other["fault"] is not None for other in others)
    return "before the first fault" if faults else "no known cause"
