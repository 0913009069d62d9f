"""Golden scripts of anomaly stories: a text file lists facts, one a line, then "----" and the story that reports tell.

    about lost-write appends-0-0 value=1 offset=1  the problem; text=... describes it, t= and node= are where seen,
                                                   blames= is the client or broker at fault
    nodes 1 2 3
    acks 1                                         the plan's setting
    program 0                                      processes that are a program under test
    fresh 2                                        the harness's processes that write after healing
    requests 479 acks=1 idempotent=false           what the brokers received
    0.010 sends 0 1                                process, value
    0.014 told 1 ok 1                              value, ok|fail|info, offset or error
    0.020 broker 1 became_leader epoch=0 leo=0 hw=0 isr=[1,2]
    0.500..0.900 kill 2                            a fault: action, broker, and a text for it if that differs
    5.0..6.0 finals 0=0 2=1                        final reads: value=offset
    4.0 reads 0=0
"""

from __future__ import annotations

import json
from typing import Any

from squall.chaos.faults.kinds import KINDS
from squall.checkers.fault_traits import TAKES_DOWN
from squall.checkers.sent import BROKERS, ObservedProduceRequests, ProduceRequestSettings
from squall.reports.problems import StorySubject
from squall.reports.sent_words import RequestedSettings
from squall.reports.story import story_of, text_of
from squall.reports.story_facts import (
    ACKNOWLEDGED,
    FAILED,
    UNKNOWN,
    BrokerTraceLine,
    NodeFaultSpan,
    PartitionFacts,
    SeenRecord,
    SentRecord,
)

RULER = "----"
_STATES = {"ok": ACKNOWLEDGED, "fail": FAILED, "info": UNKNOWN}
_DEFAULT_WORDS = {"kill": "killed", "power_loss": "without power", "pause": "paused"}


def run_script(text: str) -> str:
    """Return the script with the story that `reports` now makes of its facts."""
    script = text.split(f"\n{RULER}\n")[0]
    return f"{script}\n{RULER}\n{text_of(story_of(facts_of_script(script)))}"


def facts_of_script(script: str) -> PartitionFacts:
    """Parse the facts of a script."""
    facts = PartitionFacts(StorySubject("?", "", "appends-0", 0), [1, 2, 3])
    for line in script.split(f"\n{RULER}\n")[0].splitlines():
        words = line.split("#")[0].split()
        if words:
            _take(facts, words)
    facts.events.sort(key=lambda event: event.t)
    return facts


def _take(facts: PartitionFacts, words: list[str]) -> None:
    match words:
        case ["about", name, where, *rest]:
            facts.problem = _problem(name, where, rest)
        case ["nodes", *nodes]:
            facts.nodes = [int(node) for node in nodes]
        case ["acks", acks]:
            facts.asked = RequestedSettings(-1 if acks == "all" else int(acks), acks == "all")
        case ["requests", count, *settings]:
            given = {"acks": -1, "idempotent": True, "in_flight": 1, **_fields(settings)}
            seen = ProduceRequestSettings(
                "rdkafka", transactional_id=None, compression="none", requests=int(count), **given
            )
            facts.requests = ObservedProduceRequests((*facts.requests.settings, seen), 0, BROKERS)
        case ["fresh", *processes]:
            facts.fresh |= set(map(int, processes))
        case ["program", *processes]:
            facts.programs |= set(map(int, processes))
        case [t, "sends", process, value]:
            facts.slots[int(process)] = int(process)
            facts.sends.append(SentRecord(int(value), int(process), float(t)))
        case [t, "told", value, state, what]:
            sent = next(each for each in facts.sends if each.value == int(value))
            sent.done, sent.state = float(t), _STATES[state]
            sent.offset, sent.error = (int(what), "") if state == "ok" else (-1, what)
        case [t, "broker", node, name, *fields]:
            facts.events.append(BrokerTraceLine(float(t), int(node), name, _fields(fields)))
        case [span, "finals", *pairs]:
            begin, end = map(float, span.split(".."))
            facts.final_reads = begin, end
            facts.seen += [SeenRecord(end, 9, v, o, -1, True) for v, o in map(_pair, pairs)]
        case [t, "reads", *pairs]:
            facts.seen += [SeenRecord(float(t), 8, v, o, -1, False) for v, o in map(_pair, pairs)]
        case [span, action, node, *said]:
            begin, _, end = span.partition("..")
            words_of = " ".join(said) or _DEFAULT_WORDS[action]
            number = len({bar.number for bar in facts.faults})
            facts.faults.append(
                NodeFaultSpan(
                    number,
                    action,
                    int(node),
                    float(begin),
                    float(end) if end else None,
                    words_of,
                    TAKES_DOWN in KINDS[action].traits,
                )
            )
        case _:
            raise ValueError(f"not a fact: {' '.join(words)}")


def _problem(name: str, where: str, rest: list[str]) -> StorySubject:
    topic, _, index = where.rpartition("-")
    text = ""
    if any(word.startswith("text=") for word in rest):
        at = next(i for i, word in enumerate(rest) if word.startswith("text="))
        text, rest = " ".join(rest[at:]).removeprefix("text="), rest[:at]
    given: dict[str, list[str]] = {}
    for word in rest:
        key, _, value = word.partition("=")
        given.setdefault(key, []).append(value)
    return StorySubject(
        name,
        text,
        topic,
        int(index),
        tuple(map(int, given.get("value", []))),
        tuple(map(int, given.get("offset", []))),
        float(given["t"][0]) if "t" in given else None,
        int(given["node"][0]) if "node" in given else None,
        blames=given.get("blames", [""])[0].replace("_", " "),
    )


def _pair(word: str) -> tuple[int, int]:
    value, _, offset = word.partition("=")
    return int(value), int(offset)


def _fields(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value.replace("_", " ") if key in ("reason", "why") else value
    return found
