"""Defines the fault `protocol`: a link drops, delays, duplicates, reorders or answers the n-th request of an API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from squall.chaos.draws import rng_for
from squall.chaos.faults import proofs
from squall.chaos.faults.calls import expects_many_records
from squall.chaos.faults.kind import (
    HOLDING,
    SIDES,
    TRAFFIC,
    ChoiceParameter,
    DrawRules,
    Fault,
    FaultKind,
    FaultPlacement,
    FaultTrait,
    NumericParameter,
    Params,
    PlanCapabilities,
)
from squall.chaos.faults.link_faults import indistinct_traffic, off_peers, on_clients_side
from squall.chaos.faults.shapes import asked_over
from squall.chaos.faults.words import counted, nth

if TYPE_CHECKING:
    from squall.chaos.faults.context import FaultContext, FaultExecution

APIS = (
    *("Produce", "Fetch", "ListOffsets", "Metadata", "OffsetForLeaderEpoch", "InitProducerId", "CreateTopics"),
    *("AlterPartition", "BrokerHeartbeat", "BrokerRegistration", "Envelope"),
    *("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot"),
    *("AddPartitionsToTxn", "EndTxn", "WriteTxnMarkers"),
    *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch"),
    *("AddOffsetsToTxn", "TxnOffsetCommit", "ConsumerGroupHeartbeat"),
)
"""Lists the APIs whose requests and responses the fault may hit."""

ERRORS = (
    *("REQUEST_TIMED_OUT", "NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    *("UNKNOWN_SERVER_ERROR", "NOT_CONTROLLER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "KAFKA_STORAGE_ERROR"),
    "STALE_BROKER_EPOCH",
)
"""Lists the errors with which the relay on a link may answer a request in the broker's stead."""
OF_COORDINATORS = (
    *("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"),
    "PRODUCER_FENCED",
)
"""Lists the errors that, besides `ERRORS`, the relay on a link may return for requests to a transaction coordinator."""
COORDINATED = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn")
"""Lists the APIs that clients call at a transaction coordinator. Brokers call AddPartitionsToTxn as well (KIP-890)."""
OF_MARKERS = (
    *("REQUEST_TIMED_OUT", "NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    "KAFKA_STORAGE_ERROR",
)
"""Lists the errors after which a coordinator sends its transaction markers again. After any other error, Kafka's
coordinator gives up, and the transaction hangs.
"""

_GROUPS_MOVE = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")
_OF_MEMBERS = (*_GROUPS_MOVE, "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
OF_GROUPS: Mapping[str, tuple[str, ...]] = {
    "JoinGroup": (*_GROUPS_MOVE, "UNKNOWN_MEMBER_ID"),
    "SyncGroup": (*_OF_MEMBERS, "REBALANCE_IN_PROGRESS"),
    "Heartbeat": (*_OF_MEMBERS, "REBALANCE_IN_PROGRESS"),
    "LeaveGroup": (*_GROUPS_MOVE, "UNKNOWN_MEMBER_ID"),
    "OffsetCommit": (*_OF_MEMBERS, "REBALANCE_IN_PROGRESS"),
    "OffsetFetch": _GROUPS_MOVE,
    "TxnOffsetCommit": _OF_MEMBERS,
    "ConsumerGroupHeartbeat": (*_GROUPS_MOVE, "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"),
}
"""Maps each API that clients call at a group coordinator to the errors that it may return. If the append to its log
fails, a coordinator returns COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR. UNSTABLE_OFFSET_COMMIT is left out: brokers
report it only for single partitions, but the relay on a link writes an error into every error field of a response.
"""
OF_GROUPS_ONLY = tuple(
    dict.fromkeys(error for errors in OF_GROUPS.values() for error in errors if error not in OF_COORDINATORS)
)
"""Lists the errors that group coordinators return, and transaction coordinators do not."""

ASKED: Mapping[str, str] = {
    "Produce": "leader",
    "Fetch": "leader",
    "BrokerHeartbeat": "controller",
    "Metadata": "all",
    **dict.fromkeys((*COORDINATED, *OF_GROUPS), "coordinator"),
    "WriteTxnMarkers": "all",
}
"""Maps each API to the brokers that receive its requests (as the name of a target). On other brokers the fault would
hit nothing.
"""
REPLICATED = ("ListOffsets", "OffsetForLeaderEpoch")
"""Lists the APIs that followers call at leaders, beside Fetch."""
OF_CLIENTS = ("Produce", "Metadata", "InitProducerId", "CreateTopics", "EndTxn", "AddOffsetsToTxn", *OF_GROUPS)
OF_TRANSACTIONS = ("AddPartitionsToTxn", "WriteTxnMarkers")
"""Lists the APIs between brokers that are neither replication nor requests to controllers, so that no value of the
parameter `side` selects them.
"""
SPREAD = 3
"""Gives the least number of brokers and of partitions for WriteTxnMarkers. With fewer, each coordinator may lead all
partitions, and then sends no markers to other brokers.
"""
ASKS_S = 0.5
"""Is the least time, in s, between the begin of a fault that changes leaders and the end of a fault on Metadata. If
less time is left, clients send no Metadata request before that end.
"""
DONE = {
    "drop": "dropped",
    "delay": "delayed",
    "duplicate": "doubled",
    "reorder": "overtaken by the next one",
    "error": "answered with an error",
}


async def play(context: FaultContext, p: FaultExecution) -> None:
    """Make the links to the targets drop, delay or duplicate requests of one API, or answer them with an error."""
    from squall.chaos.faults.acts.links import count, frames

    await count(context, p, asked_over(p.fault.params, p.hit, context.runtime.links()), frames(p.fault.params))


def check(params: Params) -> str:
    """Refuse three combinations: an API whose requests never pass on the links that `side` selects; an error that no
    broker returns for the API; and `duplicate` or `error` for a response, because the link can do both only when it
    gets a request.
    """
    side, api = params["side"], params["api"]
    if side in TRAFFIC and api != "Fetch" and (side == "replication") != (api in REPLICATED):
        return f"api = {api!r} is nothing that side = {side!r} has: leave out the side"
    if side in TRAFFIC and api in OF_CLIENTS:
        return f"api = {api!r} is asked by clients: side = 'clients'"
    if side in TRAFFIC and api in OF_TRANSACTIONS:
        return f"api = {api!r} is nothing that side = {side!r} has: leave out the side"
    if params["act"] == "error" and (why := _unfit(api, params["error"])):
        return why
    of_requests = params["stream"] == "back" and params["act"] in ("duplicate", "error")
    return f"act = {params['act']!r} is of requests: stream = 'there'" if of_requests else ""


def refuse(params: Params, setting: PlanCapabilities) -> str:
    """Refuse an API that the workload's clients never call. Also refuse `side` = `replication` or `controller` for
    brokers whose requests to each other the frame relay cannot tell apart.
    """
    api, in_groups = params["api"], ("AddOffsetsToTxn", "TxnOffsetCommit")
    if api in ("EndTxn", *OF_TRANSACTIONS, *in_groups) and not setting.transactional:
        return f"api = {api!r}: the workload has no transactional producers"
    if api in (*OF_GROUPS, *in_groups) and not setting.groups:
        return f"api = {api!r}: the workload has no consumer group"
    return indistinct_traffic(params, setting)


def _unfit(api: str, error: str) -> str:
    """Return why no broker answers this API with this error. Empty: a broker may."""
    if api == "WriteTxnMarkers":
        return "" if error in OF_MARKERS else f"error = {error!r}: WriteTxnMarkers takes {', '.join(OF_MARKERS)}"
    if api in COORDINATED:
        fit = ("REQUEST_TIMED_OUT", *OF_COORDINATORS)
        fits = error in fit or (api == "InitProducerId" and error not in OF_GROUPS_ONLY)
        return "" if fits else f"error = {error!r}: {api} takes {', '.join(fit)}"
    if taken := OF_GROUPS.get(api):
        return "" if error in taken else f"error = {error!r}: {api} takes {', '.join(taken)}"
    if error in OF_GROUPS_ONLY:
        return f"error = {error!r} is a group coordinator's: api is one of {', '.join(OF_GROUPS)}"
    of = ", ".join(COORDINATED)
    return f"error = {error!r} is a transaction coordinator's: api is one of {of}" if error in OF_COORDINATORS else ""


def drawn(rng: Random) -> dict[str, Any]:
    """Draw the API and what is done to its requests. APIs that are called often are drawn most often."""
    act = rng.choice(("drop", "delay", "duplicate", "error"))
    stream = rng.choice(("there", "back")) if act in ("drop", "delay") else "there"
    api = rng.choice(("Produce", "Produce", "Produce", "Fetch", "Fetch", "Fetch", "Metadata", "BrokerHeartbeat"))
    count = rng.choice((1, 1, 3, 10, 0))
    return {
        "api": api,
        "act": act,
        "stream": stream,
        # Clients send few Metadata requests: a second one may not come during the fault.
        "nth": 1 if api == "Metadata" else rng.randint(1, 3),
        "count": count,
        "error": rng.choice(ERRORS),
    }


def coordinated(rng: Random, fault: Fault) -> Fault:
    """Return the fault changed so that it hits an API that is called at least once per transaction. It hits all
    brokers, because any broker may be the coordinator.
    """
    api = rng.choice(("EndTxn", "EndTxn", "WriteTxnMarkers"))
    act = rng.choice(("drop", "delay", "duplicate", "error"))
    # Without PRODUCER_FENCED, after which a producer ends for good.
    error = rng.choice(OF_MARKERS if api == "WriteTxnMarkers" else OF_COORDINATORS[:-1])
    drawn = {"api": api, "act": act, "stream": "there", "nth": 1, "error": error, "side": "both"}
    return replace(fault, params={**fault.params, **drawn}, target="all")


def of_groups(rng: Random, fault: Fault, asked: Sequence[str]) -> Fault:
    """Return the fault changed so that it hits one of the APIs `asked`, which group members call again and again. It
    hits all brokers, because any broker may coordinate the group.
    """
    api = rng.choice(asked)
    act, error = rng.choice(("drop", "delay", "duplicate", "error")), rng.choice(OF_GROUPS[api])
    drawn = {"api": api, "act": act, "stream": "there", "nth": 1, "error": error, "side": "both"}
    return replace(fault, params={**fault.params, **drawn}, target="all")


def likely(seed: int, fault: Fault, in_flight: int) -> Params:
    """Return parameters with which the fault is likely to hit a request. A client with fresh metadata sends no Metadata
    for minutes, so its Fetch is hit instead. If several requests are in flight, some faults reorder requests in place
    of delaying them.
    """
    params = fault.params
    if params["api"] == "Metadata":
        return {**params, "api": "Fetch"}
    late = params["api"] == "Produce" and params["act"] == "delay"
    if not late or in_flight < 2 or rng_for(seed, "overtaken", fault.id).random() < 0.5:
        return params
    return {**params, "act": "reorder", "stream": "there", "count": 0}


def retarget(fault: Fault, placement: FaultPlacement) -> Fault:
    """Change the API, the target and n (the fault acts at the n-th request) so that the fault hits a request. Not every
    request is sent in every cluster. Clients send Metadata only if a leader changes; a single broker has no peers; with
    acks=0 there are no Produce responses. While another fault keeps a broker down or paused, few requests are sent:
    leaders change or are unknown, and producers wait. While a controller is elected, few heartbeats are sent.
    """
    params, target, api, cluster = dict(fault.params), fault.target, fault.params["api"], placement.cluster
    last_s, moving = fault.at_s + fault.duration_s - ASKS_S, HOLDING | {FaultTrait.MOVES_LEADERS}
    moves = any(other.traits & moving and fault.at_s <= other.at_s <= last_s for other in placement.faults)
    if (api == "Metadata" and not moves) or (api == "BrokerHeartbeat" and cluster.nodes == 1):
        params["api"], target = "Produce", "leader"
    if api == "WriteTxnMarkers" and min(cluster.nodes, cluster.places) < SPREAD:
        # The error too: `check` refuses most errors of OF_MARKERS for EndTxn.
        params |= {"api": "EndTxn", "error": OF_COORDINATORS[0]}
    if params["api"] == "Produce" and cluster.acks == 0:
        params["stream"] = "there"
    held = placement.is_held(fault)
    # Slow links alone can cost a controller its followers.
    others = (other for other in placement.faults if other.id != fault.id and fault.overlaps(other))
    moves |= any(FaultTrait.OF_LINKS in other.traits for other in others)
    if (target == "leader" and held) or (target == "controller" and (held or moves)):
        target = "all"
    few = held or (moves if params["api"] == "BrokerHeartbeat" else not expects_many_records(fault, placement))
    if params["api"] in ("Produce", "BrokerHeartbeat") and few:
        params["nth"] = 1
    return replace(fault, params=params, target=target)


KIND = FaultKind(
    name="protocol",
    place=18,
    title="drop, delay, duplicate, reorder or answer with an error the n-th request of an API to the target",
    fault_class="N",
    duration_s=NumericParameter(0.2, 600, 3),
    params={
        "api": ChoiceParameter(APIS, "Fetch"),
        "act": ChoiceParameter(tuple(DONE), "drop"),
        "nth": NumericParameter(1, 1_000_000, 1),
        "count": NumericParameter(0, 1_000_000, 1),
        "delay_ms": NumericParameter(0, 30_000, 500),
        "error": ChoiceParameter((*ERRORS, *OF_COORDINATORS, *OF_GROUPS_ONLY), "REQUEST_TIMED_OUT"),
        "stream": ChoiceParameter(("there", "back"), "there"),
        "side": ChoiceParameter((*SIDES, *TRAFFIC), "both"),
    },
    traits=frozenset(
        {
            FaultTrait.OF_LINKS,
            FaultTrait.NEEDS_TRAFFIC,
            FaultTrait.NEEDS_FRAMES,
            FaultTrait.OUT_OF_SYNC,
            FaultTrait.EITHER_END,
        }
    ),
    check=check,
    refuse=refuse,
    draw=DrawRules(
        params=drawn,
        target=lambda rng, params: ASKED.get(params["api"]),
        swarm="first",
        likely=likely,
        coordinated=coordinated,
        of_groups=of_groups,
    ),
    retarget=retarget,
    alone=off_peers,
    of_clients=on_clients_side,
    play=play,
    verify=proofs.struck,
    evidence="how many frames were hit",
    middle="none: it claims that it struck, not when",
    describe_evidence=counted,
    describe_effect=lambda params, node, links: (
        f"to have its {nth(params)} {params.get('api', '')} request {DONE.get(str(params.get('act')), 'harmed')}"
    ),
)
