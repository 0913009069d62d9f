"""Checks that what a library cannot do as a member of a group ends with a sentence, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from squall.workloads.groups import GroupsLoad
from squall.workloads.pipeline import PipelineLoad
from squall.workloads.semantics import SemanticsLoad


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"client": "aiokafka", "group_protocol": "consumer"},
            "group_protocol consumer: aiokafka speaks the classic protocol of groups only",
        ),
        (
            {"client": "kafka-python", "group_protocol": "consumer"},
            "group_protocol consumer: kafka-python speaks the classic protocol of groups only",
        ),
        (
            {"client": "aiokafka", "assignor": "cooperative-sticky"},
            "assignor cooperative-sticky: aiokafka has range and roundrobin only",
        ),
        (
            {"client": "confluent", "session_timeout_ms": 5000},
            "max_poll_interval_ms 4000 is below session_timeout_ms 5000, which confluent refuses",
        ),
        (
            {"client": "kafka-python", "auto_commit": True},
            "auto_commit: kafka-python does not say when it begins to commit by itself",
        ),
    ],
)
def test_what_a_library_cannot_do_is_said_in_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        GroupsLoad(**settings)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("client", "protocol", "assignor"),
    [
        ("squall", "classic", "cooperative-sticky"),
        ("confluent", "classic", "cooperative-sticky"),
        ("kafka-python", "classic", "cooperative-sticky"),
        ("aiokafka", "classic", "range"),
        ("confluent", "consumer", "cooperative-sticky"),
    ],
)
def test_a_library_has_an_assignor_of_its_own_by_default(client: str, protocol: str, assignor: str) -> None:
    assert GroupsLoad(client=client, group_protocol=protocol).assignor == assignor


@pytest.mark.parametrize("load", [PipelineLoad, SemanticsLoad])
def test_several_instances_need_a_library_whose_group_fences_them(load: type[PipelineLoad | SemanticsLoad]) -> None:
    with pytest.raises(ValidationError, match="as nobody's member, so its group fences no instance"):
        load(client="aiokafka")
    assert load(client="aiokafka", instances=1).instance_settings(load.APPLICATIONS[0]).subscriber.member.assignors == (
        "range",
    )
    assert load(client="kafka-python").instances == 2


@pytest.mark.parametrize("load", [PipelineLoad, SemanticsLoad])
def test_libraries_write_in_transactions_of_the_first_generation_and_are_no_zombies(
    load: type[PipelineLoad | SemanticsLoad],
) -> None:
    ours, theirs = load(), load(client="confluent")
    assert (ours.generation, theirs.generation) == (2, 1)
    assert ours.traffic().zombies and not theirs.traffic().zombies
    with pytest.raises(ValidationError, match="speaks generation 1 of transactions only"):
        load(client="confluent", generation=2)
