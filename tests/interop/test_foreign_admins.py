"""Elections, reassignments, features and quorum descriptions by confluent-kafka and kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the clients themselves
DEADLINE_S = 30.0


def eventually(holds: Callable[[], Any]) -> Any:
    """Wait until `holds` returns something true, and return that."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


@pytest.fixture
def admin(cluster: Any) -> Any:
    from kafka.admin import KafkaAdminClient

    made = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield made
    made.close()


def test_confluent_kafka_elects_preferred_leaders(cluster: Any) -> None:
    from confluent_kafka import ElectionType, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("elected", 1, 3)])["elected"].result(20)

    def told() -> Any:
        return admin.list_topics("elected", 20).topics["elected"].partitions[0]

    def elect() -> Any:
        [error] = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("elected", 0)]).result(20).values()
        return error and error.name()

    preferred = eventually(lambda: told().leader)
    assert elect() == "ELECTION_NOT_NEEDED"
    assert admin.elect_leaders(ElectionType.PREFERRED, None).result(20) == {}
    cluster.kill(preferred)
    eventually(lambda: told().leader not in (-1, preferred))
    assert elect() == "PREFERRED_LEADER_NOT_AVAILABLE"
    cluster.restart(preferred)
    eventually(lambda: sorted(told().isrs) == [1, 2, 3])
    assert elect() is None
    eventually(lambda: told().leader == preferred)


def test_kafka_python_moves_partitions_and_elects(admin: Any) -> None:
    from kafka import TopicPartition
    from kafka.admin import NewTopic

    place = TopicPartition("moved", 0)
    admin.create_topics([NewTopic("moved", -1, -1, replica_assignments={0: [1, 2]})])
    assert admin.alter_partition_reassignments({place: [3, 1]}) == {place: None}
    eventually(lambda: not admin.list_partition_reassignments([place]))

    def described() -> Any:
        [topic] = admin.describe_topics(["moved"])
        return topic["partitions"][0]

    eventually(lambda: sorted(described()["isr_nodes"]) == [1, 3])
    assert described()["replica_nodes"] == [3, 1]
    admin.elect_leaders(0, {"moved": [0]})
    eventually(lambda: described()["leader_id"] == 3)


def test_kafka_python_describes_the_quorum_and_sets_features(admin: Any) -> None:
    from kafka.admin import UpdateFeatureType

    [topic] = admin.describe_metadata_quorum()["topics"]
    [quorum] = topic["partitions"]
    assert quorum["error"] is None
    assert sorted(voter["replica_id"] for voter in quorum["current_voters"]) == [1, 2, 3]
    feature = "eligible.leader.replicas.version"
    assert admin.describe_features()[feature]["supported"] == (0, 1)
    assert admin.update_features({feature: 1}) == {feature: "OK"}
    eventually(lambda: admin.describe_features()[feature].get("finalized") == (1, 1))
    admin.update_features({feature: (UpdateFeatureType.SAFE_DOWNGRADE, 0)})
    eventually(lambda: "finalized" not in admin.describe_features()[feature])
