"""What every world can do for a run: hold a cluster, hurt it, heal it, and say what it saw.

A runtime acts and measures; it decides nothing. Who is hit, when, and whether what was measured is proof enough is the
nemesis's business. Every act returns its `Evidence`: plain JSON, copied as it is into nemesis.jsonl.

Link faults carry a name, so that overlapping ones coexist on a link and ending one never ends another. Acts on nodes
do not overlap: pausing a dead node or killing it twice is the caller's mistake, answered with HarnessError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from broker.env import Env

NOISE_MS = 30.0
"""`Runtime.noise_ms` of real brokers: JVMs on two busy cores, seen for some seconds at a time."""

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Evidence = dict[str, Json]


class Act(StrEnum):
    """What a runtime may be able to do; `Runtime.acts` says what it can. A plan that needs more is refused."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    LINK = "link"
    """Every LinkFault but Loss and Frames, and `reset_links`."""
    CLOCK = "clock"
    POWER_LOSS = "power_loss"
    CRASH = "crash"
    """`crash_at`."""
    DISK = "disk"
    """`fault_disk`, `heal_disk`."""
    ROT = "rot"
    SLOW = "slow"
    """`slow_cpu`, `heal_cpu`."""
    UPGRADE = "upgrade"
    """`upgrade_node`."""
    LOSS = "loss"
    FRAMES = "frames"


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


@dataclass(frozen=True, slots=True)
class Loss:
    """Packets are lost with this probability and sent again, as TCP does: their bytes, and those behind them, arrive
    `rto_ms` late, twice that if lost again, and so on. Never out of order.
    """

    probability: float
    rto_ms: int = 200
    stream: Stream = Stream.BOTH


class FrameAct(StrEnum):
    """What is done to one request or response."""

    DROP = "drop"
    """It never arrives; the connection lives on. Of a request the broker knows nothing; a response's work is done."""
    DELAY = "delay"
    """It arrives late, and so does all that is behind it on its connection."""
    DUPLICATE = "duplicate"
    """The target gets the request twice. The second answer is swallowed: its asker knows of one only."""
    REORDER = "reorder"
    """The next one on its connection overtakes it; where none comes within `delay_ms` it passes as it is, not hit. Of
    two requests that changed places the asker gets the answers in its own order: it knows nothing of it."""
    ERROR = "error"
    """The link answers in the target's stead, which never sees the request: every error code is `error`."""


@dataclass(frozen=True, slots=True)
class Frames:
    """The `nth` frame (from 1, since the fault began) of API `api` over a link, and `count` - 1 after it."""

    api: int
    """API key."""
    act: FrameAct
    nth: int = 1
    count: int = 1
    """0: every one from the `nth` on."""
    delay_ms: int = 0
    """For DELAY and REORDER."""
    error: int = 0
    """Kafka's error code, for ERROR."""
    stream: Stream = Stream.THERE
    """THERE hits requests, BACK their responses. BOTH is not allowed; DUPLICATE and ERROR are THERE."""


LinkFault = Cut | Latency | Bandwidth | Slicer | LimitData | ResetPeer | SlowClose | Loss | Frames

CrashOp = Literal["fsync", "write", "send"]
"""Where `crash_at` may strike: a file's fsync, a write to a file (append, pwrite, truncate), a send to a link."""


@dataclass(frozen=True, slots=True)
class FailWrites:
    """The `nth` matching call (from 1, since the fault began) and all later ones fail with `errno` until it is removed.

    After a failed fsync the pages count as clean: a later fsync succeeds without them, as Linux does.
    """

    errno: Literal["EIO", "ENOSPC"] = "EIO"
    nth: int = 1
    op: Literal["write", "fsync"] = "write"
    path_glob: str = "*"


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """Each call takes `delay_ms` longer."""

    delay_ms: int
    op: Literal["write", "fsync"] = "fsync"


@dataclass(frozen=True, slots=True)
class Quota:
    """Files may grow by `free_bytes` in all, counted from now; what would take more fails with ENOSPC.

    Removing and truncating gives space back.
    """

    free_bytes: int


DiskFault = FailWrites | SlowDisk | Quota


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
class ClockWord:
    """What a node said of its wall clock. offset_ms: what it showed less the true time, when it said so."""

    t_ns: int
    """By the harness's monotonic clock."""
    offset_ms: float
    set_ms: float
    """The offset that it was ordered to have, as it read the order."""
    rate: float
    """And to run at."""


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


@runtime_checkable
class Counting(Protocol):
    """A world that counts its brokers' calls."""

    def calls(self, node: int, op: CrashOp) -> int:
        """How many of such calls a node has made since the cluster was made, over all its incarnations."""


@runtime_checkable
class FakingTime(Protocol):
    """A world that can bend a broker's clock from below as well, where it has no part in it."""

    async def fake_time(self, node: int, offset_ms: float) -> Evidence:
        """As `Runtime.set_clock`, without a rate; `clock_words` tell of it too. Refused where it was not made so."""


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
    noise_ms: float
    """What else goes on may make every round trip longer by so much for seconds: an effect that is smaller proves
    nothing. 0 where nothing else goes on.
    """

    async def start(self) -> None:
        """Start every node and wait until clients of each zone see all of them. Called once."""

    async def stop(self) -> None:
        """End the cluster: controlled shutdown where that works, by force where not. Leaves no process. Idempotent."""

    def env(self, name: str) -> Env:
        """An Env of this world for harness and client code: its clock is the run's one clock. Each name has a random
        stream of its own where the world has a seed.
        """

    def bootstrap(self, zone: str) -> str:
        """Bootstrap servers of a zone, as "host:port,host:port". Of "INTERNAL": the listener between nodes, straight,
        whatever is done to links, for what only a node is asked. Refused for a zone that there is not.
        """

    def links(self) -> tuple[Link, ...]:
        """Every link that can be hurt, ascending: node to node, then zone to node."""

    def state(self, node: int) -> NodeState:
        """As the runtime last made it or found it."""

    def exits(self) -> tuple[NodeExit, ...]:
        """Nodes that ended on their own so far. A run with any has something to report."""

    def troubles(self) -> tuple[str, ...]:
        """What of the harness's own has ended in a running cluster though nobody asked it to: proxies, relays, the
        engine. Clients and brokers may have suffered from it, so that nothing is the cluster's fault for sure.
        """

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

    async def software(self, node: int) -> Evidence:
        """What a running node is. Evidence: runs (an image's id, a digest of a program's files, a version: whatever
        tells two of them apart), by (who says so), speaks (what the node itself answers to ApiVersions).
        """

    async def upgrade_node(self, node: int) -> Evidence:
        """Have a node that is down come up as the second version, at its next start and later ones. Refused where none
        was given.

        Evidence: from, to.
        """

    async def pause(self, node: int) -> Evidence:
        """Hold a running node where it is (SIGSTOP), as a long garbage collection does.

        Evidence: pid, state ("T": held, as the kernel has it; of a container `engine` is the engine's word for it),
        asked_ns, paused_ns, probe (of its own port: must not be ok).
        """

    async def resume(self, node: int) -> Evidence:
        """Let a paused node go on. Evidence: pid, found (its state just before: "T" if it was still held), state,
        asked_ns, resumed_ns.
        """

    async def set_clock(self, node: int, offset_ms: float, *, rate: float = 1.0) -> Evidence:
        """Bend a node's wall clock: the true time plus `offset_ms`, running at `rate` from now. 0 and 1.0 heal it."""

    def clock_words(self, node: int) -> Sequence[ClockWord]:
        """What a node said of its wall clock since this was first asked of it, in order: whenever it is bent anew, and
        every half a second while it is.
        """

    async def power_loss(self, nodes: Sequence[int]) -> Evidence:
        """Running or paused nodes lose power at one moment: they end, and what each had not synced may be lost or torn.

        Evidence: asked_ns, ended_ns, nodes: {id: {bytes_pending, bytes_lost, names_pending, names_lost, torn}}.
        """

    async def crash_at(self, node: int, op: CrashOp, nth: int, *, within_s: float) -> Evidence:
        """Kill a running node just before its `nth` `op` from now on (from 1). Waits until that has happened, at most
        `within_s`; then it is not going to happen any more.

        Evidence: op, nth, gone (it happened), incarnation, asked_ns, ended_ns, at (the path or peer that it was for).
        """

    async def slow_cpu(self, name: str, node: int, share: float) -> Evidence:
        """Give a node `share` of a CPU at most (0 to 1), under a name unused on it; it outlives restarts. The least of
        several counts.

        Evidence: by (what does it), share, began_ns.
        """

    async def heal_cpu(self, name: str, node: int) -> Evidence:
        """Take the share of this name off; one that is not there is no error.

        Evidence: stops (how often it was seen to be held), ran_share (of the time it was let run), cpu_share (CPU time
        that it had, of all the time; None where there is none to be had), ended_ns. Zeros while another name is on.
        """

    async def fault_disk(self, name: str, node: int, fault: DiskFault) -> Evidence:
        """Put a fault on a node's disk under a name unused on it; it outlives restarts. Evidence: fault, began_ns."""

    async def heal_disk(self, name: str, node: int) -> Evidence:
        """Take the fault of this name off; one that is not there is no error.

        Evidence: hits (how many calls it failed, or slowed), ended_ns.
        """

    async def rot(self, node: int, *, path_glob: str = "*.log", bits: int = 1) -> Evidence:
        """Flip bits in a closed segment of a node, where they stand on the disk. It cannot be healed.

        Evidence: path (None: there is no closed segment), offset, before, after (digests of the file), t_ns.
        """

    async def damage(self, node: int, how: Literal["tail", "file"], *, size: int = 1000) -> Evidence:
        """Damage the disk of a node that is down: the newest segment of a partition loses its last `size` bytes, or a
        closed file of one is gone. It cannot be healed.

        Evidence: path (None: there is no such file), bytes and bytes_left, before and after (digests of the file; None
        for one that is gone), t_ns.
        """

    async def reset_links(self, links: Sequence[Link]) -> Evidence:
        """Reset (RST) every connection that is open over these links now. Evidence: reset (how many), t_ns."""

    async def fault_link(self, name: str, link: Link, fault: LinkFault) -> Evidence:
        """Put a fault on a link under a name unused on this link. Evidence: link, fault, asked_ns, began_ns."""

    async def heal_link(self, name: str, link: Link) -> Evidence:
        """Take the fault of this name off a link; one that is not there is no error.

        Evidence: link, asked_ns, ended_ns; of Loss and Frames also hits (packets lost, frames hit).
        """

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> Probe:
        """A new connection and one round trip over a link, through whatever is wrong with it. Never raises.

        pad_bytes: how much longer what is asked is made, in as many requests on that connection as it takes.
        """

    async def ending(
        self, link: Link, *, timeout_s: float = 1.0, spoil: bool = False, opened: Callable[[], None] = lambda: None
    ) -> Probe:
        """A new connection over a link, watched after a first request until it ends: `ok` where it does, with how and
        when in `error` and `round_trip_ms`. "still open" where it does not, "refused" or "never open" where it never
        began. Never raises.

        spoil: an impossible frame is sent once the first request has its answer, for which a broker ends the
        connection; what is measured begins there. opened: called when the first answer comes.
        """

    async def heal(self) -> Evidence:
        """Take every fault off links and disks, resume what is paused, true the clocks, start what is down; then check.

        Evidence: resumed, started (node ids), links (how many were probed), failed (those without an answer; none).
        """

    def files(self) -> Mapping[str, bytes]:
        """What is to be kept of the nodes, by path in the run directory (nodes/N/trace.jsonl, nodes/N/data/...), once
        they have stopped. Empty where the world's files are in the run directory already.
        """

    def trace_path(self, node: int) -> Path:
        """The node's trace.jsonl, over all its incarnations."""

    def log_path(self, node: int) -> Path:
        """What the node printed, over all its incarnations."""

    def data_path(self, node: int) -> Path:
        """The node's log directory."""
