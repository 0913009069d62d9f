"""What the benchmark measures of groups has happened: members own and read, committers commit, on a cluster of ours."""

from __future__ import annotations

from typing import Any

import pytest

from bench import groups
from bench.clusters import Squall
from bench.groups import commits, reading, rebalance


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_and_one_more_get_records(cluster: Squall, protocol: str) -> None:
    found = rebalance(cluster, 2, protocol)
    assert found.all_s > 0
    assert found.more_s > 0


def test_a_partition_of_two_members_is_no_figure(cluster: Squall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "PATIENCE_S", 0.0)
    with pytest.raises(RuntimeError, match="members"):
        rebalance(cluster, 2, "classic")


def test_commits_are_counted_and_stay(cluster: Squall) -> None:
    found = commits(cluster, 2, 0.5)
    assert found.per_s > 0
    assert 0 < found.p50_ms <= found.p99_ms


def test_a_coordinator_that_forgets_a_commit_is_no_figure(cluster: Squall, monkeypatch: pytest.MonkeyPatch) -> None:
    at: Any = groups._at
    monkeypatch.setattr(groups, "_at", lambda place, offset: at(place, 0))
    with pytest.raises(RuntimeError, match="committed last, and the coordinator tells 0"):
        commits(cluster, 1, 0.2)


def test_members_get_each_record_once(cluster: Squall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "READ_MB", 5)
    assert reading(cluster, 2).mb_s > 0
