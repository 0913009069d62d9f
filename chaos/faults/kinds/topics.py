"""Defines the fault `topics`: topics change by request, as administrators request it."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from squall.chaos.faults import proofs
from squall.chaos.faults.kind import (
    OUR_WORLDS,
    ChoiceParameter,
    DrawRules,
    FaultKind,
    FaultTrait,
    NumericParameter,
    Params,
)
from squall.chaos.faults.words import Json, integer, mapping, texts

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution

ASKS: Mapping[str, tuple[str, ...]] = {
    "churn": ("CREATE_TOPICS", "DELETE_TOPICS"),
    "remake": ("CREATE_TOPICS", "DELETE_TOPICS"),
    "partitions": ("CREATE_PARTITIONS",),
    "delete_records": ("DELETE_RECORDS",),
    "min_isr": ("INCREMENTAL_ALTER_CONFIGS",),
    "retention": ("INCREMENTAL_ALTER_CONFIGS",),
    "segment": ("INCREMENTAL_ALTER_CONFIGS",),
}
VALUES: Mapping[str, tuple[int, ...]] = {
    "min_isr": (1, 1, 2, 3),
    "retention": (1_000, 3_000),
    "segment": (16_384, 65_536),
}
"""Maps a setting to the values that a seed may draw: a number of replicas, ms, or bytes. 64 KiB are enough for any
batch of the default size; brokers refuse a batch that is larger than a segment.
"""


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Change topics as an administrator would, with a client of the harness."""
    from squall.chaos.faults.acts.topics import change

    await change(context, p)


def drawn(rng: Random) -> dict[str, Any]:
    """Draw the parameters: each value of `how` equally often, but `churn` twice as often and `remake` never.
    `own_topics` draws `remake`, because not all clients can handle that their own topics are deleted and recreated.
    """
    how = rng.choice(("churn", *(each for each in ASKS if each != "remake")))
    return {"how": how, "value": rng.choice(VALUES.get(how, (0,)))}


def own_topics(rng: Random, params: Params) -> Params:
    """Return the parameters. Half of the faults with `how` = `churn`, which recreates a topic of its own, get `remake`
    instead, which deletes and recreates a topic of the workload.
    """
    return {**params, "how": "remake"} if params["how"] == "churn" and rng.random() < 0.5 else params


def check(params: Params) -> str:
    """Require a `value` of at least 1 if the fault alters a setting of a topic, such as its retention."""
    return f"how = {params['how']!r} needs a value of at least 1" if _alters(params) and params["value"] < 1 else ""


def _alters(params: Params) -> bool:
    return params["how"] in VALUES


def describe_evidence(seen: Json) -> str:
    """Describe the requests and their results."""
    topic, acked = seen.get("topic"), [str(each) for each in texts(seen.get("acknowledged"))]
    if "ids" in seen:
        made = len(texts(seen.get("ids")))
        if "crashed" in seen:
            crashed = integer(seen.get("crashed"))
            return f"Topic {topic} was deleted and made again, after {crashed} clients had crashed."
        return f"Topic {topic} was made {made} times; {', '.join(acked)} records were acknowledged."
    if "partitions" in seen:
        return f"Topic {topic} has {seen.get('partitions')} partitions; the new one acknowledged {acked[0]} records."
    if "setting" in seen:
        before = seen.get("before")
        was = "the broker's value" if before is None else before
        return f"{seen.get('setting')} of topic {topic} was {seen.get('value')} for a while, before and after {was}."
    deleted = mapping(seen.get("deleted")).items()
    return " ".join(f"{name}: records before {integer(mapping(each).get('before'))} were deleted."
                    for name, each in deleted)  # fmt: skip


def describe_params(params: Params) -> str:
    """Format the parameters. Include `value` only if the fault alters a setting of a topic."""
    value = f", value {params['value']:g}" if _alters(params) else ""
    return f" (how {params['how']}{value})"


KIND = FaultKind(
    name="topics",
    place=28,
    title="by request: create, delete and create a topic again; add partitions; delete records; alter settings",
    fault_class="P",
    duration_s=NumericParameter(0.2, 600, 4),
    params={
        "how": ChoiceParameter(
            ("churn", "remake", "partitions", "delete_records", "min_isr", "retention", "segment"), "churn"
        ),
        "value": NumericParameter(0, 1_000_000_000, 0),
    },
    traits=frozenset({FaultTrait.NEEDS_WORKLOAD}),
    worlds=OUR_WORLDS,
    nowhere_else="it would change topics of somebody else's cluster",
    asks=ASKS,
    check=check,
    draw=DrawRules(params=drawn, target=lambda rng, params: "all", swarm="beside", own_topics=own_topics),
    play=play,
    verify=proofs.changed_topics,
    evidence="what was requested and accepted: ids of the topics, offsets, values; an added partition acknowledged "
    "records; a fresh client is told at the end that the log begins where records were deleted",
    middle="none: a setting is asked for once after it was accepted, a log start once at the end",
    describe_evidence=describe_evidence,
    describe_params=describe_params,
    describe_effect=lambda params, node, links: f"part of a cluster whose topics change ({params.get('how', 'churn')})",
)
