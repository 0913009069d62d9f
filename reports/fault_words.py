"""Faults in plain words: what was asked, whom it hit, and what proves that it landed. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reports.run_files import Json, RunFiles, integer, mapping, number, objects, texts

LONGEST_LABEL = 36
"""Characters of a fault in the figure; whom it hit comes to them."""


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One fault as people read it. `state`: landed, not landed or unfinished; times in the page's seconds."""

    id: int
    what: str
    asked: str
    hit: str
    began: float | None
    length: float | None
    planned_s: float | None
    state: str
    evidence: str
    recovery_s: float | None
    slowest: str
    gap_s: float | None
    no_recovery: bool

    @property
    def label(self) -> str:
        """For the figure: without parameters that would fill it. They stand in the table of faults."""
        what = self.what if len(self.what) <= LONGEST_LABEL else self.what.partition(" (")[0]
        return f"{what} → {self.hit}" if self.hit else what


def fault_rows(files: RunFiles) -> list[FaultRow]:
    """All faults that nemesis.jsonl tells of, by id."""
    measured = {integer(each.get("id")): each for each in objects(files.metrics.get("faults"))}
    return [_row(files, fault, mapping(measured.get(fault["id"])), fault["id"] in measured) for fault in files.faults]


def _row(files: RunFiles, fault: Json, measured: Json, is_measured: bool) -> FaultRow:
    target, params = mapping(fault.get("target")), mapping(fault.get("params"))
    began, ended = files.seconds(fault.get("began")), files.seconds(fault.get("ended"))
    if fault.get("evidence") and not fault.get("error"):
        state = "landed"
    else:
        state = "unfinished" if fault.get("ended") is None else "not landed"
    return FaultRow(
        id=fault["id"],
        what=_what(str(fault.get("action")), params),
        asked=str(target.get("asked", "")),
        hit=whom(target.get("resolved")),
        began=began,
        length=ended - began if began is not None and ended is not None else None,
        planned_s=number(mapping(fault.get("planned")).get("duration_s")),
        state=state,
        evidence=evidence_text(fault),
        recovery_s=number(measured.get("recovery_s")),
        slowest=str(measured.get("slowest_partition") or ""),
        gap_s=number(measured.get("longest_gap_s")),
        no_recovery=is_measured and measured.get("recovery_s") is None and bool(measured.get("slowest_partition")),
    )


def whom(resolved: object) -> str:
    """What a target resolved to: brokers by their ids, or a zone of clients by its name; empty where it is neither."""
    hit = resolved if isinstance(resolved, list) else []
    brokers = [str(each) for each in hit if isinstance(each, int)]
    zones = [f"zone {each}" for each in hit if isinstance(each, str)]
    named = [f"broker{'s' if len(brokers) > 1 else ''} {', '.join(brokers)}"] if brokers else []
    return ", ".join((*named, *zones))


def _what(action: str, params: Json) -> str:
    if action == "partition":
        side = params.get("side", "peers")
        return f"partition ({params.get('shape')}, {params.get('manner')}{'' if side == 'peers' else f', {side}'})"
    if action == "latency":
        return f"latency (+{_plain(params.get('latency_ms'))} ± {_plain(params.get('jitter_ms'))} ms)"
    rest = ", ".join(f"{key} {_plain(value)}" for key, value in params.items())
    return f"{action} ({rest})" if rest else action


def _plain(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def evidence_text(fault: Json) -> str:
    """What was measured while the fault was on, in a sentence or two; for one without evidence, what was missing."""
    seen = mapping(fault.get("evidence") or fault.get("seen"))
    tell = _TOLD.get(str(fault.get("action")), _as_it_is)
    words = tell(seen) if seen else ""
    if fault.get("evidence") and not fault.get("error"):
        return words
    if fault.get("asked") is None:
        missing = "It was never asked for: the run ended before."
    elif fault.get("ended") is None:
        missing = "It has no end: the run stopped while it was on."
    else:
        missing = f"No proof: {fault.get('error') or 'nothing was measured'}."
    return f"{missing} {words}".strip()


def _kill(seen: Json) -> str:
    words = []
    for act in objects(seen.get("down")):
        if "found" in act:
            words.append(_was_down(act))
            continue
        how = "was gone" if act.get("gone") else "was NOT gone"
        words.append(f"Process {act.get('pid')} {how} {_after(act, 'asked_ns', 'ended_ns')} after the kill.")
    return " ".join([*words, *_came_back(seen)])


def _stop(seen: Json) -> str:
    words = []
    for act in objects(seen.get("down")):
        if "found" in act:
            words.append(_was_down(act))
            continue
        how = "left by itself, let go by its controller," if act.get("controlled") else "did NOT leave cleanly"
        took = _after(act, "asked_ns", "ended_ns")
        words.append(f"Process {act.get('pid')} {how} with code {act.get('code')} {took} after it was asked.")
    return " ".join([*words, *_came_back(seen)])


def _was_down(act: Json) -> str:
    """Of a broker that other faults had down when this one began."""
    by = ", ".join(f"fault {fault} ({action})" for fault, action in mapping(act.get("by")).items())
    asked, answered = act.get("asked"), act.get("answered")
    return f"Broker {act.get('node')} was down already, by {by}: {answered} of {asked} probes were answered."


def _came_back(seen: Json) -> list[str]:
    return [
        f"Incarnation {act.get('incarnation')} (process {act.get('pid')}) was ready "
        f"{_after(act, 'asked_ns', 'ready_ns')} after its start{_registered(act)}."
        if "held_by" not in act
        else f"Broker {act.get('node')} was left {act.get('state')}, by fault {', '.join(texts(act['held_by']))}."
        for act in objects(seen.get("up"))
    ]


def _registered(act: Json) -> str:
    """Of a broker that has no trace: the epoch that the controller gave it, as its log says."""
    epoch = act.get("broker_epoch")
    return "" if epoch is None else f", registered with broker epoch {epoch} ({act.get('seen_in')})"


def _held(act: Json) -> str:
    """Who says that a node was held: the kernel of a process, the engine of a container, whose group it freezes."""
    if act.get("container"):
        return f"The engine shows container {act['container']} as {act.get('engine')}"
    return f"The kernel shows process {act.get('pid')} in state {act.get('state')}"


def _pause(seen: Json) -> str:
    words = []
    for act in objects(seen.get("paused")):
        probe = mapping(act.get("probe"))
        answer = "it ANSWERED a probe" if probe.get("ok") else f"a probe got no answer ({probe.get('error')})"
        words.append(f"{_held(act)}; {answer}.")
    for act in objects(seen.get("resumed")):
        if "held_by" in act:
            words.append(f"Broker {act.get('node')} was left paused, by fault {', '.join(texts(act['held_by']))}.")
            continue
        words.append(f"Afterwards in state {act.get('engine', act.get('state'))} again.")
    return " ".join(words)


def _crash(seen: Json) -> str:
    down = mapping(seen.get("down"))
    if not down.get("gone"):
        return f"It came to no {down.get('nth')}. {down.get('op')}."
    where = f" ({down['at']})" if down.get("at") else ""
    words = [f"Killed before its {down.get('nth')}. {down.get('op')}{where}."]
    return " ".join([*words, *_came_back({"up": [seen.get("up")]})])


def _power_loss(seen: Json) -> str:
    words = []
    for node, lost in mapping(mapping(seen.get("lost")).get("nodes")).items():
        told = mapping(lost)
        what = f"{told.get('bytes_lost', '?')} of {told.get('bytes_pending', '?')} unsynced bytes"
        names = f"{told.get('names_lost', '?')} of {told.get('names_pending', '?')} unsynced names"
        words.append(f"Broker {node} lost {what} and {names}.")
    return " ".join([*words, *_came_back(seen)])


def _clock(seen: Json) -> str:
    words = []
    for node, each in mapping(seen.get("said")).items():
        told = mapping(each)
        shown = [number(ms) for ms in told.get("shown_ms") or ()]
        off = " to ".join(f"{ms / 1000:+,.3f} s" for ms in shown if ms is not None)
        lines = told.get("words")
        words.append(f"Broker {node}'s own trace shows its clock off by {off or 'nothing'}, in {lines} lines.")
    return " ".join(words)


def _slow(seen: Json) -> str:
    words = []
    for act in objects(seen.get("healed")):
        cpu = number(act.get("cpu_share"))
        used = "" if cpu is None else f", and had {cpu:.0%} of a CPU"
        ran = number(act.get("ran_share")) or 0
        words.append(f"Held {act.get('stops')} times; it ran {ran:.0%} of the time{used}.")
    return " ".join(words)


def _counted(seen: Json) -> str:
    hits = [each for each in seen.get("hits") or () if isinstance(each, int)]
    links = ", ".join(link.replace("->", "→") for link in texts(seen.get("links")))
    return f"It struck {sum(hits)} times over links {links}."


def _reset(seen: Json) -> str:
    told = [each.get("reset") for each in objects(seen.get("resets"))]
    known = [each for each in told if isinstance(each, int)]
    count = f"{sum(known)} connections" if known else "The connections there were"
    return f"{count} were reset, {len(told)} {'time' if len(told) == 1 else 'times'}."


def _disk(seen: Json) -> str:
    hits = [each.get("hits") for each in objects(seen.get("healed"))]
    words = f"{sum(each for each in hits if isinstance(each, int))} calls were hit."
    return " ".join([words, *_came_back({"up": seen.get("started")})])


def _bit_rot(seen: Json) -> str:
    rotten = [each for each in objects(seen.get("rotten")) if each.get("path")]
    told = (f"{each['path']} at byte {each.get('offset')}" for each in rotten)
    return f"Flipped: {', '.join(told) or 'nothing'}."


def _damage(seen: Json) -> str:
    done = mapping(seen.get("damaged"))
    if not done.get("path"):
        return "There was nothing to damage."
    left = "it was lost" if done.get("bytes_left") is None else f"{done['bytes_left']} bytes were left"
    return f"While it was down: {done['path']}, of {done.get('bytes')} bytes; {left}."


def _leadership(seen: Json) -> str:
    before, after = mapping(seen.get("before")), mapping(seen.get("after"))
    words = []
    if "controller" in before:
        words.append(f"Broker {before['controller']} was asked to resign as controller of epoch {before.get('epoch')}.")
    if "controller" in after:
        words.append(f"Broker {after['controller']} followed in epoch {after.get('epoch')}.")
    for name, error in mapping(seen.get("answers")).items():
        was, now = mapping(before.get(name)), mapping(after.get(name))
        led = f"led by {was.get('leader')}, then by {now.get('leader')}"
        words.append(
            f"{name}: {error or 'accepted'}, {led}, replicas {was.get('replicas')}, then {now.get('replicas')}."
        )
    return " ".join(words)


def _partition(seen: Json) -> str:
    during, after = objects(seen.get("during")), objects(seen.get("after"))
    links = ", ".join(link.replace("->", "→") for link in texts(seen.get("links")))
    silent = [probe for probe in during if not probe.get("ok")]
    why = ", ".join(dict.fromkeys(str(probe.get("error")) for probe in silent))
    words = f"Links {links}: {len(silent)} of {len(during)} probes got no answer while cut ({why or 'all answered'})"
    healed = sum(bool(probe.get("ok")) for probe in after)
    return f"{words}; {healed} of {len(after)} answered once healed, in {_trips(after)}."


def _latency(seen: Json) -> str:
    before, during = objects(seen.get("before")), objects(seen.get("during"))
    count = len(texts(seen.get("links")))
    words = f"Round trips over {count} links took {_trips(during)} while on, {_trips(before)} before."
    silent = sum(not probe.get("ok") for probe in before)
    return words + (f" {silent} of the links did not answer before." if silent else "")


def _ended(seen: Json) -> str:
    during = objects(seen.get("during"))
    how = ", ".join(dict.fromkeys(str(probe.get("error")) for probe in during))
    return f"Connections over {len(texts(seen.get('links')))} links, after {_all_trips(during)}: {how}."


def _flapping(seen: Json) -> str:
    turns = objects(seen.get("turns"))
    down, up = (sum(integer(turn.get(key)) for turn in turns) for key in ("down", "up"))
    of = sum(integer(turn.get("of")) for turn in turns)
    return f"Cut and healed {len(turns)} times: {down} of {of} probes answered while cut, {up} of {of} between."


def _rolling(seen: Json) -> str:
    words = []
    for step in objects(seen.get("steps")):
        up = mapping(step.get("up"))
        synced = _after({**up, "in_sync_ns": step.get("in_sync_ns", -1)}, "ready_ns", "in_sync_ns")
        words.append(
            f"Broker {step.get('node')} came back as incarnation {up.get('incarnation')}; in sync {synced} later."
        )
    return " ".join(words)


def _upgrade(seen: Json) -> str:
    steps = [step for step in objects(seen.get("steps")) if "is" in step]
    changes = [(mapping(step.get("was")), mapping(step.get("is"))) for step in steps]
    by = " and ".join(dict.fromkeys(str(now.get("by")) for _, now in changes))
    told = {f"{_short(was.get('runs'))} before, {_short(now.get('runs'))} after" for was, now in changes}
    return f"{_rolling(seen)} What ran was {'; '.join(sorted(told))} ({by})."


def _short(runs: object) -> str:
    return str(runs).removeprefix("sha256:")[:16]


def _client(seen: Json) -> str:
    who = str(seen.get("client")).capitalize()
    if "process" in seen:
        return f"{who}: process {seen.get('process')} was gone, process {seen.get('followed_by')} followed."
    done = f"{seen.get('before')} things before, {seen.get('during')} meanwhile, {seen.get('after')} at once after"
    return f"{who} began {done}."


def _all_trips(probes: Sequence[Json]) -> str:
    return _trips([{**probe, "ok": True} for probe in probes])


def _trips(probes: Sequence[Json]) -> str:
    times = [t for p in probes if p.get("ok") and (t := number(p.get("round_trip_ms"))) is not None]
    if not times:
        return "(no answer)"
    low, high = f"{min(times):.0f}", f"{max(times):.0f}"
    return f"{low} ms" if low == high else f"{low} to {high} ms"


def _after(act: Json, asked: str, done: str) -> str:
    begin, end = integer(act.get(asked)), integer(act.get(done))
    if begin < 0 or end < 0:
        return "(at an unknown time)"
    return f"{(end - begin) / 1e6:.0f} ms" if end - begin < 1e9 else f"{(end - begin) / 1e9:.2f} s"


def _as_it_is(seen: Json) -> str:
    return json.dumps(seen, sort_keys=True)


_TOLD: dict[str, Callable[[Json], str]] = {
    "kill": _kill,
    "stop": _stop,
    "pause": _pause,
    "partition": _partition,
    "latency": _latency,
    "bandwidth": _latency,
    "slicer": _latency,
    "limit_data": _ended,
    "reset_peer": _ended,
    "slow_close": _ended,
    "flapping": _flapping,
    "rolling": _rolling,
    "upgrade": _upgrade,
    "client": _client,
    "crash_at": _crash,
    "power_loss": _power_loss,
    "clock": _clock,
    "slow": _slow,
    "packet_loss": _counted,
    "protocol": _counted,
    "reset": _reset,
    "disk": _disk,
    "bit_rot": _bit_rot,
    "damage": _damage,
    "leadership": _leadership,
}
