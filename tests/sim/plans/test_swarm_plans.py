"""Plans that `squall sim --swarm` draws at random."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from squall.chaos.plans import swarm
from squall.chaos.plans.group_scenes import markers_while_loading
from squall.chaos.plans.late_scenes import (
    LATE_SCENES,
    completions_below_min_isr,
    late_ends,
    late_markers,
    late_records,
    lost_answers_to_markers,
    markers_without_a_leader,
    unreplicated_markers,
)
from squall.chaos.plans.scenes import (
    SCENES,
    RarePathScene,
    deletions_with_a_kill,
    flapping_leaders,
    lonely_voter,
    lost_registrations,
    power_behind_rolls,
    power_within_fsyncs,
    refused_proposals,
    restarts_within_a_session,
    rotten_segments,
    slow_follower,
    stale_sessions,
    truncations_within_fsyncs,
)
from squall.chaos.plans.swarm import swarm_plan
from squall.chaos.runs.simulation import simulate

TAKEN = {
    refused_proposals: "ISR proposal failed",
    lost_registrations: "registration lost",
    stale_sessions: "fetch session eviction",
    rotten_segments: "bad records fetched",
    slow_follower: "dedup hit",
    lonely_voter: "metadata log truncated",
    flapping_leaders: "leader elected",
    power_within_fsyncs: "log truncated",
    truncations_within_fsyncs: "log truncated within an fsync",
    deletions_with_a_kill: "leader died while it deleted records",
    restarts_within_a_session: "broker started within its session",
    power_behind_rolls: "power lost just after a roll",
}
AT_LEAST = {flapping_leaders: 10}


@pytest.mark.parametrize("scene", dict.fromkeys(SCENES))
def test_a_scene_takes_the_path_that_it_is_there_for_and_proves_something(
    scene: Callable[[Random], RarePathScene], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swarm, "SCENES", (scene,))
    monkeypatch.setattr(swarm, "SCENE_SHARE", 1.0)
    result = simulate(swarm_plan(1))
    assert result.verdict == "valid", result.reasons
    assert result.counts[TAKEN[scene]] >= AT_LEAST.get(scene, 1)


HIT = {
    late_ends: b'"EndTxn"',
    late_markers: b'"WriteTxnMarkers"',
    late_records: b'"Produce"',
    lost_answers_to_markers: b'"WriteTxnMarkers"',
    unreplicated_markers: b'"WriteTxnMarkers"',
    markers_without_a_leader: b'"WriteTxnMarkers"',
    completions_below_min_isr: b'"WriteTxnMarkers"',
}
"""The requests that the faults of each scene (a drawn combination of faults) affect."""
TAKEN_LATE = {
    late_markers: "marker written before",
    markers_without_a_leader: "marker waits for a leader",
    completions_below_min_isr: "completion refused below min ISR",
}


@pytest.mark.parametrize("scene", LATE_SCENES)
def test_a_scene_of_late_requests_lands_and_proves_something(
    scene: Callable[[Random], RarePathScene], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swarm, "LATE_SCENES", (scene,))
    monkeypatch.setattr(swarm, "LATE_SHARE", 1.0)
    result = simulate(swarm_plan(1, workload="transactions"))
    assert result.verdict == "valid", result.reasons
    if scene in TAKEN_LATE:
        assert result.counts[TAKEN_LATE[scene]] > 0
    hit = [line for line in result.files["nemesis.jsonl"].splitlines() if HIT[scene] in line]
    assert len(hit) >= 2


def test_markers_come_to_a_coordinator_of_groups_that_does_not_serve_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm, "TRANSACTIONAL_GROUP_SCENES", (markers_while_loading,))
    monkeypatch.setattr(swarm, "GROUP_SHARE", 1.0)
    result = simulate(swarm_plan(0, workload="pipeline"))
    assert result.verdict == "valid", result.reasons
    assert result.counts["marker between replay and service"] > 0
