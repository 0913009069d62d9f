"""Evidence in words: what several kinds of faults say alike. Pure.

Evidence of a fault that broke off is there in part only: what is missing is left out, or said to be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]


def mapping(value: object) -> Json:
    """A JSON object; an empty one where there is none."""
    return value if isinstance(value, Mapping) else {}


def objects(value: object) -> list[Json]:
    """The JSON objects of a list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, (list, tuple)) else []


def texts(value: object) -> list[str]:
    """The members of a list, as text."""
    return [str(each) for each in value] if isinstance(value, (list, tuple)) else []


def number(value: object) -> float | None:
    """A number, if it is one."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def integer(value: object, otherwise: int = -1) -> int:
    """An integer, if it is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def after(act: Json, asked: str, done: str) -> str:
    """How long after one time of an act the other was."""
    begin, end = integer(act.get(asked)), integer(act.get(done))
    if begin < 0 or end < 0:
        return "(at an unknown time)"
    return f"{(end - begin) / 1e6:.0f} ms" if end - begin < 1e9 else f"{(end - begin) / 1e9:.2f} s"


def arrows(links: object) -> str:
    """Links, for people."""
    return ", ".join(link.replace("->", "→") for link in texts(links))


def trips(probes: Sequence[Json]) -> str:
    """How long the probes took that were answered."""
    times = [t for p in probes if p.get("ok") and (t := number(p.get("round_trip_ms"))) is not None]
    if not times:
        return "(no answer)"
    low, high = f"{min(times):.0f}", f"{max(times):.0f}"
    return f"{low} ms" if low == high else f"{low} to {high} ms"


def came_back(up: object) -> list[str]:
    """Of brokers that were started again, or that other faults have down."""
    return [
        f"Incarnation {act.get('incarnation')} (process {act.get('pid')}) was ready "
        f"{after(act, 'asked_ns', 'ready_ns')} after its start{_registered(act)}."
        if "held_by" not in act
        else f"Broker {act.get('node')} was left {act.get('state')}, by fault {', '.join(texts(act['held_by']))}."
        for act in objects(up)
    ]


def _registered(act: Json) -> str:
    """Of a broker that has no trace: the epoch that the controller gave it, as its log says."""
    epoch = act.get("broker_epoch")
    return "" if epoch is None else f", registered with broker epoch {epoch} ({act.get('seen_in')})"


def was_down(act: Json) -> str:
    """Of a broker that other faults had down when this one began."""
    by = ", ".join(f"fault {fault} ({action})" for fault, action in mapping(act.get("by")).items())
    asked, answered = act.get("asked"), act.get("answered")
    return f"Broker {act.get('node')} was down already, by {by}: {answered} of {asked} probes were answered."


def steps_in_turn(seen: Json) -> str:
    """Of brokers that were restarted one after the other."""
    words = []
    for step in objects(seen.get("steps")):
        up = mapping(step.get("up"))
        synced = after({**up, "in_sync_ns": step.get("in_sync_ns", -1)}, "ready_ns", "in_sync_ns")
        words.append(
            f"Broker {step.get('node')} came back as incarnation {up.get('incarnation')}; in sync {synced} later."
        )
    return " ".join(words)


def cut_and_healed(seen: Json) -> str:
    """Of links that were cut: probes while on, and afterwards."""
    during, healed = objects(seen.get("during")), objects(seen.get("after"))
    silent = [probe for probe in during if not probe.get("ok")]
    why = ", ".join(dict.fromkeys(str(probe.get("error")) for probe in silent))
    words = f"{len(silent)} of {len(during)} probes got no answer while cut ({why or 'all answered'})"
    answered = f"{sum(bool(probe.get('ok')) for probe in healed)} of {len(healed)} answered"
    return f"Links {arrows(seen.get('links'))}: {words}; {answered} once healed, in {trips(healed)}."


def round_trips(seen: Json) -> str:
    """Of links that are slow."""
    before, during, later = (objects(seen.get(when)) for when in ("before", "during", "after"))
    count = len(texts(seen.get("links")))
    words = f"Round trips over {count} links took {trips(during)} while on, {trips(before)} before"
    words += f", {trips(later)} after." if later else "."
    silent = sum(not probe.get("ok") for probe in before)
    return words + (f" {silent} of the links did not answer before." if silent else "")


def how_they_ended(seen: Json) -> str:
    """Of links whose connections end."""
    during = objects(seen.get("during"))
    how = ", ".join(dict.fromkeys(str(probe.get("error")) for probe in during))
    took = trips([{**probe, "ok": True} for probe in during])
    return f"Connections over {len(texts(seen.get('links')))} links, after {took}: {how}."


def counted(seen: Json) -> str:
    """Of what is counted as it strikes."""
    hits = [each for each in seen.get("hits") or () if isinstance(each, int)]
    return f"It struck {sum(hits)} times over links {arrows(seen.get('links'))}."


def nth(params: Json) -> str:
    """The parameter `nth`, as in "its 2nd write"."""
    found = number(params.get("nth"))
    count = 1 if found is None else int(found)
    return {1: "next", 2: "2nd", 3: "3rd"}.get(count, f"{count}th")
