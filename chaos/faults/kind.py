"""Defines a kind of fault, and one fault of that kind.

The rest of Squall asks a kind about its traits, and never compares its name. Each kind is defined in one file of
`chaos/faults/kinds/`. The file says how a seed draws it, what must be true for it to land, how the nemesis plays it,
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
"""How a cut link behaves. It refuses and resets connections; or swallows bytes, and closes connections when healed; or
holds bytes, and delivers them late.
"""

SHAPES = ("isolate", "halves", "one-way", "ring", "bridge")
"""Which links a partition cuts: all links of the target; links between two halves; only what the target sends; links
such that each broker hears a majority and no two brokers hear the same one (Jepsen's majorities-ring); links between
two halves that both still reach the target, the bridge.
"""

SIDES = ("peers", "clients", "both")
"""Whose connections to the target are hit: those between brokers (in both directions), those of clients, or both."""

TRAFFIC = ("replication", "controller")
"""More sides, of faults that tell requests apart: connections between brokers, but only what followers ask leaders, or
what brokers ask controllers."""

RUNTIMES = ("process", "docker", "sim", "external")
EVERYWHERE = frozenset(RUNTIMES)
OUR_WORLDS = frozenset({"process", "docker", "sim"})
"""Runtimes in which Squall itself starts the brokers."""

Params = Mapping[str, Any]


class FaultError(ValueError):
    """A fault that cannot exist: its action or target is unknown, or a parameter is out of range. The message says
    which, and what is allowed.
    """


@dataclass(frozen=True, slots=True)
class NumericParameter:
    """A numeric parameter: bounds (inclusive) and default, in the unit that its name carries."""

    low: float
    high: float
    default: float

    def check(self, name: str, value: Any) -> float:
        """The value, or FaultError."""
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise FaultError(f"{name} = {value!r}: between {self.low:g} and {self.high:g} are allowed")
        return float(value)


@dataclass(frozen=True, slots=True)
class ChoiceParameter:
    """A parameter with a fixed set of values."""

    values: tuple[str, ...]
    default: str

    def check(self, name: str, value: Any) -> str:
        """The value, or FaultError."""
        if value not in self.values:
            raise FaultError(f"{name} = {value!r}: one of {', '.join(self.values)} is allowed")
        return str(value)


class FaultTrait(StrEnum):
    """A trait of a kind of fault. nemesis.jsonl holds those that the checkers and reports ask about."""

    # What it does to its nodes.
    TAKES_DOWN = fault_traits.TAKES_DOWN
    """Its nodes are down from its begin. Its end starts them again."""
    PAUSES = fault_traits.PAUSES
    """Its nodes are paused, and resumed at its end."""
    ENDS_BY_ITSELF = "ends by itself"
    """It may make a node end by itself: sooner, later or never."""
    STOPS_BROKER = "stops broker"
    """It may make a broker stop in good order. Such a stop is correct and no trouble of the run."""
    NEEDS_NODE = "needs node"
    """Its nodes must run from its begin until the proof that it landed."""
    OF_ONE_NODE = "of one node"
    """A seed draws it for one node at a time."""
    ONE_BY_ONE = "one by one"
    """It hits all brokers, one after the other, and waits for each."""
    BY_SIGNAL = "by signal"
    """A container engine can do it to any container, whatever runs inside."""
    # What it does to links and clients.
    OF_LINKS = "of links"
    """It acts on links: it takes a `side`, and a client zone can be its target."""
    CUTS_LINKS = fault_traits.CUTS_LINKS
    SLOWS_LINKS = fault_traits.SLOWS_LINKS
    NEEDS_TRAFFIC = "needs traffic"
    """It hits bytes or frames on a link, and leaves the link itself alone. It lands only if somebody sends something.
    """
    MEASURES_LINKS = "measures links"
    """Its proof is a measurement over its links. The links must answer meanwhile."""
    OF_CLIENTS = "of clients"
    """Its targets are the workload's clients."""
    MOVES_LEADERS = "moves leaders"
    """Clients ask for Metadata after it."""
    COUNTS_SYNCS = "counts syncs"
    """It may wait for an fsync."""
    ONCE = "once"
    """A run can have it once only."""
    # What it needs.
    NEEDS_OUR_BROKER = "needs our broker"
    """Only Squall's own broker can do it."""
    NEEDS_FILES = "needs files"
    """The brokers' data must be in folders of this machine."""
    NEEDS_HURT_FILES = "needs hurt files"
    """It needs brokers that were started on files that can be hurt."""
    NEEDS_FRAMES = "needs frames"
    """It needs relays that follow frames on its links' connections."""
    NEEDS_PACKET_FILTER = "needs packet filter"
    """The containers must be allowed to drop packets."""
    NEEDS_FAKE_TIME = "needs fake time"
    """It needs brokers that were started behind libfaketime."""
    NEEDS_TRANSACTIONS = "needs transactional producers"
    """Its targets are clients with transactional ids. A seed draws it without being asked, and only for them."""
    NEEDS_WORKLOAD = "needs workload"
    """It changes the workload's topics."""
    NEEDS_MEMBERS = "needs members"
    """Its targets are members of the workload's groups."""
    NEEDS_INSTANCE_IDS = "needs instance ids"
    """Its targets are those of them that have an instance id."""
    NEEDS_SECOND_VERSION = "needs second version"
    """A seed always draws it if the plan names a second version and no faults."""
    # What it may do to data.
    OUT_OF_SYNC = fault_traits.OUT_OF_SYNC
    EITHER_END = fault_traits.EITHER_END
    FORGETS_SYNCS = fault_traits.FORGETS_SYNCS
    DAMAGES_FILES = "damages files"
    """It removes or alters synced data."""


HOLDING = frozenset({FaultTrait.TAKES_DOWN, FaultTrait.PAUSES, FaultTrait.ENDS_BY_ITSELF})
"""Any of these traits: the fault holds its nodes down, or may do so. A rolling restart leaves out nodes that others
hold.
"""


@dataclass(frozen=True, slots=True)
class PlanTraits:
    """The settings of a plan that decide whether it can have a fault."""

    runtime: str
    target: str
    """Who made the brokers."""
    nodes: int
    replicas: int
    upgrade_to: str
    transactional: bool = False
    """The workload has transactions."""
    zombies: bool = False
    """Zombies can be made of producers of the workload."""
    groups: bool = False
    """The workload has consumer groups."""
    named: bool = False
    """Some of their members have an instance id."""


@dataclass(frozen=True, slots=True)
class ClusterTraits:
    """The facts of a cluster and its load that decide whether a fault can land."""

    nodes: int
    replicas: int
    flushes: bool
    """The topics have flush.messages=1: each node with a replica calls fsync all the time."""
    rate: int = 40
    """Records per second of all producers together."""
    acks: int = -1
    places: int = 3
    """Partitions of the workload."""
    closes_after: float = inf
    """Records after which a partition has a closed segment."""


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
    """The condition that the fault waits for, from `at_s` on (`squall.chaos.faults.triggers`). Empty: it waits for
    nothing.
    """
    within_s: float = 0.0
    """How long the fault waits for its condition, in seconds."""

    @property
    def action(self) -> str:
        """The name of its kind."""
        return self.kind.name

    @property
    def traits(self) -> frozenset[FaultTrait]:
        """The traits of its kind, and those that follow from its parameters."""
        return self.kind.traits | self.kind.more_traits(self.params)

    def overlaps(self, other: Fault, longer_s: float = 0.0) -> bool:
        """Return whether both faults are on at the same moment, or would be if each lasted `longer_s` seconds longer.
        """
        since, until = other.at_s, other.at_s + other.duration_s + longer_s
        return self.at_s <= until and since <= self.at_s + self.duration_s + longer_s


@dataclass(frozen=True, slots=True)
class FaultPlacement:
    """Describes where a drawn fault must land: the cluster, and all drawn faults, this fault among them."""

    seed: int
    cluster: ClusterTraits
    faults: Sequence[Fault]

    def is_held(self, fault: Fault) -> bool:
        """Return whether another fault holds a node during this one."""
        return any(other.traits & HOLDING and fault.overlaps(other) for other in self.faults)


# ---------------------------------------------------------------------------------------------- what most kinds do


def no_params(rng: Random) -> dict[str, Any]:
    """Draw nothing: the defaults apply."""
    return {}


def same(params: Params) -> dict[str, Any]:
    """Leave the parameters as they are."""
    return dict(params)


def as_drawn(fault: Fault, placement: FaultPlacement) -> Fault:
    """Leave the fault as it is: it lands anywhere."""
    return fault


def no_traits(params: Params) -> frozenset[FaultTrait]:
    """The parameters add no traits."""
    return frozenset()


ELSEWHERE = frozenset(
    {FaultTrait.MOVES_LEADERS, FaultTrait.NEEDS_FILES, FaultTrait.DAMAGES_FILES, FaultTrait.ENDS_BY_ITSELF}
)
"""Any of these traits: a fault that lands only where the workload's own partitions are, or are written."""


def at_a_coordinator(rng: Random, fault: Fault) -> Fault:
    """Aim a fault of one broker at a coordinator."""
    movable = fault.target in ("leader", "controller", "random") and not fault.traits & ELSEWHERE
    return replace(fault, target="coordinator") if movable else fault


def nothing_wrong(*given: Any) -> str:
    """Nothing forbids it."""
    return ""


def one_broker(params: Params) -> int:
    """One broker is enough."""
    return 1


def _plain(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def listed(params: Params) -> str:
    """All parameters, in brackets; empty where there are none."""
    rest = ", ".join(f"{key} {_plain(value)}" for key, value in params.items())
    return f" ({rest})" if rest else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawRules:
    """Defines how a seed draws faults of this kind."""

    params: Callable[[Random], dict[str, Any]] = no_params
    target: Callable[[Random, Params], str | None] | None = None
    """The target, if this kind does not use the usual drawing of targets. None: the usual drawing."""
    lasts_s: tuple[float, float] = (2.0, 5.0)
    by_default: bool = False
    """`squall run` draws it if --faults is missing."""
    by_default_on_foreign: bool = False
    """The same for a cluster that somebody else runs."""
    swarm: str = ""
    """Which draw of a swarm's kinds it belongs to. "first"; "newer": drawn separately, so that seeds without it keep
    their old plans; "beside": at any time beside all others; empty: none.
    """
    likely: Callable[[int, Fault, int], Params] = lambda seed, fault, in_flight: fault.params
    """In `squall run`: parameters under which it strikes, from the seed and the requests in flight."""
    varied: Callable[[Random, Params, int], dict[str, Any]] | None = None
    """In a swarm: parameters that only some faults get, from the number of nodes."""
    coordinated: Callable[[Random, Fault], Fault] = at_a_coordinator
    """If the workload has transactional producers: what some of its faults become."""
    of_groups: Callable[[Random, Fault, Sequence[str]], Fault] = lambda rng, fault, asked: at_a_coordinator(rng, fault)
    """The same if it has consumer groups, whose members often send requests of the APIs `asked`."""
    under_groups: Callable[[Random, Params], Params] = lambda rng, params: params
    """In a swarm whose clients are members of groups: parameters that only they can bear."""
    instead: Callable[[int, Fault, int], Fault | None] = lambda seed, fault, nodes: None
    """In a swarm: sometimes returns another fault, with its target already chosen."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FaultKind:
    """Describes one kind of fault."""

    name: str
    place: int
    """Its place in lists and in a seed's draws. A new kind takes the next number, so that seeds keep their plans."""
    title: str
    fault_class: str
    """P process, N network, C clock, W1 power loss, D damaged disk (the classes of `squall.checkers.guarantees`)."""
    worse_class: str = ""
    """What it is where it hit all who were in sync; empty: the same."""
    duration_s: NumericParameter
    params: Mapping[str, NumericParameter | ChoiceParameter] = field(default_factory=dict)
    traits: frozenset[FaultTrait] = frozenset()
    more_traits: Callable[[Params], frozenset[FaultTrait]] = no_traits
    """Traits that follow from its parameters."""
    worlds: frozenset[str] = OUR_WORLDS
    """Runtimes that can play it."""
    nowhere_else: str = ""
    """Why the other runtimes cannot play it."""
    needs_nodes: Callable[[Params], int] = one_broker
    """How many brokers it needs."""
    asks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each value of the parameter `how`: the APIs that its brokers must speak."""
    check: Callable[[Params], str] = nothing_wrong
    """Which combination of parameters is forbidden, in words. Empty: none."""
    check_target: Callable[[str, Params], str] = nothing_wrong
    """Why it cannot hit this target, in words. Empty: it can."""
    refuse: Callable[[Params, PlanTraits], str] = nothing_wrong
    """Why this plan cannot have it. Empty: it can."""
    draw: DrawRules = DrawRules()
    retarget: Callable[[Fault, FaultPlacement], Fault] = as_drawn
    """The same fault with a target that it can hit. A fault that hits nothing proves nothing."""
    alone: Callable[[Params], dict[str, Any]] = same
    """Its parameters if the cluster has one broker only."""
    of_clients: Callable[[Params], dict[str, Any]] = same
    """Faults of links only: its parameters on clients' links."""
    for_foreign_brokers: Callable[[Params, bool], dict[str, Any]] = lambda params, external: dict(params)
    """Its parameters on brokers that are not Squall's. The flag says whether somebody else runs the whole cluster."""
    play: Callable[[Any, Any], Awaitable[None]]
    """Plays the fault in a `squall.chaos.faults.context.FaultContext`, as a `FaultExecution`: begins the fault, waits
    until its end, undoes it, and fills in evidence, `landed` and `error`. UnresolvedTargetError and HarnessError mean
    that the fault did not land. The function imports trio only when it is called, because a reader of plans should not
    wait for that import.
    """
    evidence: str
    """What proves that it landed."""
    middle: str
    """The evidence that it was on between its begin and its end; "none" and the reason if nothing can be."""
    verify: Callable[[Mapping[str, Any], Params, Sequence[Any]], str]
    """(evidence, parameters, what it hit) -> what is missing in the evidence, in words
    (`squall.chaos.faults.proofs`).
    """
    describe_evidence: Callable[[Any], str]
    """The evidence of one fault in words. If it did not land, what was seen instead."""
    describe_params: Callable[[Params], str] = listed
    """The words after its name that give its parameters."""
    describe_effect: Callable[[Params, int, Sequence[str]], str]
    """What happens to a node, in words after "Broker N is". It takes the links in the fault's evidence."""

    @property
    def defaults(self) -> dict[str, Any]:
        """Its parameters if a plan names none."""
        return {name: each.default for name, each in self.params.items()}
