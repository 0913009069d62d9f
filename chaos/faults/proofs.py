"""Checks the evidence in nemesis.jsonl for faults that are recorded as landed (they took effect). It does no I/O.

Each kind of fault defines what its evidence must contain. The nemesis measures this before it records the fault as
landed. When the run is judged, the evidence is checked again: that a fault has some evidence does not prove that it
landed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from squall.chaos.faults.words import Json, integer, mapping, number, objects, texts
from squall.chaos.runtimes.contract import GONE, NodeState, StreamDirection

Verify = Callable[[Json, Mapping[str, Any], Sequence[Any]], str]
"""Takes the evidence, the parameters and the targets that were hit. Returns in words what is missing in the evidence;
empty: nothing.
"""


def _came_back(up: Sequence[Json], count: int) -> bool:
    """Return whether each of `count` nodes is up again, or is still held down by another fault. up: the evidence about
    each node's start.
    """
    ready = [integer(each.get("ready_ns")) > 0 or each.get("state") == NodeState.DOWN for each in up]
    return len(ready) == count and all(ready)


def stayed_down(seen: Json, hit: Sequence[Any]) -> str:
    """Return "" if none of the nodes had an OS process when the nemesis looked once, at a random moment of the fault;
    else a message that says that a node ran.
    """
    found = {each.get("node"): each.get("state") for each in objects(seen.get("middle"))}
    return "" if hit and all(found.get(node) == GONE for node in hit) else "a node ran in the middle of the fault"


CONTROLLED, ALONE = "controlled", "alone"
"""Are keys of the evidence that say how a broker shut down on SIGTERM. CONTROLLED: its controller released it. ALONE:
no controller answered, so that the broker shut down without a controlled shutdown.
"""


def left_as_asked(evidence: Mapping[str, Any], proof: str) -> bool:
    """Return whether a node went down as its fault requires: its evidence must be true at the key `proof`, such as
    "gone". If `proof` is CONTROLLED, ALONE is enough: a broker shuts down without a controlled shutdown if no
    controller answers.
    """
    return bool(evidence.get(proof) or (proof == CONTROLLED and evidence.get(ALONE)))


def taken_down(proof: str) -> Verify:
    """Return a check that each node was taken down and started again. proof: the key that must be true in a node's
    evidence, such as "gone".
    """

    def missing(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
        down = objects(seen.get("down"))
        # Without a count of answers, nothing shows that a node that was already down stayed silent: the default is 1.
        shown = [
            not integer(each.get("answered"), 1) if "found" in each else left_as_asked(each, proof) for each in down
        ]
        if len(shown) != len(hit) or not all(shown):
            return f"not every node was {proof}"
        if missing := stayed_down(seen, hit):
            return missing
        return "" if _came_back(objects(seen.get("up")), len(hit)) else "not every node came back"

    return missing


def lost_power(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if each node was down and came back, and the evidence contains two things: the bytes that were pending
    on each node's disk, and each partition's ISR from before the power loss. Else return what is missing.
    """
    nodes = mapping(mapping(seen.get("lost")).get("nodes"))
    if any(integer(mapping(nodes.get(str(node))).get("bytes_pending")) < 0 for node in hit) or not hit:
        return "it does not say of every node what was pending on its disk"
    if not isinstance(seen.get("isr"), Mapping):
        return "it does not say who was in sync"
    if missing := stayed_down(seen, hit):
        return missing
    return "" if _came_back(objects(seen.get("up")), len(hit)) else "not every node came back"


def gone_and_back(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if the node's OS process was gone, was gone at a random moment of the fault too, and the node came
    back; else what is missing.
    """
    if not mapping(seen.get("down")).get("gone"):
        return "the node was not gone"
    if missing := stayed_down(seen, hit):
        return missing
    return "" if _came_back([mapping(seen.get("up"))], 1) else "the node did not come back"


def damaged(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if a node was down and came back, and one of its files was changed; else what is missing."""
    done = mapping(seen.get("damaged"))
    if not done.get("path") or "before" not in done or done.get("before") == done.get("after"):
        return "no file is another than before"
    return gone_and_back(seen, params, hit)


def rotten(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if the bits of at least one file were flipped; else a message that no file has changed."""
    changed = any(each.get("before") != each.get("after") for each in objects(seen.get("rotten")) if each.get("path"))
    return "" if changed else "no file is another than before"


CPU_SLACK_S = 0.02
"""Gives the CPU seconds that may be added to a stopped OS process: two of the kernel's clock ticks, in which it counts
CPU time.
"""
DONE = {"cpu_s": CPU_SLACK_S, "calls": 0}
"""Maps a counter of `Runtime.activity` to how much it may grow while the OS process is stopped. cpu_s: CPU seconds.
calls: writes, fsyncs and sends, which only the simulator counts.
"""


def held(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if the nodes were paused; else what is missing. Each node must have been stopped when it was paused, in
    the middle and at the end. It must have answered no probe, and done nothing between the first and the last
    inspection.
    """
    paused, resumed = objects(seen.get("paused")), objects(seen.get("resumed"))
    stopped = [each.get("state") == "T" and mapping(each.get("probe")).get("ok") is False for each in paused]
    if len(stopped) != len(hit) or not all(stopped):
        return "a node was not held, or answered while it should have been"
    kept = ["held_by" in each or each.get("found") == "T" for each in resumed]
    if len(kept) != len(hit) or not all(kept):
        return "a node was let go by somebody else before the end"
    looks = [objects(each) for each in seen["looks"]] if isinstance(seen.get("looks"), list) else []
    if len(looks) < 3 or any([each.get("node") for each in look] != list(hit) for look in looks):
        return "not every node was looked at when it was paused, in the middle, and before the end"
    if any(each.get("state") != "T" for look in looks for each in look):
        return "a node was let go by somebody else in between"
    return "" if all(map(_idle, looks[0], looks[-1])) else "a node did something while it should have been stopped"


def _idle(first: Json, last: Json) -> bool:
    """Return whether an OS process did nothing between two inspections: none of its counters grew by more than `DONE`
    allows. False if no counter was measured.
    """
    grown = [(grew, most) for name, most in DONE.items() if (grew := _growth(first, last, name)) is not None]
    # If nothing was counted, nothing is proven. A count that falls is that of another process: the node was restarted.
    return bool(grown) and all(0 <= grew <= most for grew, most in grown)


def _growth(first: Json, last: Json, name: str) -> float | None:
    before, after = number(first.get(name)), number(last.get(name))
    return None if before is None or after is None else after - before


def did_meanwhile(looks: object) -> str | None:
    """Describe what the nodes' OS processes did between the first and the last time that they were inspected. None:
    they were not inspected twice.
    """
    seen = [objects(each) for each in looks] if isinstance(looks, (list, tuple)) else []
    if len(seen) < 2:
        return None
    pairs = list(zip(seen[0], seen[-1], strict=False))
    cpu = [grew for first, last in pairs if (grew := _growth(first, last, "cpu_s")) is not None]
    calls = [grew for first, last in pairs if (grew := _growth(first, last, "calls")) is not None]
    done = [f"it used {1000 * max(cpu):.0f} ms of CPU time"] if cpu else []
    done += [f"it made {max(calls):.0f} writes, fsyncs and sends"] if calls else []
    return " and ".join(done) or None


def restarted(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if each node was down as requested, came up again, and all partitions were in sync; else what is
    missing.
    """
    steps = objects(seen.get("steps"))
    proof = "gone" if params.get("how") == "kill" else CONTROLLED
    whole = [
        left_as_asked(mapping(step.get("down")), proof)
        and integer(mapping(step.get("up")).get("ready_ns")) > 0
        and integer(step.get("in_sync_ns")) > 0
        for step in steps
    ]
    return "" if len(whole) == len(hit) and all(whole) else f"not every node was {proof}, came back and was in sync"


def upgraded(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if each node went down as requested, came up again with other software than before, and all partitions
    were in sync; else what is missing.
    """
    pairs = [
        (mapping(step.get("was")).get("runs"), mapping(step.get("is")).get("runs"))
        for step in objects(seen.get("steps"))
    ]
    same = not pairs or any(now is None or now == was for was, now in pairs)
    return restarted(seen, params, hit) or ("a node runs what it ran before" if same else "")


def _proven(seen: Json) -> str:
    links, proven = texts(seen.get("links")), texts(seen.get("proven"))
    if not links or not proven or not set(proven) <= set(links):
        return "no link of the fault's own proves it"
    return ""


def silent(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if links answered before the cut, not during it, and again afterwards; else what is missing."""
    links, before, after = texts(seen.get("links")), texts(seen.get("before")), objects(seen.get("after"))
    # A cut of one kind of traffic probes only the links that answered before. A whole cut probes all of its links: one
    # that was dead before must be silent, too.
    of = before if seen.get("traffic") else links
    during = [probe for when in ("during", "middle", "last") for probe in objects(seen.get(when))]
    if missing := _proven(seen):
        return missing
    if len(objects(seen.get("during"))) != len(of) or any(each.get("ok") is not False for each in during):
        return "not every link was silent while it was cut"
    if not before or len(after) != len(before) or any(each.get("ok") is not True for each in after):
        return "not every link that answered before answered again"
    if wrong := wrong_way(seen):
        return wrong
    other = dict(zip(before, objects(seen.get("other")), strict=False))
    if seen.get("traffic") and any(mapping(other.get(link)).get("ok") is not True for link in texts(seen["proven"])):
        return "other requests over these links got no answer either"
    return ""


def wrong_way(seen: Json) -> str:
    """Name a link that was cut in the wrong direction: a request passed although requests were to be cut, or a request
    did not pass although only responses were to be cut. Return "" if there is no such link.
    """
    proven = texts(seen.get("proven"))
    for way in objects(seen.get("ways")):
        link, only_answers = way.get("link"), way.get("stream") == StreamDirection.BACK
        if way.get("reached") is True and not only_answers:
            return f"a request still came over link {link}, although requests were to be cut"
        # On any other link, another fault may have stopped the request.
        if way.get("reached") is False and only_answers and link in proven:
            return f"no request came over link {link}, although only its answers were to be cut"
    return ""


def flapped(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if the links answered no probe while they were cut, some between the cuts, and all at the end; else
    what is missing.
    """
    turns, after = objects(seen.get("turns")), objects(seen.get("after"))
    if not turns or any(turn.get("down") != 0 for turn in turns) or not any(turn.get("up") for turn in turns):
        return "its links did not fall silent and answer again in turns"
    whole = bool(after) and all(each.get("ok") is True for each in after)
    return "" if whole and texts(seen.get("links")) else "not every link answered at the end"


def compared(*numbers: str) -> Verify:
    """Return a check that links were measured before, during and after a fault. numbers: the keys of further numbers
    that the evidence must contain, such as "longer_by_ms".
    """

    def missing(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
        links = texts(seen.get("links"))
        measured = {when: objects(seen.get(when)) for when in ("before", "during", "after")}
        if any(len(probes) != len(links) for probes in measured.values()):
            return "its links were not measured before, during and after it"
        if unknown := [name for name in numbers if number(seen.get(name)) is None]:
            return f"it does not say {', '.join(unknown)}"
        return _proven(seen) or _measured(links, texts(seen["proven"]), measured)

    return missing


def _measured(links: Sequence[str], proven: Sequence[str], measured: Mapping[str, Sequence[Json]]) -> str:
    """Return "" if each link in `proven` has a round trip during the fault, and one before or after it; else a message
    that names the first link that has not. Only the links in `proven` count as proof of the fault.

    measured: a list of probes for each of "before", "during" and "after", in the order of `links`.
    """
    for link in proven:
        during, *quiet = (
            number(measured[w][links.index(link)].get("round_trip_ms")) for w in ("during", "before", "after")
        )
        if during is None or all(each is None for each in quiet):
            return f"link {link} was not measured with and without it"
    return ""


def struck(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if the evidence says for each link how many requests, responses or packets the fault hit there, and the
    sum is above 0; else what is missing.
    """
    hits = [integer(each) for each in seen.get("hits") or ()] if isinstance(seen.get("hits"), list) else []
    sound = len(hits) == len(texts(seen.get("links"))) and all(each >= 0 for each in hits)
    return "" if sound and sum(hits) > 0 else "it does not say how often it struck over which links"


def reset(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if connections were open and all of them were reset; else what is missing."""
    opened, ended = texts(seen.get("opened")), mapping(seen.get("ended"))
    if not opened or not set(opened) <= set(texts(seen.get("links"))) or not objects(seen.get("resets")):
        return "no connection over its links was open"
    whole = all(mapping(ended.get(link)).get("ok") is True for link in opened)
    return "" if whole else "not every connection was reset"


def leadership_changed(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if the evidence proves a change of leaders; else what is missing.

    If the controller had to resign (how="resign"), the quorum's epoch must have increased. Otherwise the evidence must
    contain, for each partition, the controller's answer and the leader and replicas before and after. At least one
    answer must be a success.
    """
    before, after, answers = (mapping(seen.get(name)) for name in ("before", "after", "answers"))
    if params.get("how") == "resign":
        later = integer(after.get("epoch")) > integer(before.get("epoch")) >= 0
        asked = integer(seen.get("asked")) > 0 and before.get("controller") in hit
        return "" if later and asked else "no controller that was asked was followed in a later epoch"
    if not answers or not set(answers) <= set(before) or not set(answers) <= set(after):
        return "it does not say of which partitions what was answered, and who led them before and after"
    return "" if any(error in ("", "ELECTION_NOT_NEEDED") for error in answers.values()) else "the controller refused"


def changed_topics(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if the fault `topics` changed a topic in the way that its parameter `how` names, for instance added
    partitions; else what is missing.
    """
    match params.get("how"):
        case "churn" | "remake":
            ids = texts(seen.get("ids"))
            # An id of zeros means that no broker reported the topic's id.
            known = [each for each in ids if each.strip("0")]
            return "" if len(set(known)) == len(ids) > 1 else "no topic followed another of its name"
        case "partitions":
            if integer(seen.get("partitions")) <= 1:
                return "it does not say how many partitions there are"
            written = [integer(each) > 0 for each in seen.get("acknowledged") or ()]
            return "" if written and all(written) else "an added partition acknowledged no record"
        case "delete_records":
            deleted = [mapping(each) for each in mapping(seen.get("deleted")).values()]
            done = [integer(each.get("low_watermark")) >= integer(each.get("before")) >= 0 for each in deleted]
            if not done or not all(done):
                return "not all replicas have deleted what was asked for"
            gone = all(
                each.get("remade") is True or integer(each.get("log_start")) >= integer(each.get("before"))
                for each in deleted
            )
            return "" if gone else "at the end a log began before the offset to which its records were deleted"
    known_value = seen.get("value") is not None and seen.get("seen") == seen.get("value")
    return "" if seen.get("setting") and known_value else "no broker has the value that was asked for"


def client_was_interrupted(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if a crashed client has a successor, or if a paused client did operations before and after the pause
    but none during it; else what is missing.
    """
    if params.get("how") == "crash":
        gone, then = integer(seen.get("process")), integer(seen.get("followed_by"))
        return "" if min(gone, then) >= 0 and gone != then else "no process followed another"
    counts = [integer(seen.get(when)) for when in ("before", "during", "after")]
    return "" if counts[0] > 0 and counts[1] == 0 and counts[2] > 0 else "it has no gap between operations"


def zombie_was_fenced(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if the fault made a zombie; else what is missing. A client must have been stopped inside a transaction,
    its successor must have ended a transaction meanwhile, and the stopped client must then have tried to send records
    and to end its transaction. This does not check that the broker refused the zombie.
    """
    zombie, then = integer(seen.get("zombie")), integer(seen.get("followed_by"))
    if zombie < 0:
        return "no process came to stand still inside a transaction"
    if then < 0 or then == zombie:
        return f"no other process took over the transactional id of process {zombie}"
    if integer(seen.get("ended")) <= 0:
        return f"process {then} did no transaction while process {zombie} stood still"
    if integer(seen.get("early")) != 0:
        return f"process {zombie} did not stand still"
    tried = min(integer(seen.get("sends")), integer(seen.get("ends")))
    return "" if tried > 0 else f"process {zombie} did not go on writing"


def load_was_killed(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if processes of a load were killed, and another one took the place of each; else what is missing."""
    kills = objects(seen.get("kills"))
    if not kills:
        return "no process of the load came to the moment"
    gone = [(integer(each.get("process")), integer(each.get("followed_by"))) for each in kills]
    alone = next((process for process, then in gone if min(process, then) < 0 or process == then), None)
    return "" if alone is None else f"no process followed process {alone}"


FENCED, UNRELEASED = "FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID"


def gone_from_group(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if a coordinator still listed a member that had crashed, and then removed it or gave its place to a
    successor; else what is missing.
    """
    gone, then = integer(seen.get("process")), integer(seen.get("followed_by"))
    if seen.get("listed") is not True:
        return f"the coordinator did not know process {gone} any more once it was gone, as if it had left"
    if max(number(seen.get(name)) or 0.0 for name in ("given_up_s", "taken_over_s")) <= 0:
        return f"the coordinator has not given process {gone} up"
    return "" if min(gone, then) >= 0 and gone != then else f"no process followed process {gone}"


def instance_id_was_fenced(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if two clients had one instance id, and the coordinator refused one of them because of the other; else
    what is missing.

    In a classic group the newer client takes over (KIP-345). In a consumer group the owner of the id keeps it
    (KIP-848): mostly the older client, unless its session was over when the newer one joined.
    """
    first, second = integer(seen.get("first")), integer(seen.get("second"))
    if min(first, second) < 0 or first == second or not seen.get("instance"):
        return "no second process joined with the instance id of a member"
    fenced = [mapping(each) for each in objects(seen.get("fenced"))]
    if any(each.get("process") in (first, second) and each.get("told") in (FENCED, UNRELEASED) for each in fenced):
        return ""
    return f"neither was process {first} fenced nor process {second} refused"


def clock_was_wrong(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if each node itself reported (in its trace, where it logs its wall clock) that its clock was off as the
    fault requires; else what is missing. Unless the clock was to jump to and fro (`strobe_ms`), it must not have been
    right in between.
    """
    said = mapping(seen.get("said"))
    shown = [mapping(said.get(str(node))).get("off") is True for node in hit]
    if not shown or not all(shown):
        return "not every node's trace shows a wrong clock"
    whole = params.get("strobe_ms") or all(mapping(said.get(str(node))).get("undone") == 0 for node in hit)
    return "" if whole else "a node's trace shows another order in between"


def slowed(tolerance: float) -> Verify:
    """Return a check that each node was throttled, and ran for at most the share of the time that the fault's parameter
    `share` allows (0.1: a tenth). tolerance: how much may be added to this share.
    """

    def missing(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
        most = (number(params.get("share")) or 0.0) + tolerance
        ran = [number(each.get("ran_share")) for each in objects(seen.get("healed")) if integer(each.get("stops")) > 0]
        sound = len(ran) == len(hit) and all(each is not None and each <= most for each in ran)
        return "" if sound else "not every node was held for most of the time"

    return missing


def disk_struck(seen: Json, params: Mapping[str, Any], hit: Sequence[Any]) -> str:
    """Return "" if the evidence says for each node how many disk calls the fault hit, and the sum is above 0; else what
    is missing.
    """
    hits = [integer(each.get("hits"), 0) for each in objects(seen.get("healed"))]
    return "" if len(hits) == len(hit) and sum(hits) > 0 else "it does not say how many calls it hit"
