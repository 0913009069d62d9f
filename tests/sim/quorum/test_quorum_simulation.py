"""Raft's safety properties hold in many random histories, and planted bugs break them."""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.protocol.ids import NO_NODE
from squall.broker.quorum.election import Role
from squall.broker.quorum.leadership import LeaderState
from squall.broker.quorum.local_log import LocalLogModel
from squall.broker.quorum.log_extent import LogExtent
from squall.broker.quorum.messages import Diverging, Vote
from squall.broker.quorum.raft import Raft
from squall.broker.quorum.state import QuorumState
from tests.sim.quorum.campaigns import campaign
from tests.sim.quorum.nodes import Node
from tests.sim.quorum.world import Violation, World

SEEDS = range(100)
HUNT = range(1000, 1200)


@pytest.mark.night("goes through many seeds")
@pytest.mark.parametrize("voters", [3, 5])
def test_promises_hold_under_faults_and_all_nodes_agree_after_them(voters: int) -> None:
    committed = epochs = installed = 0
    for seed in SEEDS:
        world = campaign(seed, voters)
        installed += world.installed
        committed += len(world.committed)
        epochs += len(world.leaders)
    assert committed > 20 * len(SEEDS), "hardly anything was exercised"
    assert epochs > 3 * len(SEEDS)
    assert installed > len(SEEDS) // 4, "hardly any node was so far behind that it needed a snapshot"


@pytest.mark.gate
def test_one_seed_tells_one_story() -> None:
    assert campaign(7, 3).story == campaign(7, 3).story
    assert campaign(7, 3).story != campaign(8, 3).story


@pytest.mark.gate
def test_a_fresh_cluster_elects_in_well_under_a_second() -> None:
    for seed in range(50):
        world = World(seed, 3)
        world.start()  # Nodes start up to 300 ms apart.
        assert world.run(1000, until=world.converged), f"seed {seed}"
        assert max(world.leaders) <= 2


@pytest.mark.gate
def test_a_leader_that_is_gone_is_succeeded_in_one_round_of_votes() -> None:
    for seed in range(100):
        world = World(seed, 3)
        world.start()
        assert world.run(20_000, until=world.converged)
        gone = world.leader()
        assert gone is not None
        world.run(2000 + seed)
        before = max(world.leaders)
        gone.stop(lose_power=False)
        world.run(3000, until=lambda before=before, world=world: max(world.leaders) > before)
        assert max(world.leaders) == before + 1, f"seed {seed}: an epoch went by without a leader"


# -------------------------------------------------------------------------------------------------------- planted bugs


def _do_not_persist(world: World, node: Node, state: QuorumState) -> None:
    """Keep epoch and vote in memory only."""


def _count_unsynced(self: LeaderState, own_synced_offset: int) -> int:
    own = max(own_synced_offset, *(replica.end_offset for replica in self.voters.values()))
    return _committed_offset(self, own)


_committed_offset = LeaderState.committed_offset


def _never_resign(self: Raft, now_ms: int) -> None:
    self.member.deadline_ms = now_ms + 1000


def _grant_to_shorter_log(self: Raft, vote: Vote, candidate: int, now_ms: int) -> bool:
    if vote.pre_vote:
        return not self._hears_leader(now_ms)
    return self.member.state.leader_id == NO_NODE and self.member.state.voted_id in (NO_NODE, candidate)


def _truncate_to_high_watermark(self: LocalLogModel, diverging: Diverging, high_watermark: int) -> int:
    return _truncate(self, Diverging(self.extent.last_epoch, high_watermark), high_watermark)


_truncate = LocalLogModel.truncate


def _lead_again_after_restart(self: Raft, now_ms: int) -> None:
    if self.member.state.leader_id == self.node_id:
        self.member.role = Role.CANDIDATE
        self.member.become_leader(now_ms, ())
    else:
        _boot(self, now_ms)


_boot = Raft._boot


def _has_everything(self: LogExtent, offset: int, last_epoch: int) -> bool:
    return False


BUGS: dict[str, tuple[type, str, Any, str]] = {
    "epoch and vote are not persisted": (World, "persist", _do_not_persist, "NeverTwoLeadersInSameEpoch"),
    "no check-quorum": (Raft, "_check_quorum", _never_resign, "StaleLeaderResigns"),
    "votes for shorter logs": (Raft, "_may_grant", _grant_to_shorter_log, "LeaderCompleteness"),
    "the leader counts itself before its sync": (LeaderState, "committed_offset", _count_unsynced, "DurableMajority"),
    "leads on after a restart": (Raft, "_boot", _lead_again_after_restart, "NeverTwoLeadersInSameEpoch"),
    "believes to hold what only its snapshot holds": (LogExtent, "has_left", _has_everything, "no longer holds"),
    "truncates to the high watermark": (LocalLogModel, "truncate", _truncate_to_high_watermark, "LeaderCompleteness"),
}
"""Each bug: a class, the name of its method, the wrong method, and the property that breaks."""


@pytest.mark.gate
@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, wrong, promise = BUGS[bug]
    monkeypatch.setattr(owner, name, wrong)
    for seed in HUNT:
        try:
            campaign(seed, 5 if seed % 2 else 3)
        except Violation as violation:
            if promise in str(violation).splitlines()[0]:
                return
    pytest.fail(f"{len(HUNT)} campaigns did not notice: {bug}")
