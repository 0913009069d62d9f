"""Makes the report's section about availability: a timeline with the faults below it, and a table with a row for each
fault. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from squall.workloads.section import SectionTable, TimelineBar, TimelineLane, TimelineStrip, WorkloadSection

CAPTION = (
    "Seconds of load, as above. Thin green bars: writes are acknowledged, polls are answered. Tall red bars: nothing "
    "is, for {:g} s or longer. Below them the faults, each from its begin to its proven end."
)


def section_of(figures: Mapping[str, Any]) -> WorkloadSection:
    """Return the report's section that shows these figures of availability. Raise KeyError or TypeError if the figures
    are not those of `availability.measure`.
    """
    faults = sorted(figures["faults"], key=lambda fault: (fault["began_s"], fault["id"]))
    return WorkloadSection("Availability", _sentence(figures), _strip(figures, faults), _tables(figures, faults))


def _sentence(figures: Mapping[str, Any]) -> str:
    writes, reads = figures["writes"], figures["reads"]
    length = f"In {figures['to_s'] - figures['from_s']:.1f} s of load"
    acks = f"nothing was acknowledged for {writes['without_s']:.1f} s ({writes['longest_s']:.2f} s at a stretch)"
    polls = f"no poll was answered for {reads['without_s']:.1f} s ({reads['longest_s']:.2f} s at a stretch)"
    return f"{length} {acks}, and {polls}. What took less than {figures['standstill_s']:g} s does not count."


def _strip(figures: Mapping[str, Any], faults: Sequence[Mapping[str, Any]]) -> TimelineStrip:
    begin_s, end_s = figures["from_s"], max([figures["to_s"], *(fault["ended_s"] or 0 for fault in faults)])
    lanes = [
        TimelineLane("acknowledgements", list(_spans(figures, "writes", "acknowledged"))),
        TimelineLane("answered polls", list(_spans(figures, "reads", "answered"))),
        *(TimelineLane(_name(fault), [_fault_span(fault, end_s)]) for fault in faults),
    ]
    title = "When writes were acknowledged and polls answered, and the faults under it"
    return TimelineStrip(title, begin_s, end_s, lanes, CAPTION.format(figures["standstill_s"]))


def _spans(figures: Mapping[str, Any], name: str, success: str) -> Iterator[TimelineBar]:
    """Yield bars of success and standstill in turn. `name` is `writes` or `reads`, and `success` what the bars call a
    success: acknowledged or answered.
    """
    at_s = figures["from_s"]
    for each in figures[name]["standstills"]:
        if each["from_s"] > at_s:
            yield TimelineBar(at_s, each["from_s"], "good", f"{at_s:.2f} to {each['from_s']:.2f} s: {success}")
        length_s = each["to_s"] - each["from_s"]
        yield TimelineBar(
            each["from_s"], each["to_s"], "bad", f"nothing {success} for {length_s:.2f} s, from {each['from_s']:.2f} s"
        )
        at_s = each["to_s"]
    if figures["to_s"] > at_s:
        yield TimelineBar(at_s, figures["to_s"], "good", f"{at_s:.2f} to {figures['to_s']:.2f} s: {success}")


def _fault_span(fault: Mapping[str, Any], end_s: float) -> TimelineBar:
    ended_s = end_s if fault["ended_s"] is None else fault["ended_s"]
    return TimelineBar(
        fault["began_s"], ended_s, "neutral", f"{_name(fault)}: {fault['began_s']:.2f} to {ended_s:.2f} s"
    )


def _name(fault: Mapping[str, Any]) -> str:
    return f"{fault['action']} {', '.join(fault['hit'])}".strip()


def _tables(figures: Mapping[str, Any], faults: Sequence[Mapping[str, Any]]) -> list[SectionTable]:
    columns = ("fault", ">at", ">on for", ">no ack, longest", ">no ack, all", ">no poll, longest", ">no poll, all")
    rows = [(_name(fault), f"{fault['began_s']:.2f} s", _length(fault), *_times(fault)) for fault in faults]
    rows.append(
        (
            "the whole load",
            f"{figures['from_s']:.2f} s",
            f"{figures['to_s'] - figures['from_s']:.2f} s",
            *_times(figures),
        )
    )
    return [SectionTable("Time without success while each fault was on", columns, rows)]


def _length(fault: Mapping[str, Any]) -> str:
    return "to the end" if fault["ended_s"] is None else f"{fault['ended_s'] - fault['began_s']:.2f} s"


def _times(of: Mapping[str, Any]) -> list[str]:
    """Return the table cells of one row: the longest time and the total time without success, for writes and then for
    reads.
    """
    return [f"{of[name][each]:.2f} s" for name in ("writes", "reads") for each in ("longest_s", "without_s")]
