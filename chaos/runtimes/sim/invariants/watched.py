"""Nodes and their replicas as they were last seen, and the glance that tells whether anything has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from chaos.runtimes.sim.invariants import sight
from chaos.runtimes.sim.invariants.batches import Copy
from chaos.runtimes.sim.invariants.group_journal import GroupJournal
from chaos.runtimes.sim.invariants.journal import Journal
from chaos.runtimes.sim.invariants.known import Known

if TYPE_CHECKING:
    from broker.replicas.hosted import Hosted
    from chaos.runtimes.sim.invariants.known import View

Place = tuple[bytes, int]
Glance = tuple[Any, int, int, list[tuple[Any, ...]], list[int]]
"""A node's seat in the quorum (`QuorumSnapshot`), its image's offset, how many topics it hosts, its replicas, and where
those that lead believe that their followers' logs end."""
LEADS = 5
"""Where it stands in what is seen of a replica whether it leads."""
NOTHING_SEEN: Glance = (), -1, -1, [], []


class Replica:
    """One hosted replica as it was last seen."""

    __slots__ = ("before", "copy", "hosted", "known", "log", "recovery_point", "shard", "state", "view")

    def __init__(self, hosted: Hosted, known: Known, copy: Copy) -> None:
        self.hosted, self.state, self.log = hosted, hosted.state, hosted.log
        self.known, self.copy = known, copy
        self.before: tuple[Any, ...] = ()
        """What the last glance saw of it."""
        self.recovery_point = -1, -1
        """With the generation of the log, as seen last."""
        self.view: View | None = None
        self.shard: Any = None
        """The coordinator's shard on it that was seen last."""


class Node:
    """One node as it was last seen."""

    __slots__ = (
        "before",
        "broker",
        "by_id",
        "due",
        "id",
        "image",
        "incarnation",
        "inspect",
        "loading",
        "looked_at",
        "places",
        "quorum",
        "replicas",
        "shards",
        "sim",
    )

    def __init__(self, sim: sight.SimNode) -> None:
        self.sim, self.id = sim, sim.id
        self.broker: Any = None
        self.incarnation = -1
        self.image: Any = None
        self.host(())
        self.places: dict[Place, Replica] = {}
        self.before = NOTHING_SEEN
        """What the last glance saw."""
        self.due = inf
        """When the seat of one that leads is looked at again, whatever happens."""
        self.shards: Mapping[type, Mapping[int, Any]] = {}
        """The coordinators' shards on it, by the kind of their log's journal and by partition."""
        self.loading: list[Replica] = []
        """Replicas whose shard is being loaded."""

    def host(self, replicas: Iterable[Replica]) -> None:
        """These are its replicas now. What is looked at of them after every event is at hand."""
        self.replicas = list(replicas)
        self.looked_at = [(each.state, each.log) for each in self.replicas]

    def now_runs(self, broker: Any) -> None:
        """Keep at hand what is looked at after every event."""
        self.image, self.by_id = broker.feed.image, broker.replicas.by_id
        self.quorum, self.inspect = broker.control.quorum, broker.control.quorum.inspect
        self.shards = {Journal: broker.transactions.shards, GroupJournal: broker.groups.shards}
        self.loading = []
        self.before = NOTHING_SEEN

    def glance(self) -> Glance:
        """What changes where anything changes that is to be looked at."""
        # Each attribute by its name, and no call for each replica: `attrgetter` and `append` take twice as long.
        looked_at = self.looked_at
        replicas = [
            (
                state.high_watermark,
                state.log_end_offset,
                state.partition_epoch,
                state.maximal_isr,
                state.isr,
                state.is_leader,
                log.log_end_offset,
                log.generation,
                log.log_start_offset,
            )
            for state, log in looked_at
        ]
        believed = [
            each.log_end_offset for state, _ in looked_at if state.is_leader for each in state.followers.values()
        ]
        return self.inspect(), self.image.offset, len(self.by_id), replicas, believed

    def believers(self, before: Glance, now: Glance) -> list[Replica]:
        """Replicas that lead and believe something else of their followers' logs than before; more where others lead
        than before.
        """
        leaders = [replica for replica in self.replicas if replica.state.is_leader for _ in replica.state.followers]
        *_, seen_before, believed_before = before
        *_, seen_now, believed_now = now
        if len(believed_now) != len(believed_before) or [s[LEADS] for s in seen_now] != [s[LEADS] for s in seen_before]:
            return leaders
        beliefs = zip(leaders, believed_before, believed_now, strict=True)
        return [replica for replica, earlier, later in beliefs if earlier != later]
