"""What a library cannot do as a member of a group ends with a sentence, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from workloads.groups import GroupsLoad


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
