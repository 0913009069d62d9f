"""What every world can do for a run: hold a cluster, hurt it, heal it, and say what it saw.

A runtime acts and measures; it decides nothing. Who is hit, when, and whether what was measured is proof enough is the
nemesis's business. Every act returns its `Evidence`: plain JSON, copied as it is into nemesis.jsonl.

Link faults carry a name, so that overlapping ones coexist on a link and ending one never ends another. Acts on nodes
do not overlap: pausing a dead node or killing it twice is the caller's mistake, answered with HarnessError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Evidence = dict[str, Json]


class Act(StrEnum):
    """What a runtime may be able to do; `Runtime.acts` says what it can. A plan that needs more is refused."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    LINK = "link"
    CLOCK = "clock"
    POWER_LOSS = "power_loss"


class Stream(StrEnum):
    """Which bytes of a link's connections: those its source sends, those its target answers, or both."""

    THERE = "there"
    BACK = "back"
    BOTH = "both"


class Manner(StrEnum):
    """How a link is cut.

    REFUSE ends connections and refuses new ones (always both streams). DROP swallows bytes, and ends the connections it
    swallowed from when it is removed. HOLD keeps bytes and delivers them late when it is removed, as TCP does after a
    short partition: the manner that makes zombies.
    """

    REFUSE = "refuse"
    DROP = "drop"
    HOLD = "hold"


class NodeState(StrEnum):
    """Where a node's process is."""

    DOWN = "down"
    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """The connections that `source` (a node id, or a client zone's name) opens to node `target`. Directed.

    Cutting A -> B leaves those that B opens to A alone. "No byte from A reaches B" is the stream THERE of A -> B and
    the stream BACK of B -> A.
    """

    source: int | str
    target: int

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class Cut:
    """Nothing gets through, in one of three manners."""

    manner: Manner
    stream: Stream = Stream.BOTH


@dataclass(frozen=True, slots=True)
class Latency:
    """Bytes arrive `latency_ms` +- `jitter_ms` later, in order."""

    latency_ms: int
    jitter_ms: int = 0
    stream: Stream = Stream.BOTH


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """At most `kb_per_s` KiB a second and connection."""

    kb_per_s: int
    stream: Stream = Stream.BOTH


@dataclass(frozen=True, slots=True)
class Slicer:
    """Bytes arrive in pieces of `average_bytes` +- `variation_bytes`, `delay_us` apart: torn frames."""

    average_bytes: int
    variation_bytes: int = 0
    delay_us: int = 0
    stream: Stream = Stream.BOTH


@dataclass(frozen=True, slots=True)
class LimitData:
    """A connection ends after this many bytes: in the middle of a frame, most often."""

    limit_bytes: int
    stream: Stream = Stream.BOTH


@dataclass(frozen=True, slots=True)
class ResetPeer:
    """A connection is reset (RST) `after_ms` after it was opened, or after the fault began."""

    after_ms: int = 0
    stream: Stream = Stream.BOTH


@dataclass(frozen=True, slots=True)
class SlowClose:
    """The end of a connection is passed on `delay_ms` late."""

    delay_ms: int
    stream: Stream = Stream.BOTH


LinkFault = Cut | Latency | Bandwidth | Slicer | LimitData | ResetPeer | SlowClose


@dataclass(frozen=True, slots=True)
class Probe:
    """One ApiVersions round trip. `error` says why there was no answer ("refused", "timed out", "ended: ...")."""

    ok: bool
    round_trip_ms: float
    """Connecting included. Until the failure where there was no answer."""
    error: str | None = None

    def evidence(self) -> Evidence:
        """For nemesis.jsonl."""
        return {"ok": self.ok, "round_trip_ms": round(self.round_trip_ms, 3), "error": self.error}


@dataclass(frozen=True, slots=True)
class NodeExit:
    """A node ended though nobody asked it to: its own bug, or the machine's. `code` is negative for a signal."""

    node: int
    incarnation: int
    code: int
    t_ns: int
    """When it was noticed, by the harness's monotonic clock."""
    last_words: str
    """The end of what it printed."""


class Runtime(Protocol):
    """A cluster in one of the worlds. Methods may be called from one trio run only; they wait and never block it.

    Unless said otherwise they raise HarnessError where the world does not do as it is told.
    """

    name: str
    """"process", "docker", "sim" or "external"."""
    acts: frozenset[Act]
    nodes: tuple[int, ...]
    """Every node that the cluster was made of, ascending, whatever its state."""
    zones: tuple[str, ...]
    """Client zones: groups of clients whose links to the brokers can be hurt apart from the others'."""

    async def start(self) -> None:
        """Start every node and wait until clients of each zone see all of them. Called once."""

    async def stop(self) -> None:
        """End the cluster: controlled shutdown where that works, by force where not. Leaves no process. Idempotent."""

    def bootstrap(self, zone: str) -> str:
        """Bootstrap servers of a zone, as "host:port,host:port"."""

    def links(self) -> tuple[Link, ...]:
        """Every link that can be hurt, ascending: node to node, then zone to node."""

    def state(self, node: int) -> NodeState:
        """As the runtime last made it or found it."""

    def exits(self) -> tuple[NodeExit, ...]:
        """Nodes that ended on their own so far. A run with any has something to report."""

    async def kill(self, node: int) -> Evidence:
        """End a running or paused node at once (SIGKILL). What it wrote stays, as the page cache does.

        Evidence: pid, gone, asked_ns, ended_ns.
        """

    async def stop_node(self, node: int, *, grace_s: float = 30.0) -> Evidence:
        """Ask a running node to leave (SIGTERM, controlled shutdown), and kill it after `grace_s`.

        Evidence: pid, code, controlled (it ended by itself, and said so in its trace), asked_ns, ended_ns.
        """

    async def start_node(self, node: int) -> Evidence:
        """Start a node that is down, on the data it left, and wait until it is ready.

        Evidence: pid, incarnation, asked_ns, ready_ns.
        """

    async def pause(self, node: int) -> Evidence:
        """Hold a running node where it is (SIGSTOP), as a long garbage collection does.

        Evidence: pid, state ("T" as the kernel has it), asked_ns, paused_ns, probe (of its own port: must not be ok).
        """

    async def resume(self, node: int) -> Evidence:
        """Let a paused node go on. Evidence: pid, state, asked_ns, resumed_ns."""

    async def set_clock(self, node: int, offset_ms: float, *, rate: float = 1.0) -> Evidence:
        """Bend a node's wall clock: the true time plus `offset_ms`, running at `rate`. 0 and 1.0 heal it."""

    async def fault_link(self, name: str, link: Link, fault: LinkFault) -> Evidence:
        """Put a fault on a link under a name unused on this link. Evidence: link, fault, asked_ns, began_ns."""

    async def heal_link(self, name: str, link: Link) -> Evidence:
        """Take the fault of this name off a link; one that is not there is no error.

        Evidence: link, asked_ns, ended_ns.
        """

    async def probe(self, link: Link, *, timeout_s: float = 1.0) -> Probe:
        """A new connection and one round trip over a link, through whatever is wrong with it. Never raises."""

    async def heal(self) -> Evidence:
        """Take every fault off every link, resume what is paused, true the clocks, start what is down; then check.

        Evidence: resumed, started (node ids), links (how many were probed), failed (those without an answer; none).
        """

    def trace_path(self, node: int) -> Path:
        """The node's trace.jsonl, over all its incarnations."""

    def log_path(self, node: int) -> Path:
        """What the node printed, over all its incarnations."""

    def data_path(self, node: int) -> Path:
        """The node's log directory."""
