"""Checks what verdicts take from a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.checkers.plan_facts import BadPlan, facts_of, read_plan


def test_a_topics_own_settings_go_before_the_brokers() -> None:
    plan = facts_of(
        {
            "cluster": {"settings": {"unclean.leader.election.enable": "true", "log.flush.interval.messages": "9"}},
            "workload": {
                "min_isr": 2,
                "replication_factor": 3,
                "topic_settings": {
                    "unclean.leader.election.enable": "false",
                    "flush.messages": "1",
                    "min.insync.replicas": "1",
                },
            },
        }
    ).configuration
    assert (plan.unclean, plan.flush_messages, plan.min_isr) == (False, 1, 1)


def test_the_brokers_settings_hold_where_a_topic_has_none() -> None:
    settings = {"unclean.leader.election.enable": "true", "log.flush.interval.messages": "1"}
    plan = facts_of({"cluster": {"settings": settings}, "workload": {}}).configuration
    assert (plan.unclean, plan.flush_messages) == (True, 1)


def test_acks_all_may_be_written_in_words() -> None:
    assert facts_of({"workload": {"acks": "all"}}).configuration.acks == -1


@pytest.mark.parametrize(
    "plan",
    [
        {},
        {"workload": 3},
        {"workload": {"acks": "some"}},
        {"workload": {}, "expect": "gain"},
        {"workload": {}, "faults": [{}]},
    ],
)
def test_a_plan_that_says_too_little_is_bad(plan: dict[str, Any]) -> None:
    with pytest.raises(BadPlan, match="plan.toml"):
        facts_of(plan)


def test_a_plan_that_is_no_toml_is_bad(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_bytes(b"\xff = ")
    with pytest.raises(BadPlan):
        read_plan(tmp_path)
