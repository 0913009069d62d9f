"""Adds lines about appends and high watermarks to the nodes' traces. Brokers do not trace these, because they are too
many; this module compares the replicas' offsets after each event instead.

The lines are added only on request, for reports. They are left out of the run's digest: a run has the same digest with
and without them.

    {"e": "appended", "topic", "partition", "from", "leo", "epoch", "role"}    offsets [from, leo) are new; role: leader
                                                                               or follower, epoch: the replica's
    {"e": "hw_moved", "topic", "partition", "hw", "leo"}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from squall.broker.replicas.hosted_partition import HostedPartition


class TracedWorld(Protocol):
    """Represents the simulation whose offsets are traced: its time, its nodes and its trace."""

    @property
    def mono(self) -> float:
        """Returns the true monotonic time, in s, which the lines of all traces contain."""

    @property
    def nodes(self) -> Mapping[int, Any]:
        """Maps a node id to an object with two attributes: `node`, the running broker (None while it is down), and
        `env`, the broker's environment (its wall clock, name and incarnation).
        """

    def beside(self, line: dict[str, Any]) -> None:
        """Add a line to the trace of the node that `line["n"]` names. The run's digest leaves the line out, because the
        simulator writes it, not the node.
        """


class OffsetTracer:
    """Traces changes of each replica's log end offset and high watermark. `look` is called after each event, and
    compares both with their values at its last call.
    """

    def __init__(self, world: TracedWorld) -> None:
        self._world = world
        self._known: dict[tuple[int, str, int], tuple[int, int]] = {}

    def look(self) -> None:
        """Add trace lines for replicas whose log has grown or whose high watermark has changed since the last call."""
        for node_id, node in self._world.nodes.items():
            if node.node is not None:
                for hosted in node.node.replicas.hosted():
                    self._compare(node_id, node, hosted)

    def _compare(self, node_id: int, node: Any, hosted: HostedPartition) -> None:
        log, state = hosted.log, hosted.state
        key = node_id, log.topic, log.partition
        now = log.log_end_offset, state.high_watermark
        before = self._known.get(key)
        if before == now:
            return
        self._known[key] = now
        # The first look shows what the replica has, and not what was appended just now.
        if before is None:
            return
        if now[0] > before[0]:
            role = "leader" if state.is_leader else "follower"
            grown = {"from": before[0], "leo": now[0], "epoch": state.leader_epoch, "role": role}
            self._tell(node, hosted, "appended", grown)
        if now[1] != before[1]:
            self._tell(node, hosted, "hw_moved", {"hw": now[1], "leo": now[0]})

    def _tell(self, node: Any, hosted: HostedPartition, event: str, fields: dict[str, Any]) -> None:
        env = node.env
        head = {"t": self._world.mono, "w": env.wall_ms(), "n": env.name, "i": env.incarnation, "e": event}
        where = {"topic": hosted.log.topic, "partition": hosted.log.partition}
        self._world.beside({**head, **where, **fields})
