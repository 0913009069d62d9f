"""Defines what a kind of fault is, and what one fault of a kind is.

The rest of Squall asks a kind about its traits, and never compares its name. One file of `chaos/faults/kinds/` defines
one kind. The file says how a seed draws the fault, what must be true for the fault to land, how the nemesis plays it,
and how its evidence reads in words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from random import Random
from typing import Any

from squall.checkers import fault_traits

MANNERS = ("refuse", "drop", "hold")
"""Lists how a cut link may behave. refuse: it refuses and resets connections. drop: it drops bytes, and closes
connections when it is healed. hold: it holds bytes back, and delivers them when it is healed.
"""

SHAPES = ("isolate", "halves", "one-way", "ring", "bridge")
"""Lists which links a partition may cut. isolate: all links of the target. halves: the links between two halves of the
cluster. one-way: only what the target sends. ring: each broker hears a majority, and no two brokers hear the same
majority (Jepsen's majorities-ring). bridge: the links between two halves, except those of one broker, the target.
"""

SIDES = ("peers", "clients", "both")
"""Lists the values of a link fault's parameter `side`, which says whose connections to the target broker it hits: the
other brokers' (`peers`, in both directions), the clients', or both.
"""

TRAFFIC = ("replication", "controller")
"""Lists further values of a link fault's parameter `side`, which select single requests between brokers: only
followers' requests to leaders, or only brokers' requests to controllers.
"""

RUNTIMES = ("process", "docker", "sim", "external")
EVERYWHERE = frozenset(RUNTIMES)
OUR_WORLDS = frozenset({"process", "docker", "sim"})
"""Names the runtimes in which Squall itself starts the brokers."""

Params = Mapping[str, Any]


class FaultError(ValueError):
    """Reports a fault that cannot exist: its kind or target is unknown, or a parameter is out of range. The message
    says which, and lists what is allowed.
    """


@dataclass(frozen=True, slots=True)
class NumericParameter:
    """Describes a numeric parameter: its bounds (inclusive) and default, in the unit that the parameter's name carries.
    """

    low: float
    high: float
    default: float

    def check(self, name: str, value: Any) -> float:
        """Return the value as a float. Raise FaultError if it is no number or out of bounds."""
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise FaultError(f"{name} = {value!r}: between {self.low:g} and {self.high:g} are allowed")
        return float(value)


@dataclass(frozen=True, slots=True)
class ChoiceParameter:
    """Describes a parameter that has a fixed set of values."""

    values: tuple[str, ...]
    default: str

    def check(self, name: str, value: Any) -> str:
        """Return the value as text. Raise FaultError if it is not in the set."""
        if value not in self.values:
            raise FaultError(f"{name} = {value!r}: one of {', '.join(self.values)} is allowed")
        return str(value)


class FaultTrait(StrEnum):
    """Names a property of a kind of fault. nemesis.jsonl records those traits that checkers and reports need."""

    # What it does to its nodes.
    TAKES_DOWN = fault_traits.TAKES_DOWN
    """The fault's nodes are down from its begin. Its end starts them again."""
    PAUSES = fault_traits.PAUSES
    """The fault's nodes are paused, and resumed at its end."""
    ENDS_BY_ITSELF = "ends by itself"
    """The fault may make a node's process end by itself: sooner, later or never."""
    STOPS_BROKER = "stops broker"
    """The fault may make a broker shut down in good order. Such a shutdown is correct: the run does not count it as a
    crash.
    """
    NEEDS_NODE = "needs node"
    """The fault's nodes must run from its begin until the proof that it landed."""
    OF_ONE_NODE = "of one node"
    """A seed draws the fault for one node at a time."""
    ONE_BY_ONE = "one by one"
    """The fault restarts brokers one after the other. Before the next restart, it waits until every partition is in
    sync.
    """
    BY_SIGNAL = "by signal"
    """The fault stops, pauses or kills a broker's process. A container engine can do so to any container, whatever runs
    inside.
    """
    # What it does to links and clients.
    OF_LINKS = "of links"
    """The fault acts on links. Its parameter `side` chooses the links between brokers, or those of clients. Its target
    may be a client zone: a group of clients that have links of their own.
    """
    CUTS_LINKS = fault_traits.CUTS_LINKS
    SLOWS_LINKS = fault_traits.SLOWS_LINKS
    NEEDS_TRAFFIC = "needs traffic"
    """The fault hits bytes or frames on a link, and leaves the link itself alone. It lands only if something is sent.
    """
    MEASURES_LINKS = "measures links"
    """The fault's proof is a measurement over its links, which must answer meanwhile."""
    OF_CLIENTS = "of clients"
    """The fault's targets are the workload's clients."""
    MOVES_LEADERS = "moves leaders"
    """The fault changes leaders, so that clients send Metadata requests after it."""
    COUNTS_SYNCS = "counts syncs"
    """The fault may act at the n-th fsync, so it needs brokers that call fsync."""
    ONCE = "once"
    """A run can have this fault only once."""
    # What it needs.
    NEEDS_OUR_BROKER = "needs our broker"
    """Only Squall's own broker supports this fault."""
    NEEDS_FILES = "needs files"
    """The fault needs the brokers' data to be in folders of this machine."""
    NEEDS_HURT_FILES = "needs hurt files"
    """The fault needs brokers that were started with the file layer that injects I/O errors and delays."""
    NEEDS_FRAMES = "needs frames"
    """The fault needs links that go through the frame relay, a proxy that parses Kafka requests and responses."""
    NEEDS_PACKET_FILTER = "needs packet filter"
    """The fault needs containers that are allowed to drop packets."""
    NEEDS_FAKE_TIME = "needs fake time"
    """The fault needs brokers that were started with libfaketime, a library that changes the time that a program reads.
    """
    NEEDS_TRANSACTIONS = "needs transactional producers"
    """The fault's targets are clients with transactional ids. If a workload has such clients, seeds draw the fault by
    default.
    """
    NEEDS_WORKLOAD = "needs workload"
    """The fault changes the workload's topics."""
    NEEDS_MEMBERS = "needs members"
    """The fault's targets are members of the workload's groups."""
    NEEDS_INSTANCE_IDS = "needs instance ids"
    """The fault's targets are group members with an instance id (`group.instance.id`)."""
    NEEDS_LOADS = "needs loads"
    """The fault's targets are batch loads of the workload's topics. If a workload has loads, seeds draw the fault by
    default.
    """
    NEEDS_SECOND_VERSION = "needs second version"
    """The fault needs a plan that names a second version of the brokers. If such a plan names no faults, every seed
    draws this one.
    """
    # What it may do to data.
    OUT_OF_SYNC = fault_traits.OUT_OF_SYNC
    EITHER_END = fault_traits.EITHER_END
    FORGETS_SYNCS = fault_traits.FORGETS_SYNCS
    DAMAGES_FILES = "damages files"
    """The fault removes or alters synced data."""


HOLDING = frozenset({FaultTrait.TAKES_DOWN, FaultTrait.PAUSES, FaultTrait.ENDS_BY_ITSELF})
"""Lists the traits of faults that hold their nodes down or paused, or may do so. A rolling restart leaves out nodes
that other faults hold.
"""


@dataclass(frozen=True, slots=True)
class PlanCapabilities:
    """Holds the settings of a plan that decide whether the plan can contain a fault."""

    runtime: str
    target: str
    """Names the implementation of the brokers under test, such as squall or kafka."""
    nodes: int
    replicas: int
    upgrade_to: str
    transactional: bool = False
    """Is True if the workload has transactions."""
    zombies: bool = False
    """Is True if producers of the workload can be turned into zombies."""
    groups: bool = False
    """Is True if the workload has consumer groups."""
    loads: bool = False
    """Is True if the workload has batch loads of its topics."""
    named: bool = False
    """Is True if some members of the workload's groups have an instance id."""


@dataclass(frozen=True, slots=True)
class ClusterTraits:
    """Holds the facts of a cluster and its load that decide whether a fault can land."""

    nodes: int
    replicas: int
    flushes: bool
    """Is True if the topics have flush.messages=1: then each node with a replica calls fsync all the time."""
    rate: int = 40
    """Gives the records per second that all producers together send."""
    acks: int = -1
    places: int = 3
    """Counts the partitions of the workload."""
    closes_after: float = inf
    """Gives the number of records after which a partition has a closed segment."""
    voters: int = 3
    """Counts the voters of the quorum of controllers."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Represents one planned fault. `at_s` counts in seconds from the beginning of the load."""

    id: int
    at_s: float
    duration_s: float
    kind: FaultKind
    target: str
    params: Params = field(default_factory=dict)
    when: str = ""
    """Gives the condition that the fault waits for, from `at_s` on (`squall.chaos.faults.triggers`). Empty: the fault
    waits for nothing.
    """
    within_s: float = 0.0
    """Limits how long the fault waits for its condition, in seconds."""

    @property
    def action(self) -> str:
        """Returns the name of the fault's kind."""
        return self.kind.name

    @property
    def traits(self) -> frozenset[FaultTrait]:
        """Returns the traits of the fault's kind, and those that follow from the fault's parameters."""
        return self.kind.traits | self.kind.more_traits(self.params)

    def overlaps(self, other: Fault, longer_s: float = 0.0) -> bool:
        """Return whether both faults are active at the same moment, or would be if each lasted `longer_s` seconds
        longer.
        """
        since, until = other.at_s, other.at_s + other.duration_s + longer_s
        return self.at_s <= until and since <= self.at_s + self.duration_s + longer_s


@dataclass(frozen=True, slots=True)
class FaultPlacement:
    """Holds what decides where a drawn fault can take effect: the seed, the cluster, and all drawn faults, including
    the fault itself.
    """

    seed: int
    cluster: ClusterTraits
    faults: Sequence[Fault]

    def is_held(self, fault: Fault) -> bool:
        """Return whether another fault holds a node down or paused while this fault is active."""
        return any(other.traits & HOLDING and fault.overlaps(other) for other in self.faults)


# ---------------------------------------------------------------------------------------------- what most kinds do


def no_params(rng: Random) -> dict[str, Any]:
    """Draw no parameters: the defaults apply."""
    return {}


def same(params: Params) -> dict[str, Any]:
    """Return the parameters unchanged."""
    return dict(params)


def as_drawn(fault: Fault, placement: FaultPlacement) -> Fault:
    """Return the fault unchanged, because it can land anywhere."""
    return fault


def no_traits(params: Params) -> frozenset[FaultTrait]:
    """Return no traits, because no trait follows from the parameters."""
    return frozenset()


NEEDS_PARTITION = frozenset(
    {FaultTrait.MOVES_LEADERS, FaultTrait.NEEDS_FILES, FaultTrait.DAMAGES_FILES, FaultTrait.ENDS_BY_ITSELF}
)
"""Lists traits of faults that land only on a broker that has a partition of the workload, or gets writes to one."""


def at_a_coordinator(rng: Random, fault: Fault) -> Fault:
    """Return the fault with a coordinator as its target, if the fault hits one broker and can land on any broker.
    Otherwise return it unchanged.
    """
    movable = fault.target in ("leader", "controller", "random") and not fault.traits & NEEDS_PARTITION
    return replace(fault, target="coordinator") if movable else fault


def nothing_wrong(*given: Any) -> str:
    """Return "", because nothing forbids the fault."""
    return ""


def one_broker(params: Params) -> int:
    """Return 1: a single broker is enough for this fault."""
    return 1


def _plain(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def listed(params: Params) -> str:
    """Format all parameters in brackets. Return "" if there are none."""
    rest = ", ".join(f"{key} {_plain(value)}" for key, value in params.items())
    return f" ({rest})" if rest else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawRules:
    """Defines how a seed draws faults of this kind."""

    params: Callable[[Random], dict[str, Any]] = no_params
    target: Callable[[Random, Params], str | None] | None = None
    """Draws the target for this kind. If the field or its result is None, the plan draws a role, such as leader."""
    lasts_s: tuple[float, float] = (2.0, 5.0)
    by_default: bool = False
    """Is True if `squall run` draws this kind when --faults is missing."""
    by_default_on_foreign: bool = False
    """Is True if `squall run --runtime external` draws this kind when --faults is missing."""
    swarm: str = ""
    """Names the draw that may pick this kind for a random plan (swarm). "first": the main draw. "newer": a draw of
    kinds that were added later; seeds that pick none of them keep their old plans. "beside": a draw of faults that may
    begin at any time, because they conflict with no other. Empty: no draw picks this kind.
    """
    likely: Callable[[int, Fault, int], Params] = lambda seed, fault, in_flight: fault.params
    """Returns parameters with which the fault is likely to hit something in `squall run`, from the seed, the fault and
    the number of requests in flight.
    """
    varied: Callable[[Random, Params, int], dict[str, Any]] | None = None
    """Returns other parameters for some of the faults of this kind in random plans (swarm). Takes the parameters, and
    the number of nodes.
    """
    coordinated: Callable[[Random, Fault], Fault] = at_a_coordinator
    """Returns the fault, changed if possible so that it hits a transaction coordinator. Used for some drawn faults if
    the workload has transactional producers.
    """
    of_groups: Callable[[Random, Fault, Sequence[str]], Fault] = lambda rng, fault, asked: at_a_coordinator(rng, fault)
    """Returns the fault, changed if possible so that it hits a group coordinator. Used for some drawn faults if the
    workload has consumer groups. The strings are APIs that group members often call, such as Heartbeat.
    """
    own_topics: Callable[[Random, Params], Params] = lambda rng, params: params
    """Returns the drawn parameters, changed for some faults so that the fault deletes and recreates the workload's own
    topics. Used in random plans (swarm) if the workload's clients can handle that.
    """
    instead: Callable[[int, Fault, int], Fault | None] = lambda seed, fault, nodes: None
    """Returns a fault of another kind, with its target, that takes the place of this fault in a random plan (swarm).
    None: the fault stays.
    """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FaultKind:
    """Describes one kind of fault: its parameters, what it needs, how a seed draws it, how it is played and proven, and
    how it reads in words.
    """

    name: str
    place: int
    """Gives the kind's place in lists and in a seed's draws. A new kind takes the next number, so that seeds keep their
    plans.
    """
    title: str
    fault_class: str
    """Names the class of the fault: P process, N network, C clock, W1 power loss, D damaged disk (the classes of
    `squall.checkers.guarantees`).
    """
    worse_class: str = ""
    """Names the class that replaces `fault_class` if the fault hit all in-sync replicas of a partition: WM (power loss
    of several nodes) or DM (damage to the only copy in sync). Empty: `fault_class` in any case.
    """
    duration_s: NumericParameter
    params: Mapping[str, NumericParameter | ChoiceParameter] = field(default_factory=dict)
    traits: frozenset[FaultTrait] = frozenset()
    more_traits: Callable[[Params], frozenset[FaultTrait]] = no_traits
    """Returns the traits that follow from the fault's parameters."""
    worlds: frozenset[str] = OUR_WORLDS
    """Names the runtimes that can play this kind (of `RUNTIMES`)."""
    nowhere_else: str = ""
    """Says why the runtimes that are not in `worlds` cannot play this kind."""
    needs_nodes: Callable[[Params], int] = one_broker
    """Returns how many brokers the fault needs at least."""
    asks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps each value of the parameter `how` to the APIs that the brokers must support for it."""
    check: Callable[[Params], str] = nothing_wrong
    """Returns in words which combination of parameters is forbidden. Empty: none."""
    check_target: Callable[[str, Params], str] = nothing_wrong
    """Returns in words why the fault cannot hit this target. Empty: it can."""
    refuse: Callable[[Params, PlanCapabilities], str] = nothing_wrong
    """Returns in words why this plan cannot contain the fault. Empty: it can."""
    draw: DrawRules = DrawRules()
    retarget: Callable[[Fault, FaultPlacement], Fault] = as_drawn
    """Returns the fault with a target that it can hit. A fault that hits nothing proves nothing."""
    alone: Callable[[Params], dict[str, Any]] = same
    """Adapts the fault's parameters to a cluster of only one broker."""
    of_clients: Callable[[Params], dict[str, Any]] = same
    """Returns the parameters changed so that the fault hits clients' links. Only faults of links have this."""
    for_foreign_brokers: Callable[[Params, bool], dict[str, Any]] = lambda params, external: dict(params)
    """Adapts the fault's parameters to brokers that are not Squall's. The flag is True if the cluster is run by
    somebody else (`--runtime external`).
    """
    play: Callable[[Any, Any], Awaitable[None]]
    """Plays the fault in a `squall.chaos.faults.context.FaultContext`, as a `FaultExecution`: begins the fault, waits
    until its end, undoes it, and fills in evidence, `landed` and `error`. UnresolvedTargetError and HarnessError mean
    that the fault did not land. The function imports trio only when it is called: programs that only read plans should
    not wait for that import.
    """
    evidence: str
    """Says what proves that the fault landed."""
    middle: str
    """Says what proves that the fault was active between its begin and its end; "none" and the reason if nothing can.
    """
    verify: Callable[[Mapping[str, Any], Params, Sequence[Any]], str]
    """Returns in words what is missing in the evidence that the fault landed; empty if nothing is. Takes this evidence,
    the fault's parameters and the targets that were hit.
    """
    describe_evidence: Callable[[Any], str]
    """Returns the evidence of one fault in words. If the fault did not land, says what was seen instead."""
    describe_params: Callable[[Params], str] = listed
    """Returns the words after the kind's name that give the fault's parameters."""
    describe_effect: Callable[[Params, int, Sequence[str]], str]
    """Returns what happens to a node, in words that follow "Broker N is". Takes the parameters, the node and the links
    in the fault's evidence.
    """

    @property
    def defaults(self) -> dict[str, Any]:
        """Returns the fault's parameters if a plan names none."""
        return {name: each.default for name, each in self.params.items()}
