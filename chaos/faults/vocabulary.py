"""The vocabulary of faults: action x target x parameters, as frozen values.

A fault is an interval, so any subset of a plan is a plan. `ACTIONS` is the one registry: what each action takes, which
fault class it belongs to (`checkers.guarantees` judges by class), what it can hit, and what proves that it landed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos.faults.action import MANNERS, SHAPES, SIDES, Action, Choice, FaultError, Number
from chaos.faults.link_actions import LINK_ACTIONS
from chaos.faults.link_actions import check_relations as check_link_relations

APIS = (
    *("Produce", "Fetch", "ListOffsets", "Metadata", "OffsetForLeaderEpoch", "InitProducerId", "CreateTopics"),
    *("AlterPartition", "BrokerHeartbeat", "BrokerRegistration", "Envelope"),
    *("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot"),
)
"""Whose requests and responses a protocol fault may hit."""

ERRORS = (
    *("REQUEST_TIMED_OUT", "NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    *("UNKNOWN_SERVER_ERROR", "NOT_CONTROLLER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "KAFKA_STORAGE_ERROR"),
    "STALE_BROKER_EPOCH",
)
"""What a link may answer in a broker's stead."""

OF_PARTITIONS = ("leader", "follower", "isr", "last_isr")
"""Targets that may name a partition, as in `leader:TOPIC-N`."""
NODE_TARGETS = (*OF_PARTITIONS, "controller", "node", "random", "minority", "majority", "all")
"""Whom a fault may hit. `node:N` names a broker id."""
ZONE_TARGET = "zone"
"""Of faults of links: `zone:N` is all links of the workload's N-th client zone, counted from 1."""


__all__ = ["ACTIONS", "ERRORS", "MANNERS", "SHAPES", "SIDES", "Action", "Choice", "Fault", "FaultError", "Number"]

LEAST_STROBE_MS = 200
"""Broker processes look at what bends their clocks each 50 ms."""
_DOWN_S = Number(0.2, 600, 3)

ACTIONS: dict[str, Action] = {
    action.name: action
    for action in (
        Action(
            "kill",
            "SIGKILL, restart at the end",
            "P",
            _DOWN_S,
            {},
            "the process is gone; a new incarnation registers after the restart",
        ),
        Action(
            "stop",
            "SIGTERM (controlled shutdown), restart at the end",
            "P",
            _DOWN_S,
            {},
            "the broker says that it stopped cleanly; a new incarnation registers after the restart",
        ),
        Action(
            "pause",
            "SIGSTOP, SIGCONT at the end",
            "P",
            Number(0.1, 60, 3),
            {},
            "the process is stopped and answers nothing while on; it answers afterwards",
        ),
        Action(
            "slow",
            "a share of a CPU: held for most of each tenth of a second",
            "P",
            Number(0.5, 600, 4),
            {"share": Number(0.01, 0.9, 0.2)},
            "how often it was held, the share of the time that it was let run, and its CPU time",
        ),
        Action(
            "crash_at",
            "killed just before its n-th fsync, write or send, restart at the end",
            "P",
            _DOWN_S,
            {"op": Choice(("fsync", "write", "send"), "fsync"), "nth": Number(1, 1_000_000, 1)},
            "it came to that point and is gone; a new incarnation registers after the restart",
        ),
        Action(
            "power_loss",
            "power goes: what was not synced may be lost or torn; restart at the end",
            "W1",
            _DOWN_S,
            {},
            "what was pending on the disk and what was lost of it; a new incarnation registers after the restart",
        ),
        Action(
            "clock",
            "the wall clock jumps, runs faster or slower, or jumps to and fro",
            "C",
            Number(0.2, 600, 4),
            {
                "offset_ms": Number(-86_400_000, 86_400_000, 1000),
                "rate": Number(0.5, 2, 1),
                "strobe_ms": Number(0, 60_000, 0),
                "how": Choice(("offset", "faketime"), "offset"),
            },
            "what the node's own trace shows of its wall clock: off by as much as it was bent",
        ),
        *LINK_ACTIONS,
        Action(
            "packet_loss",
            "packets are lost and sent again: their bytes come late",
            "N",
            Number(0.2, 600, 4),
            {
                "probability": Number(0.001, 0.9, 0.05),
                "rto_ms": Number(1, 10_000, 200),
                "side": Choice(SIDES, "peers"),
            },
            "how many packets were lost",
            frozenset({"docker", "sim"}),
            "processes of one machine have its one loopback",
        ),
        Action(
            "reset",
            "reset open connections, at the beginning and every so often",
            "N",
            Number(0.1, 600, 1),
            {"every_ms": Number(0, 60_000, 0), "side": Choice(SIDES, "both")},
            "how many connections were reset",
        ),
        Action(
            "protocol",
            "drop, delay, duplicate, reorder or answer with an error the n-th request of an API to the target",
            "N",
            Number(0.2, 600, 3),
            {
                "api": Choice(APIS, "Fetch"),
                "act": Choice(("drop", "delay", "duplicate", "reorder", "error"), "drop"),
                "nth": Number(1, 1_000_000, 1),
                "count": Number(0, 1_000_000, 1),
                "delay_ms": Number(0, 30_000, 500),
                "error": Choice(ERRORS, "REQUEST_TIMED_OUT"),
                "stream": Choice(("there", "back"), "there"),
                "side": Choice(SIDES, "both"),
            },
            "how many frames were hit",
        ),
        Action(
            "disk",
            "writes or fsyncs fail from the n-th on, or are slow; a node that ended of it restarts at the end",
            "P",
            _DOWN_S,
            {
                "how": Choice(("EIO", "ENOSPC", "slow"), "EIO"),
                "op": Choice(("write", "fsync"), "write"),
                "nth": Number(1, 1_000_000, 1),
                "delay_ms": Number(1, 60_000, 100),
            },
            "how many calls failed, or took longer",
        ),
        Action(
            "bit_rot",
            "bits flip in a closed segment of a partition",
            "D",
            Number(0.1, 600, 1),
            {"bits": Number(1, 1000, 1)},
            "the file's digest before and after",
        ),
        Action(
            "damage",
            "killed; while it is down a segment loses its end, or a closed file is lost; restart at the end",
            "D",
            _DOWN_S,
            {"how": Choice(("tail", "file"), "tail"), "bytes": Number(1, 10_000_000, 1000)},
            "the file's size and digest before and after; the process is gone; a new incarnation registers",
        ),
        Action(
            "rolling",
            "each target in turn: stopped or killed, started, waited for until all are in sync again",
            "P",
            Number(1, 3600, 60),
            {"how": Choice(("stop", "kill"), "stop")},
            "each step's: down as asked, up as a new incarnation, every partition in sync within the length",
        ),
        Action(
            "upgrade",
            "as `rolling`, and each target starts as the version that --upgrade-to names",
            "P",
            Number(1, 3600, 90),
            {"how": Choice(("stop", "kill"), "stop")},
            "each step's; what ran before and after, as engine or kernel have it, and what the broker itself speaks",
            frozenset({"process", "docker"}),
            "in a simulation there is one version of the broker, the one that simulates",
        ),
        Action(
            "client",
            "a producer crashes without a close and is replaced at the end; a producer or reader stands still",
            "P",
            Number(0.1, 600, 2),
            {"how": Choice(("crash", "pause"), "crash")},
            "the process id of the history changed; nothing was handed over or polled meanwhile, and something after",
        ),
        Action(
            "leadership",
            "by request: elections, moves of partitions, a broker emptied or filled, the controller's resignation",
            "P",
            Number(0.2, 600, 2),
            {"how": Choice(("preferred", "unclean", "move", "drain", "fill", "resign"), "preferred")},
            "what the controller answered; leaders and replicas, or controller and its epoch, before and after",
        ),
    )
}
"""Every action by name."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault. `at_s` counts from the beginning of the load."""

    id: int
    at_s: float
    duration_s: float
    action: str
    target: str
    params: Mapping[str, Any] = field(default_factory=dict)
    when: str = ""
    """What it waits for, from `at_s` on (`chaos.faults.triggers`); empty: nothing."""
    within_s: float = 0.0
    """How long it waits for that."""

    @property
    def fault_class(self) -> str:
        """Which column of the guarantees it belongs to."""
        return ACTIONS[self.action].fault_class


def make_fault(
    fault_id: int, at_s: float, duration_s: float, action: str, target: str, params: Mapping[str, Any]
) -> Fault:
    """A checked fault with its parameters' defaults filled in. FaultError says what is wrong."""
    known = ACTIONS.get(action)
    if known is None:
        raise FaultError(f"fault {fault_id}: unknown action {action!r}: one of {', '.join(ACTIONS)}")
    here = f"fault {fault_id} ({action})"
    known.duration_s.check(f"{here}: duration_s", duration_s)
    if at_s < 0:
        raise FaultError(f"{here}: at_s = {at_s}: must not be negative")
    for name in params:
        if name not in known.params:
            raise FaultError(f"{here}: unknown parameter {name!r}: {', '.join(known.params) or 'it takes none'}")
    kind, _ = check_target(here, target)
    if kind == ZONE_TARGET:
        params = _of_zone(here, known, target, params)
    checked = {n: p.check(f"{here}: {n}", params.get(n, p.default)) for n, p in known.params.items()}
    if of_clients(target) != (action == "client"):
        allowed = ", ".join(CLIENT_TARGETS if action == "client" else NODE_TARGETS)
        raise FaultError(f"{here}: target {target!r}: one of {allowed}")
    if kind == "reader" and checked.get("how") == "crash":
        raise FaultError(f"{here}: how = 'crash': of producers only")
    _check_relations(here, action, checked)
    return Fault(fault_id, float(at_s), float(duration_s), action, target, checked)


def _of_zone(here: str, action: Action, target: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a fault of a client zone: of its links, that is. FaultError for a fault of anything else."""
    if "side" not in action.params:
        raise FaultError(f"{here}: target {target!r}: a zone has nothing but links: of faults that take a side")
    given = {"side": "clients", **params}
    if given["side"] != "clients":
        raise FaultError(f"{here}: side = {given['side']!r}: a zone's links are its clients': leave it out")
    return given


def _check_relations(here: str, action: str, params: Mapping[str, Any]) -> None:
    """What one parameter forbids another."""
    check_link_relations(here, action, params)
    if action == "clock" and 0 < params["strobe_ms"] < LEAST_STROBE_MS:
        raise FaultError(f"{here}: strobe_ms = {params['strobe_ms']:g}: 0, or {LEAST_STROBE_MS} at least")
    if action == "clock" and params["how"] == "faketime" and params["rate"] != 1:
        raise FaultError(f"{here}: rate = {params['rate']:g}: libfaketime's begin with the broker: how = 'offset'")
    if action == "protocol" and params["stream"] == "back" and params["act"] in ("duplicate", "error"):
        raise FaultError(f"{here}: act = {params['act']!r} is of requests: stream = 'there'")


CLIENT_TARGETS = ("producer", "reader")
"""Of faults of clients: any one of them, or `producer:N`."""


def of_clients(target: str) -> bool:
    """Whether a target is one of the workload's clients."""
    return target.partition(":")[0] in CLIENT_TARGETS


def check_target(here: str, target: str) -> tuple[str, str]:
    """(kind, argument) of a target such as "leader:orders-0-1". FaultError where it is none."""
    kind, _, argument = target.partition(":")
    if kind in CLIENT_TARGETS:
        if argument and not argument.isdigit():
            raise FaultError(f"{here}: target {target!r}: a {kind} has a number, as in {kind}:0")
        return kind, argument
    if kind == ZONE_TARGET:
        if not argument.isdigit() or int(argument) < 1:
            raise FaultError(f"{here}: target {target!r}: zones are counted from 1, as in zone:2")
        return kind, argument
    if kind not in NODE_TARGETS:
        known = ", ".join((*NODE_TARGETS, ZONE_TARGET))
        raise FaultError(f"{here}: unknown target {target!r}: one of {known}")
    if kind == "node" and not argument.isdigit():
        raise FaultError(f"{here}: target {target!r}: node needs a broker id, as in node:2")
    if kind in OF_PARTITIONS and argument and "-" not in argument:
        raise FaultError(f"{here}: target {target!r}: a partition is TOPIC-NUMBER, as in {kind}:orders-0-1")
    return kind, argument
