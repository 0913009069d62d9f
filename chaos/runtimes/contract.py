"""Defines what every runtime does for a run: hold a cluster, inject faults into it, heal them, and report measurements.

A runtime acts and measures; it decides nothing. The nemesis chooses targets and times, and judges whether the
measurements are proof enough. Every act returns its `Evidence`: plain JSON, copied unchanged into nemesis.jsonl.

Each link fault carries a name: faults may overlap on a link, and ending one fault leaves the others on. Acts on nodes
must not overlap. A caller that pauses a dead node, or kills a node twice, gets a HarnessError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from squall.broker.env import Env

NOISE_MS = 30.0
"""Gives how much the round trips of real brokers vary by themselves, in ms: measured with JVMs on two busy cores."""

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Evidence = dict[str, Json]


class RuntimeCapability(StrEnum):
    """Names the kinds of faults and other actions that a runtime may be able to carry out. `Runtime.acts` lists those
    that it can; a plan that needs others is refused.
    """

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    LINK = "link"
    """Permits `fault_link` with every fault except Loss and Frames, and `reset_links`."""
    CLOCK = "clock"
    POWER_LOSS = "power_loss"
    CRASH = "crash"
    """Permits killing a broker just before one of its calls to disk or network (`crash_at`)."""
    DISK = "disk"
    """Permits disks that are slow, full, or fail writes (`fault_disk`, `heal_disk`)."""
    ROT = "rot"
    SLOW = "slow"
    """Permits limits of a broker's CPU time (`slow_cpu`, `heal_cpu`)."""
    UPGRADE = "upgrade"
    """Permits restarting a broker with the run's second software version (`upgrade_node`)."""
    LOSS = "loss"
    FRAMES = "frames"


class StreamDirection(StrEnum):
    """Selects bytes of a link's connections: the source's (THERE), the target's answers (BACK), or BOTH."""

    THERE = "there"
    BACK = "back"
    BOTH = "both"


class CutMode(StrEnum):
    """Selects how a link is cut.

    REFUSE ends open connections and refuses new ones, always in both streams. DROP swallows bytes; when the cut is
    removed, the connections that lost bytes end. HOLD keeps bytes and delivers them late, when the cut is removed, as
    TCP does after a short partition. HOLD is the mode that makes zombies.
    """

    REFUSE = "refuse"
    DROP = "drop"
    HOLD = "hold"


GONE = "-"
"""Is the `state` that `Runtime.activity` reports for a node that has no OS process."""


class NodeState(StrEnum):
    """Names the states of a node's OS process or container."""

    DOWN = "down"
    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """Represents the connections that `source` (a node id, or a client zone's name) opens to node `target`.

    A link is directed: a cut of A -> B does not touch the connections that B opens to A. To let no byte pass from A to
    B, cut the stream THERE of A -> B and the stream BACK of B -> A.
    """

    source: int | str
    target: int

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class Cut:
    """Blocks all bytes, in one of three modes."""

    manner: CutMode
    stream: StreamDirection = StreamDirection.BOTH


@dataclass(frozen=True, slots=True)
class Latency:
    """Delays bytes by `latency_ms` +- `jitter_ms`, and keeps their order."""

    latency_ms: int
    jitter_ms: int = 0
    stream: StreamDirection = StreamDirection.BOTH


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Limits each connection to `kb_per_s` KiB a second."""

    kb_per_s: int
    stream: StreamDirection = StreamDirection.BOTH


@dataclass(frozen=True, slots=True)
class Slicer:
    """Delivers bytes in pieces of `average_bytes` +- `variation_bytes`, `delay_us` apart. This tears frames."""

    average_bytes: int
    variation_bytes: int = 0
    delay_us: int = 0
    stream: StreamDirection = StreamDirection.BOTH


@dataclass(frozen=True, slots=True)
class LimitData:
    """Ends each connection after this many bytes, usually in the middle of a frame."""

    limit_bytes: int
    stream: StreamDirection = StreamDirection.BOTH


@dataclass(frozen=True, slots=True)
class ResetPeer:
    """Resets (RST) each connection `after_ms` after it opened, or after the fault began if it was open by then."""

    after_ms: int = 0
    stream: StreamDirection = StreamDirection.BOTH


@dataclass(frozen=True, slots=True)
class SlowClose:
    """Delays the end of a connection by `delay_ms` before the other side gets it."""

    delay_ms: int
    stream: StreamDirection = StreamDirection.BOTH


@dataclass(frozen=True, slots=True)
class Loss:
    """Loses each packet with this probability; the packet is sent again, as TCP does. Its bytes, and all bytes behind
    them, arrive `rto_ms` late. A packet that is lost again waits twice as long, and so on. Bytes stay in order.
    """

    probability: float
    rto_ms: int = 200
    stream: StreamDirection = StreamDirection.BOTH


class FrameAct(StrEnum):
    """Selects what a fault does to a request or response."""

    DROP = "drop"
    """Drops the frame; the connection stays open. The broker never sees a dropped request."""
    DELAY = "delay"
    """Delays the frame, and with it everything behind it on its connection."""
    DUPLICATE = "duplicate"
    """Delivers the request twice; the client gets only the first response."""
    REORDER = "reorder"
    """Lets the next frame of the connection overtake this frame. If no frame follows within `delay_ms`, this frame
    passes unchanged and does not count as hit. The client gets the responses to swapped requests in the order in which
    it asked.
    """
    RESET = "reset"
    """Resets the frame's connection, at both ends."""
    ERROR = "error"
    """Answers in place of the target, which never sees the request, with `Frames.error` as every error code."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Acts on requests or responses of API `api`: on the `nth` since the fault began, and on the next `count` - 1."""

    api: int
    """Is the API key of the frames to hit; `frames.METADATA_FETCH` means Fetch requests that read the metadata log."""
    act: FrameAct
    nth: int = 1
    count: int = 1
    """Gives how many frames to hit; 0 means every frame from the `nth` on."""
    delay_ms: int = 0
    """Gives how long a DELAY fault delays a frame, or how long a REORDER fault waits for the next frame at most."""
    error: int = 0
    """Is the Kafka error code with which an ERROR fault answers."""
    stream: StreamDirection = StreamDirection.THERE
    """Is THERE to hit requests, BACK to hit their responses. BOTH is not allowed; DUPLICATE and ERROR must be THERE."""
    also: tuple[int, ...] = ()
    """Lists further API keys to hit. `nth` and `count` count the frames of `api` and of these together."""


LinkFault = Cut | Latency | Bandwidth | Slicer | LimitData | ResetPeer | SlowClose | Loss | Frames

CrashOp = Literal["fsync", "write", "send"]
"""Names the calls at which `crash_at` may crash: fsync; append, pwrite or truncate of a file; send to a link."""


@dataclass(frozen=True, slots=True)
class FailWrites:
    """Fails the `nth` call of `op` on files that match `path_glob`, counted from 1 since the fault began, and all later
    ones, with `errno`. The fault lasts until it is removed.

    After a failed fsync the pages count as clean, as in Linux: a later fsync succeeds without writing them.
    """

    errno: Literal["EIO", "ENOSPC"] = "EIO"
    nth: int = 1
    op: Literal["write", "fsync"] = "write"
    path_glob: str = "*"


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """Makes each call take `delay_ms` longer."""

    delay_ms: int
    op: Literal["write", "fsync"] = "fsync"


@dataclass(frozen=True, slots=True)
class Quota:
    """Lets all files together grow by `free_bytes`, counted from now. A call that needs more fails with ENOSPC.

    Removing and truncating files frees space.
    """

    free_bytes: int


DiskFault = FailWrites | SlowDisk | Quota


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Holds the result of one ApiVersions round trip. `error` says why there was no answer ("refused", "timed out",
    "ended: ...").
    """

    ok: bool
    round_trip_ms: float
    """Gives the ms from the request, without connecting, to the response, or to the failure if no response came."""
    error: str | None = None

    def evidence(self) -> Evidence:
        """Return the fields that are written to nemesis.jsonl."""
        return {"ok": self.ok, "round_trip_ms": round(self.round_trip_ms, 3), "error": self.error}


@dataclass(frozen=True, slots=True)
class ClockReport:
    """Holds a node's report of its wall clock. offset_ms: the clock's time less the true time at that moment."""

    t_ns: int
    """Is the time of the report, by the harness's monotonic clock."""
    offset_ms: float
    set_ms: float
    """Gives the offset, in ms, that the harness had ordered and the node applied. `offset_ms` is the measured one."""
    rate: float
    """Gives the rate at which the clock was ordered to run."""


@dataclass(frozen=True, slots=True)
class NodeExit:
    """Records that a node ended without the harness's order, as by a bug. `code` is negative for a signal."""

    node: int
    incarnation: int
    code: int
    t_ns: int
    """Is the time when the harness noticed the exit, by the harness's monotonic clock."""
    last_words: str
    """Holds the end of the node's output."""


class Runtime(Protocol):
    """Holds one cluster and acts on it. Call its methods from one trio run only; they wait and never block that run.

    Unless stated otherwise, a method raises HarnessError if the runtime does not do what it was asked.
    """

    name: str
    """Names the kind of runtime: "process", "docker", "sim" or "external"."""
    acts: frozenset[RuntimeCapability]
    nodes: tuple[int, ...]
    """Lists every node that the cluster was made of, ascending, whatever its state."""
    controllers: tuple[int, ...]
    """Lists the nodes that vote in the quorum of controllers; empty if they are not known."""
    zones: tuple[str, ...]
    """Lists the client zones: groups of clients whose links to the brokers can carry faults of their own."""
    noise_ms: float
    """Gives the background noise of round trips, in ms: latency differences below this do not count as evidence. 0 in
    the simulator.
    """

    async def start(self) -> None:
        """Start every node and wait until clients of each zone see all nodes. Called once."""

    async def stop(self) -> None:
        """End the cluster: by controlled shutdown if that works, else by force. No process remains. Idempotent."""

    def env(self, name: str) -> Env:
        """Return an Env of this runtime for harness and client code. All these Envs have the same clock. In a
        simulation, each name has its own random stream.
        """

    def bootstrap(self, zone: str) -> str:
        """Return the bootstrap servers of a zone, "host:port,host:port". Zone "INTERNAL" is the listener between nodes,
        without link faults; use it only to query one node. Raise PreconditionError for an unknown zone.
        """

    def links(self) -> tuple[Link, ...]:
        """Return every link that can carry a fault, ascending: node to node, then zone to node."""

    def state(self, node: int) -> NodeState:
        """Return the node's state that the runtime last brought about or observed."""

    def exits(self) -> tuple[NodeExit, ...]:
        """Return the nodes that have ended so far without the harness's order, as by a bug."""

    def troubles(self) -> tuple[str, ...]:
        """Return the proxies, relays and container engine that ended by themselves while the cluster ran. They may have
        disturbed clients and brokers, so no finding can be blamed on the cluster with certainty.
        """

    async def kill(self, node: int) -> Evidence:
        """Kill a running or paused node at once (SIGKILL). Its writes survive, because the page cache does.

        Evidence: pid, gone (whether the OS process ended), asked_ns, ended_ns.
        """

    async def stop_node(self, node: int, *, grace_s: float = 30.0) -> Evidence:
        """Ask a running node to shut down (SIGTERM, controlled shutdown), and kill it after `grace_s`.

        Evidence: pid, code, asked_ns, ended_ns; controlled (the controller agreed), alone (no controller answered).
        """

    async def start_node(self, node: int) -> Evidence:
        """Start a node that is down, on the data that it left, and wait until it is ready.

        Evidence: pid, incarnation, asked_ns, ready_ns.
        """

    async def software(self, node: int) -> Evidence:
        """Identify the software of a running node. Evidence: runs (an image's id, a program's digest, or a version), by
        (the source of `runs`), speaks (what the node reports in ApiVersions).
        """

    async def upgrade_node(self, node: int) -> Evidence:
        """Prepare a node that is down: from its next start on it runs the second software version of the run. Evidence:
        from, to. Raise PreconditionError if the run has no second version.
        """

    async def pause(self, node: int) -> Evidence:
        """Stop a running node where it is (SIGSTOP), as a long garbage collection does.

        Evidence: pid, state (the kernel's letter, "T" for stopped; for a container, `engine` is the engine's state),
        asked_ns, paused_ns, probe (of the node's own port; it must not be ok).
        """

    async def resume(self, node: int) -> Evidence:
        """Let a paused node continue. Evidence: pid, found (the kernel's state letter just before: "T" if it was still
        stopped), state (the letter afterwards), asked_ns, resumed_ns.
        """

    async def activity(self, node: int) -> Evidence:
        """Measure how much a node's OS process has done so far. A stopped process does nothing, so two measurements
        show whether the process was resumed in between.

        Evidence: node, state ("T" if stopped, "-" if there is no OS process), t_ns. If there is one, also cpu_s (CPU
        seconds of all its threads), or in the simulator calls (its writes, fsyncs and sends).
        """

    async def set_clock(self, node: int, offset_ms: float, *, rate: float = 1.0) -> Evidence:
        """Set a node's wall clock to the true time plus `offset_ms`, running at `rate` from now. (0, 1.0) heals it."""

    def clock_reports(self, node: int) -> Sequence[ClockReport]:
        """Return a node's reports of its wall clock since the first call of this method, in order. A node reports
        whenever its clock is changed, and every half second while the clock differs from the true time.
        """

    async def power_loss(self, nodes: Sequence[int]) -> Evidence:
        """Let running or paused nodes lose power at the same moment. They all end; unsynced data may be lost or torn.

        Evidence: asked_ns, ended_ns, nodes: {id: {bytes_pending, bytes_lost, names_pending, names_lost, torn, logs}}.
        names: files created, renamed or removed. logs: {partition: [first lost offset, former end]} of losses.
        """

    async def crash_at(self, node: int, op: CrashOp, nth: int, *, within_s: float) -> Evidence:
        """Kill a running node just before its `nth` call of `op` from now on; 1 is the next call. If that call does not
        come within `within_s`, the kill is cancelled.

        Evidence: op, nth, gone (it was killed), incarnation, asked_ns, ended_ns, at (the call's path or peer, or None).
        """

    async def slow_cpu(self, name: str, node: int, share: float) -> Evidence:
        """Limit a node to `share` of a CPU (0 to 1), under a name unused on this node. The limit outlives restarts. If
        several limits are on, the smallest counts.

        Evidence: by (the mechanism that enforces it), share, began_ns.
        """

    async def heal_cpu(self, name: str, node: int) -> Evidence:
        """Remove the limit of this name; an unknown name is no error.

        Evidence: stops (how often the limit stopped the node), ran_share (the share of the time in which the limit let
        the node run), cpu_share (used CPU time divided by elapsed time; None if this cannot be measured), ended_ns.
        While another limit is still on, the figures are 0.
        """

    async def fault_disk(self, name: str, node: int, fault: DiskFault) -> Evidence:
        """Put a fault on a node's disk under an unused name. The fault outlives restarts. Evidence: fault, began_ns."""

    async def heal_disk(self, name: str, node: int) -> Evidence:
        """Remove the fault of this name, if any. Evidence: hits (calls that the fault failed or slowed), ended_ns."""

    async def rot(
        self, node: int, *, path_glob: str = "*.log", bits: int = 1, where: Literal["checked", "epoch"] = "checked"
    ) -> Evidence:
        """Flip bits in a file that the node no longer writes to, such as an older segment. This cannot be healed.
        checked: bits that a checksum covers. epoch: bits of leader epochs, which no checksum covers.

        Evidence: path (None if no such file matches `path_glob`), offset, before, after (digests of the file), t_ns.
        """

    async def damage(self, node: int, how: Literal["tail", "file"], *, size: int = 1000) -> Evidence:
        """Damage the disk of a node that is down. tail: the newest segment of a partition loses its last `size` bytes.
        file: a file that is no longer written to, such as an older segment, is removed. This cannot be healed.

        Evidence: path (None if there is no such file), bytes and bytes_left, before and after (digests of the file;
        None for a removed one), t_ns.
        """

    async def reset_links(self, links: Sequence[Link]) -> Evidence:
        """Reset (RST) every connection that is now open over these links. Evidence: reset (how many), t_ns."""

    async def fault_link(self, name: str, link: Link, fault: LinkFault) -> Evidence:
        """Put a fault on a link under a name unused on this link. Evidence: link, fault, asked_ns, began_ns."""

    async def heal_link(self, name: str, link: Link) -> Evidence:
        """Remove the fault of this name from a link; an unknown name is no error.

        Evidence: link, asked_ns, ended_ns. For Loss also `hits` (packets lost). For Frames also `hits` (requests or
        responses hit) and `struck` (the first EndTxn requests among them, each a `StruckEndTxn` as a dict).
        """

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
        """Open a new connection over a link, with the link's faults, and make one ApiVersions round trip. Never raises.

        pad_bytes: how many bytes to add to the request. Many bytes are spread over several requests on that connection.
        """

    async def ending(
        self, link: Link, *, timeout_s: float = 1.0, spoil: bool = False, opened: Callable[[], None] = lambda: None
    ) -> ProbeResult:
        """Open a new connection over a link, send a request, and measure how and when the connection ends. Never
        raises. `ok` is True if it ends within `timeout_s`; then `error` is "closed" or "ended: ...", and
        `round_trip_ms` the time until the end. Otherwise `error` is "still open", "refused" or "never open".

        spoil: after the first answer, send a frame of an impossible size, for which a broker closes the connection, and
        measure the time from there; if no answer comes, `ok` is False. opened: called at the first answer.
        """

    async def heal(self) -> Evidence:
        """Remove faults from links and disks, resume paused nodes, reset the clocks, start nodes that are down; then
        probe every link.

        Evidence: resumed, started (node ids), links (how many were probed), failed (the links that did not answer).
        """

    def files(self) -> Mapping[str, bytes]:
        """Return the nodes' files, by path in the run directory (nodes/N/trace.jsonl, nodes/N/data/...), once the nodes
        have stopped. Empty if the runtime writes its files into the run directory itself.
        """

    def trace_path(self, node: int) -> Path:
        """Return the path of the node's event log (trace.jsonl), to which all its incarnations append."""

    def log_path(self, node: int) -> Path:
        """Return the path of the node's printed output, to which all its incarnations append."""

    def data_path(self, node: int) -> Path:
        """Return the path of the node's log directory."""
