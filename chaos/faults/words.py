"""Describes evidence in words: holds the phrases that several kinds of faults share. It does no I/O.

The evidence of a fault that was interrupted is incomplete. A missing part is left out of the sentence, or is called
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]


def mapping(value: object) -> Json:
    """Return the value if it is a JSON object, else an empty object."""
    return value if isinstance(value, Mapping) else {}


def objects(value: object) -> list[Json]:
    """Return those members of a list that are JSON objects; [] if the value is no list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, (list, tuple)) else []


def texts(value: object) -> list[str]:
    """Return the members of a list, each converted to a str; [] if the value is no list."""
    return [str(each) for each in value] if isinstance(value, (list, tuple)) else []


def number(value: object) -> float | None:
    """Return the value as a float, or None if it is no number."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def integer(value: object, otherwise: int = -1) -> int:
    """Return the value if it is an integer, else `otherwise`."""
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def capital(words: str) -> str:
    """Return the words with a capital first letter."""
    return words[:1].upper() + words[1:]


def after(act: Json, asked: str, done: str) -> str:
    """Return in words the time between two moments of the evidence `act`: `asked` and `done` are its keys, whose values
    are in ns.
    """
    begin, end = integer(act.get(asked)), integer(act.get(done))
    if begin < 0 or end < 0:
        return "(at an unknown time)"
    return f"{(end - begin) / 1e6:.0f} ms" if end - begin < 1e9 else f"{(end - begin) / 1e9:.2f} s"


def arrows(links: object) -> str:
    """Return links as people read them: `1→2, 2→3`."""
    return ", ".join(link.replace("->", "→") for link in texts(links))


def trips(probes: Sequence[Json]) -> str:
    """Return in words the shortest and the longest round trip of the answered probes."""
    times = [t for p in probes if p.get("ok") and (t := number(p.get("round_trip_ms"))) is not None]
    if not times:
        return "(no answer)"
    low, high = f"{min(times):.0f}", f"{max(times):.0f}"
    return f"{low} ms" if low == high else f"{low} to {high} ms"


def process(act: Json) -> str:
    """Return in words the OS process of a broker: "process 4711", or "simulated process 3", whose number no kernel
    knows. act: evidence with the broker's `pid`.
    """
    return f"{'simulated ' if act.get('simulated') else ''}process {act.get('pid')}"


def came_back(up: object) -> list[str]:
    """Return a sentence for each broker: when it was ready again, or which other fault holds it down. up: a list with
    the evidence about each broker's start.
    """
    return [
        f"Incarnation {act.get('incarnation')} ({process(act)}) was ready "
        f"{after(act, 'asked_ns', 'ready_ns')} after its start{_registered(act)}."
        if "held_by" not in act
        else f"Broker {act.get('node')} was left {act.get('state')}, by fault {', '.join(texts(act['held_by']))}."
        for act in objects(up)
    ]


def _registered(act: Json) -> str:
    """Return a broker's epoch and its source in words, as in ", registered with broker epoch 12 (server.log)". Empty if
    the evidence contains no broker epoch.
    """
    epoch = act.get("broker_epoch")
    return "" if epoch is None else f", registered with broker epoch {epoch} ({act.get('seen_in')})"


def was_down(act: Json) -> str:
    """Return a sentence that says which other fault had already taken a broker down when this fault began, and how many
    probes the broker answered. act: the evidence about this broker.
    """
    by = ", ".join(f"fault {fault} ({action})" for fault, action in mapping(act.get("by")).items())
    asked, answered = act.get("asked"), act.get("answered")
    return f"Broker {act.get('node')} was down already, by {by}: {answered} of {asked} probes were answered."


def steps_in_turn(seen: Json) -> str:
    """Return a sentence for each broker of a rolling restart: its new incarnation, and when it was in sync again."""
    words = []
    for step in objects(seen.get("steps")):
        up = mapping(step.get("up"))
        synced = after({**up, "in_sync_ns": step.get("in_sync_ns", -1)}, "ready_ns", "in_sync_ns")
        words.append(
            f"Broker {step.get('node')} came back as incarnation {up.get('incarnation')}; in sync {synced} later."
        )
    return " ".join(words)


def cut_and_healed(seen: Json) -> str:
    """Say how many probes over the links failed during the cut, and how many were answered after it."""
    during = [probe for when in ("during", "middle", "last") for probe in objects(seen.get(when))]
    healed = objects(seen.get("after"))
    silent = [probe for probe in during if not probe.get("ok")]
    why = ", ".join(dict.fromkeys(str(probe.get("error")) for probe in silent))
    words = f"{len(silent)} of {len(during)} probes got no answer while cut ({why or 'all answered'})"
    answered = f"{sum(bool(probe.get('ok')) for probe in healed)} of {len(healed)} answered"
    if traffic := seen.get("traffic"):
        other = objects(seen.get("other"))
        words += f", of {traffic} alone: {sum(bool(probe.get('ok')) for probe in other)} of {len(other)} others did"
    return f"Links {arrows(seen.get('links'))}: {words}; {answered} once healed, in {trips(healed)}."


def round_trips(seen: Json) -> str:
    """Return in words the round trips over slowed links: during the fault, before it and after it."""
    before, during, later = (objects(seen.get(when)) for when in ("before", "during", "after"))
    count = len(texts(seen.get("links")))
    words = f"Round trips over {count} links took {trips(during)} while on, {trips(before)} before"
    words += f", {trips(later)} after." if later else "."
    silent = sum(not probe.get("ok") for probe in before)
    return words + (f" {silent} of the links did not answer before." if silent else "")


def how_they_ended(seen: Json) -> str:
    """Return in words how connections ended during a fault that ends them, and after how long. They are connections of
    the nemesis, one over each link.
    """
    during = objects(seen.get("during"))
    how = ", ".join(dict.fromkeys(str(probe.get("error")) for probe in during))
    took = trips([{**probe, "ok": True} for probe in during])
    return f"Connections over {len(texts(seen.get('links')))} links, after {took}: {how}."


def counted(seen: Json) -> str:
    """Say how many requests, responses or packets a fault hit, and over which links. This is for faults that are proven
    by this number.
    """
    hits = [each for each in seen.get("hits") or () if isinstance(each, int)]
    words = f"It struck {sum(hits)} times over links {arrows(seen.get('links'))}."
    return " ".join([words, *map(_struck, objects(seen.get("struck")))])


def _struck(frame: Json) -> str:
    """Return a sentence about an EndTxn request that the fault hit: what it asked for, how long it was held, and what
    was answered. frame: the evidence about this request.
    """
    held_ms, answer = integer(frame.get("held_ms"), 0), frame.get("answer")
    held = f" was held for {held_ms / 1000:g} s" if held_ms else " was struck"
    answered = f" and then answered {answer}" if answer else ""
    return f"EndTxn ({frame.get('said') or 'unreadable'}){held}{answered}."


def nth(params: Json) -> str:
    """Return in words which call or request a fault hits, by the parameter `nth`: "next", "2nd", "3rd"."""
    found = number(params.get("nth"))
    count = 1 if found is None else int(found)
    return {1: "next", 2: "2nd", 3: "3rd"}.get(count, f"{count}th")
