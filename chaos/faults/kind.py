"""What a kind of fault is, and one fault of it.

Everything that the rest of Squall may ask about an action is asked of its `Kind`: by its traits, never by its name. A
kind stands in one file of `chaos/faults/kinds/`, with how it is drawn, what must be true for it to land, how it is
played and how its evidence is said.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any

from checkers import fault_traits

MANNERS = ("refuse", "drop", "hold")
"""How a cut link behaves: refuses and resets; swallows bytes and closes when healed; holds bytes and delivers them
late.
"""

SHAPES = ("isolate", "halves", "one-way", "ring", "bridge")
"""Which links a partition cuts: all of the target's; those between two halves; what the target sends, only; so that
each broker hears a majority and no two the same one (Jepsen's majorities-ring); those between two halves that only the
target, the bridge, sees both of.
"""

SIDES = ("peers", "clients", "both")
"""Whose connections to the target are hit: those between brokers (of either direction), of clients, or both."""

RUNTIMES = ("process", "docker", "sim", "external")
EVERYWHERE = frozenset(RUNTIMES)
OUR_WORLDS = frozenset({"process", "docker", "sim"})
"""Where we start the brokers."""

Params = Mapping[str, Any]


class FaultError(ValueError):
    """A fault that cannot be: unknown action or target, or a parameter out of range. The message says which and what is
    allowed.
    """


@dataclass(frozen=True, slots=True)
class Number:
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
class Choice:
    """A parameter with a fixed set of values."""

    values: tuple[str, ...]
    default: str

    def check(self, name: str, value: Any) -> str:
        """The value, or FaultError."""
        if value not in self.values:
            raise FaultError(f"{name} = {value!r}: one of {', '.join(self.values)} is allowed")
        return str(value)


class Trait(StrEnum):
    """What is true of a kind of fault. Those that judging and reports ask about stand in nemesis.jsonl."""

    # What it does to its nodes.
    TAKES_DOWN = fault_traits.TAKES_DOWN
    """Its nodes are gone from its begin on; its end starts them again."""
    PAUSES = fault_traits.PAUSES
    """Its nodes are held where they are, and let go at its end."""
    ENDS_BY_ITSELF = "ends by itself"
    """A node ends of it by itself: sooner, later or never."""
    STOPS_BROKER = "stops broker"
    """A broker that it hits may stop in good order, as it should: that is no trouble of the run."""
    NEEDS_NODE = "needs node"
    """Its nodes must run from its begin to the proof that it landed."""
    OF_ONE_NODE = "of one node"
    """Drawn for one node at a time."""
    ONE_BY_ONE = "one by one"
    """Of all brokers, one after the other, each waited for."""
    BY_SIGNAL = "by signal"
    """An engine can do it to any container, whoever runs in it."""
    # What it does to links and clients.
    OF_LINKS = "of links"
    """It acts on links: it takes a `side`, and a client zone can be its target."""
    CUTS_LINKS = fault_traits.CUTS_LINKS
    SLOWS_LINKS = fault_traits.SLOWS_LINKS
    NEEDS_TRAFFIC = "needs traffic"
    """It hits what is sent over a link, and not the link itself: where nothing is sent it does not land."""
    MEASURES_LINKS = "measures links"
    """Its proof is measured over its links, which must answer meanwhile."""
    OF_CLIENTS = "of clients"
    """Its targets are the workload's clients."""
    MOVES_LEADERS = "moves leaders"
    """Clients ask for metadata after it."""
    COUNTS_SYNCS = "counts syncs"
    """It may wait for an fsync."""
    ONCE = "once"
    """It can be done once in a run."""
    # What it needs.
    NEEDS_OUR_BROKER = "needs our broker"
    """Only Squall's own broker can be made to."""
    NEEDS_FILES = "needs files"
    """Brokers' data must be in folders of this machine."""
    NEEDS_HURT_FILES = "needs hurt files"
    """Brokers are started on files that can be hurt."""
    NEEDS_FRAMES = "needs frames"
    """Frames are followed through the connections of its links."""
    NEEDS_PACKET_FILTER = "needs packet filter"
    """Containers must let packets be dropped."""
    NEEDS_FAKE_TIME = "needs fake time"
    """Brokers are started behind libfaketime."""
    NEEDS_SECOND_VERSION = "needs second version"
    """It is always drawn where the plan names a second version and no faults."""
    # What it may do to data.
    OUT_OF_SYNC = fault_traits.OUT_OF_SYNC
    EITHER_END = fault_traits.EITHER_END
    FORGETS_SYNCS = fault_traits.FORGETS_SYNCS
    DAMAGES_FILES = "damages files"
    """What was synced is gone or altered."""


HOLDING = frozenset({Trait.TAKES_DOWN, Trait.PAUSES, Trait.ENDS_BY_ITSELF})
"""Any of these: its nodes are held down, or may be. A rolling restart goes around what others hold."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What of a plan decides whether a fault can be in it."""

    runtime: str
    target: str
    """Whose brokers."""
    nodes: int
    replicas: int
    upgrade_to: str


@dataclass(frozen=True, slots=True)
class LandingGround:
    """What of a cluster and its load decides whether a fault can land."""

    nodes: int
    replicas: int
    flushes: bool
    """The topics have flush.messages=1: whoever has a replica syncs all the time."""
    rate: int = 40
    """Records a second, all producers together."""
    acks: int = -1


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault. `at_s` counts from the beginning of the load."""

    id: int
    at_s: float
    duration_s: float
    kind: Kind
    target: str
    params: Params = field(default_factory=dict)
    when: str = ""
    """What it waits for, from `at_s` on (`chaos.faults.triggers`); empty: nothing."""
    within_s: float = 0.0
    """How long it waits for that."""

    @property
    def action(self) -> str:
        """Its kind's name."""
        return self.kind.name

    @property
    def traits(self) -> frozenset[Trait]:
        """Its kind's, and those that follow from its parameters."""
        return self.kind.traits | self.kind.more_traits(self.params)

    def overlaps(self, other: Fault, longer_s: float = 0.0) -> bool:
        """Whether both are on at some moment, or would be if each was on for so much longer."""
        since, until = other.at_s, other.at_s + other.duration_s + longer_s
        return self.at_s <= until and since <= self.at_s + self.duration_s + longer_s


@dataclass(frozen=True, slots=True)
class Site:
    """Where a drawn fault is to land: the cluster, and all faults as they were drawn, itself among them."""

    seed: int
    ground: LandingGround
    faults: Sequence[Fault]

    def is_held(self, fault: Fault) -> bool:
        """Whether some fault holds a node while this one is on."""
        return any(other.traits & HOLDING and fault.overlaps(other) for other in self.faults)


# ---------------------------------------------------------------------------------------------- what most kinds do


def no_params(rng: Random) -> dict[str, Any]:
    """Nothing is drawn: the defaults."""
    return {}


def same(params: Params) -> dict[str, Any]:
    """Parameters as they are."""
    return dict(params)


def as_drawn(fault: Fault, site: Site) -> Fault:
    """It lands wherever it is."""
    return fault


def no_traits(params: Params) -> frozenset[Trait]:
    """None follow from parameters."""
    return frozenset()


def nothing_wrong(*given: Any) -> str:
    """Nothing forbids it."""
    return ""


def one_broker(params: Params) -> int:
    """It needs one broker."""
    return 1


def _plain(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def listed(params: Params) -> str:
    """All parameters, in brackets; empty where there are none."""
    rest = ", ".join(f"{key} {_plain(value)}" for key, value in params.items())
    return f" ({rest})" if rest else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How a seed draws faults of a kind."""

    params: Callable[[Random], dict[str, Any]] = no_params
    target: Callable[[Random, Params], str | None] | None = None
    """Whom it goes to, where that is not drawn as for all others: it is then left at that. None: as for all others."""
    lasts_s: tuple[float, float] = (2.0, 5.0)
    by_default: bool = False
    """`squall run` draws it where --faults is not given."""
    on_strangers: bool = False
    """The same of a cluster that somebody else runs."""
    swarm: str = ""
    """In which draw of a swarm's kinds it is: "first"; "newer", drawn by itself so that the seeds without it keep the
    plans that they had; empty: in none.
    """
    likely: Callable[[int, Fault, int], Params] = lambda seed, fault, in_flight: fault.params
    """In `squall run`: its parameters such that it strikes, by seed and requests in flight."""
    varied: Callable[[Random, Params, int], dict[str, Any]] | None = None
    """In a swarm: parameters that only some have, by how many nodes there are."""
    instead: Callable[[int, Fault, int], Fault | None] = lambda seed, fault, nodes: None
    """In a swarm: now and then another one, aimed already."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """What can be done to a cluster."""

    name: str
    place: int
    """Where it stands in lists and in what seeds draw from. A new kind takes the next number: so seeds keep their
    plans."""
    title: str
    fault_class: str
    """P process, N network, C clock, W1 power loss, D damaged disk (the classes of `checkers.guarantees`)."""
    duration_s: Number
    params: Mapping[str, Number | Choice] = field(default_factory=dict)
    traits: frozenset[Trait] = frozenset()
    more_traits: Callable[[Params], frozenset[Trait]] = no_traits
    """What else is true of it with such parameters."""
    worlds: frozenset[str] = OUR_WORLDS
    """Runtimes in which it can be done."""
    nowhere_else: str = ""
    """Why not in the other ones."""
    needs_nodes: Callable[[Params], int] = one_broker
    """How many brokers there have to be."""
    asks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the parameter `how`: APIs that its brokers must speak."""
    check: Callable[[Params], str] = nothing_wrong
    """What one parameter forbids another, in words; empty: nothing."""
    check_target: Callable[[str, Params], str] = nothing_wrong
    """Why it cannot hit such a target, in words; empty: it can."""
    refuse: Callable[[Params, Setting], str] = nothing_wrong
    """Why it cannot be in such a plan; empty: it can."""
    draw: Draw = Draw()
    lands: Callable[[Fault, Site], Fault] = as_drawn
    """The same fault at something that it can hit: one that hits nothing proves nothing."""
    alone: Callable[[Params], dict[str, Any]] = same
    """Its parameters on an only broker."""
    of_clients: Callable[[Params], dict[str, Any]] = same
    """Of faults of links: its parameters on clients' links."""
    of_strangers: Callable[[Params, bool], dict[str, Any]] = lambda params, external: dict(params)
    """Its parameters on brokers that are not ours; whether somebody else runs the whole cluster."""
    play: Callable[[Any, Any], Awaitable[None]]
    """Given `chaos.faults.stage.Stage` and `Played`: does the fault, waits it out, undoes it, and fills in evidence,
    `landed` and `error`. Unresolved and HarnessError mean that it did not land. It imports what needs trio when it is
    played: who reads a plan need not wait for that.
    """
    evidence: str
    """What proves that it landed."""
    tell: Callable[[Any], str]
    """The evidence of one fault in words, or what was seen of it where that is no proof."""
    called: Callable[[Params], str] = listed
    """What follows its name where it is named with its parameters."""
    done: Callable[[Params, int, Sequence[str]], str]
    """What is done to a node, after "Broker N is", given the fault's links as in its evidence."""

    @property
    def defaults(self) -> dict[str, Any]:
        """Its parameters where a plan names none."""
        return {name: each.default for name, each in self.params.items()}
