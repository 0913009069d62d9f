"""Settings altered at run time."""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.cluster.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from squall.broker.config import ConfigOp, alter_list
from squall.broker.config.settings import ConfigType, Setting
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import alter_configs as legacy_wire
from squall.broker.protocol.schema import incremental_alter_configs as wire
from squall.broker.protocol.schema.metadata_records import ConfigRecord
from tests.support.brokers.controller_harness import ControllerHarness

TOPIC_T = (TOPIC_RESOURCE, "t")
EVERY_BROKER = (BROKER_RESOURCE, "")


def prepared() -> ControllerHarness:
    harness = ControllerHarness()
    harness.topic("t", [1, 2], retention_ms="1000")
    return harness


def alter(
    harness: ControllerHarness,
    resource: tuple[int, str],
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> ErrorCode:
    configs = [wire.AlterableConfig(name=name, config_operation=op, value=value) for name, op, value in changes]
    asked = wire.AlterConfigsResource(resource_type=resource[0], resource_name=resource[1], configs=configs)
    request = wire.IncrementalAlterConfigsRequest(resources=[asked], validate_only=validate_only)
    (response,) = harness.do(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses
    assert (response.error_message is None) == (response.error_code == 0)
    return ErrorCode(response.error_code)


def replace(harness: ControllerHarness, resource: tuple[int, str], **values: str) -> ErrorCode:
    configs = [legacy_wire.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    asked = legacy_wire.AlterConfigsResource(resource_type=resource[0], resource_name=resource[1], configs=configs)
    (response,) = harness.do(ApiKey.ALTER_CONFIGS, legacy_wire.AlterConfigsRequest(resources=[asked])).responses
    return ErrorCode(response.error_code)


def test_a_setting_is_set_and_deleted_and_the_others_stay() -> None:
    harness = prepared()
    assert alter(harness, TOPIC_T, ("min.insync.replicas", ConfigOp.SET, "2")) == ErrorCode.NONE
    assert harness.image.configs[TOPIC_T] == {"retention.ms": "1000", "min.insync.replicas": "2"}
    assert alter(harness, TOPIC_T, ("retention.ms", ConfigOp.DELETE, None)) == ErrorCode.NONE
    assert harness.image.configs[TOPIC_T] == {"min.insync.replicas": "2"}


def test_lists_grow_and_shrink() -> None:
    harness = prepared()
    assert alter(harness, TOPIC_T, ("cleanup.policy", ConfigOp.APPEND, "compact")) == ErrorCode.NONE
    assert harness.image.configs[TOPIC_T]["cleanup.policy"] == "delete,compact"
    assert alter(harness, TOPIC_T, ("cleanup.policy", ConfigOp.SUBTRACT, "delete")) == ErrorCode.NONE
    assert harness.image.configs[TOPIC_T]["cleanup.policy"] == "compact"
    assert alter(harness, TOPIC_T, ("retention.ms", ConfigOp.APPEND, "5")) == ErrorCode.INVALID_CONFIG


def test_all_changes_of_a_resource_are_made_or_none() -> None:
    harness = prepared()
    changes = (("min.insync.replicas", ConfigOp.SET, "2"), ("retention.ms", ConfigOp.SET, "soon"))
    assert alter(harness, TOPIC_T, *changes) == ErrorCode.INVALID_CONFIG
    assert harness.image.configs[TOPIC_T] == {"retention.ms": "1000"}


def test_an_unchanged_setting_writes_nothing() -> None:
    harness = prepared()
    before = len(harness.log)
    assert alter(harness, TOPIC_T, ("retention.ms", ConfigOp.SET, "1000")) == ErrorCode.NONE
    assert len(harness.log) == before


def test_a_change_may_be_tried() -> None:
    harness = prepared()
    change = ("retention.ms", ConfigOp.SET, "5")
    assert alter(harness, TOPIC_T, change, validate_only=True) == ErrorCode.NONE
    assert harness.image.configs[TOPIC_T] == {"retention.ms": "1000"}


def test_what_cannot_be_altered_is_refused() -> None:
    harness = prepared()
    change = ("retention.ms", ConfigOp.SET, "5")
    assert alter(harness, (TOPIC_RESOURCE, "u"), change) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(harness, (TOPIC_RESOURCE, "u u"), change) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert alter(harness, (TOPIC_RESOURCE, ""), change) == ErrorCode.INVALID_REQUEST
    assert alter(harness, (BROKER_RESOURCE, "one"), change) == ErrorCode.INVALID_REQUEST
    assert alter(harness, (BROKER_RESOURCE, "9"), change) == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert alter(harness, (99, "x"), change) == ErrorCode.INVALID_REQUEST
    assert alter(harness, TOPIC_T, ("no.such", ConfigOp.SET, "5")) == ErrorCode.INVALID_CONFIG
    assert alter(harness, TOPIC_T, ("retention.ms", ConfigOp.SET, None)) == ErrorCode.INVALID_REQUEST
    assert alter(harness, TOPIC_T, ("retention.ms", 9, "5")) == ErrorCode.INVALID_REQUEST
    assert alter(harness, TOPIC_T, change, change) == ErrorCode.INVALID_REQUEST
    assert alter(harness, EVERY_BROKER, ("node.id", ConfigOp.SET, "5")) == ErrorCode.INVALID_REQUEST
    assert alter(harness, EVERY_BROKER, ("min.insync.replicas", ConfigOp.SET, "0")) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("group.share.max.size", ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically"),
        (
            "group.share.assignment.interval.ms",
            ErrorCode.INVALID_CONFIG,
            "that Squall lacks: there are no share groups",
        ),
        ("ssl.keystore.location", ErrorCode.INVALID_CONFIG, "that Squall lacks: TLS is not spoken"),
        ("max.connection", ErrorCode.INVALID_CONFIG, "unknown setting max.connection: did you mean max.connections?"),
    ],
)
def test_brokers_settings_that_only_kafka_has_are_told_apart_from_unknown_ones(
    name: str, error: ErrorCode, said: str
) -> None:
    change = wire.AlterableConfig(name=name, config_operation=ConfigOp.SET, value="5")
    resource = wire.AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configs=[change])
    request = wire.IncrementalAlterConfigsRequest(resources=[resource])
    (response,) = prepared().do(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses
    assert response.error_code == error
    assert said in response.error_message


def test_what_only_tiered_storage_needs_is_kept_of_a_topic_and_tiered_storage_is_refused() -> None:
    harness = prepared()
    assert alter(harness, TOPIC_T, ("local.retention.ms", ConfigOp.SET, "5")) == ErrorCode.NONE
    assert alter(harness, TOPIC_T, ("remote.storage.enable", ConfigOp.SET, "true")) == ErrorCode.INVALID_CONFIG
    assert alter(harness, TOPIC_T, ("no.such", ConfigOp.DELETE, None)) == ErrorCode.NONE
    assert harness.image.configs[TOPIC_T] == {"retention.ms": "1000", "local.retention.ms": "5"}


def test_settings_of_groups_and_of_subscriptions_are_kept_and_what_is_gone_leaves_nothing() -> None:
    harness = prepared()
    group, subscription = (GROUP_RESOURCE, "g"), (CLIENT_METRICS_RESOURCE, "m")
    assert alter(harness, group, ("consumer.session.timeout.ms", ConfigOp.SET, "50000")) == ErrorCode.NONE
    assert alter(harness, subscription, ("interval.ms", ConfigOp.SET, "1000")) == ErrorCode.NONE
    assert harness.image.configs[group] == {"consumer.session.timeout.ms": "50000"}
    assert harness.image.configs[subscription] == {"interval.ms": "1000"}
    assert alter(harness, group, ("consumer.session.timeout.ms", ConfigOp.SET, "1")) == ErrorCode.INVALID_CONFIG
    assert alter(harness, subscription, ("interval.ms", ConfigOp.SET, "1")) == ErrorCode.INVALID_REQUEST
    assert alter(harness, (GROUP_RESOURCE, ""), ("x", ConfigOp.SET, "1")) == ErrorCode.INVALID_REQUEST
    assert alter(harness, group, ("consumer.session.timeout.ms", ConfigOp.DELETE, None)) == ErrorCode.NONE
    assert group not in harness.image.configs


@pytest.mark.parametrize("replacing", [False, True])
def test_the_settings_of_a_request_have_so_many_characters_and_no_more(replacing: bool) -> None:
    """Reading four megabytes of patterns, or of lists, stopped the controller."""
    harness = prepared()
    match = "client_id=" + 990 * "a"

    def answers(first: int, last: int) -> list[int]:
        of: Any = legacy_wire if replacing else wire
        key = ApiKey.ALTER_CONFIGS if replacing else ApiKey.INCREMENTAL_ALTER_CONFIGS
        kind = legacy_wire.AlterConfigsRequest if replacing else wire.IncrementalAlterConfigsRequest
        asked = [
            of.AlterConfigsResource(
                resource_type=CLIENT_METRICS_RESOURCE,
                resource_name=f"m{nth}",
                configs=[of.AlterableConfig(name="match", value=match)],
            )
            for nth in range(first, last)
        ]
        request: Any = kind(resources=asked)
        return [each.error_code for each in harness.do(key, request).responses]

    assert answers(0, 501) == [ErrorCode.POLICY_VIOLATION] * 501
    assert answers(0, 400) == [ErrorCode.NONE] * 400
    # What is there counts too, because it may be read again.
    assert answers(200, 500) == [ErrorCode.NONE] * 300
    assert answers(200, 500) == [ErrorCode.POLICY_VIOLATION] * 300
    assert answers(200, 400) == [ErrorCode.NONE] * 200


@pytest.mark.parametrize("replacing", [False, True])
def test_a_request_that_makes_more_than_10000_changes_is_refused(replacing: bool) -> None:
    """16,000 groups stopped the controller for 0.7 s. Kafka's BoundedList has the same limit."""
    harness = prepared()
    of: Any = legacy_wire if replacing else wire
    key = ApiKey.ALTER_CONFIGS if replacing else ApiKey.INCREMENTAL_ALTER_CONFIGS
    kind = legacy_wire.AlterConfigsRequest if replacing else wire.IncrementalAlterConfigsRequest
    timeout = of.AlterableConfig(name="consumer.session.timeout.ms", value="50000")

    def answers(groups: int, empty: int) -> set[tuple[int, str]]:
        named = [of.AlterConfigsResource(GROUP_RESOURCE, f"g{nth}", [timeout]) for nth in range(groups)]
        named += [of.AlterConfigsResource(GROUP_RESOURCE, f"e{nth}", []) for nth in range(empty)]
        request: Any = kind(resources=named)
        told = harness.do(key, request).responses
        assert len(told) == groups + empty
        return {(each.error_code, each.error_message) for each in told}

    too_large = {(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")}
    assert answers(9_900, 100) == {(ErrorCode.NONE, None)}
    assert answers(9_900, 101) == too_large


@pytest.mark.parametrize("replacing", [False, True])
def test_a_request_whose_records_would_have_too_many_long_names_is_refused(replacing: bool) -> None:
    """Each record has its resource's name: two thousand groups with names of 32 KB and five settings each were one
    batch of 330 MB, and another controller takes 100 MB at once.
    """
    harness = prepared()
    of: Any = legacy_wire if replacing else wire
    key = ApiKey.ALTER_CONFIGS if replacing else ApiKey.INCREMENTAL_ALTER_CONFIGS
    kind = legacy_wire.AlterConfigsRequest if replacing else wire.IncrementalAlterConfigsRequest
    both = ("consumer.session.timeout.ms", "50000"), ("consumer.heartbeat.interval.ms", "6000")
    settings = [of.AlterableConfig(name=name, value=value) for name, value in both]

    def answers(groups: int, given: list[Any]) -> set[int]:
        named = [of.AlterConfigsResource(GROUP_RESOURCE, f"{nth:03}" + "g" * 32_000, given) for nth in range(groups)]
        return {each.error_code for each in harness.do(key, kind(resources=named)).responses}

    assert answers(132, settings) == {ErrorCode.POLICY_VIOLATION}
    assert answers(130, settings) == {ErrorCode.NONE}
    assert answers(130, settings[:1]) == {ErrorCode.POLICY_VIOLATION}, "settings that go are written, too"
    assert answers(130, []) == {ErrorCode.NONE}


THROTTLED = "leader.replication.throttled.replicas"


def test_a_list_grows_to_what_every_node_can_read_and_can_be_cut_and_deleted_there() -> None:
    """Two appends of 20 KB made a record that no node could read: all of them ended, and ended again after a start."""
    harness = prepared()
    for part in range(4):
        items = ",".join(f"{nth}:1" for nth in range(part * 1500, part * 1500 + 1500))
        error = alter(harness, TOPIC_T, (THROTTLED, ConfigOp.APPEND, items))
        assert error == (ErrorCode.INVALID_CONFIG if part == 3 else ErrorCode.NONE), part
    written = [record for _, record in harness.log if isinstance(record, ConfigRecord)]
    assert [ConfigRecord.decode(memoryview(record.encode(0)), 0, 0)[0] for record in written] == written
    kept = harness.image.configs[TOPIC_T][THROTTLED]
    assert 30_000 < len(kept) <= 0x7FFF
    assert alter(harness, TOPIC_T, (THROTTLED, ConfigOp.SUBTRACT, "0:1,1:1")) == ErrorCode.NONE
    assert harness.image.configs[TOPIC_T][THROTTLED] == kept.removeprefix("0:1,1:1,")
    assert alter(harness, TOPIC_T, (THROTTLED, ConfigOp.DELETE, None)) == ErrorCode.NONE


def test_to_cut_a_long_list_by_another_takes_few_steps() -> None:
    """Each of the one was compared with each of the other: 4 MB of lists took 20 s."""

    class Item(str):
        compared = 0
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Item.compared += 1
            return str.__eq__(self, other)

    setting = Setting("list", ConfigType.LIST, (), item=Item)
    there, gone = (",".join(f"{nth}:1" for nth in numbers) for numbers in (range(3000), range(2000, 5000)))
    assert alter_list(setting, there, ConfigOp.SUBTRACT, gone) == ",".join(f"{nth}:1" for nth in range(2000))
    assert Item.compared < 10_000


def test_a_resource_named_twice_is_not_altered() -> None:
    harness = prepared()
    asked = wire.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t")
    request = wire.IncrementalAlterConfigsRequest(resources=[asked, asked])
    responses = harness.do(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses
    assert [response.error_code for response in responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_a_topic_is_asked_before_the_brokers_and_one_broker_before_all() -> None:
    harness = prepared()
    asked = harness.settings.min_insync_replicas
    assert asked(harness.image, "t") == 1
    alter(harness, EVERY_BROKER, ("min.insync.replicas", ConfigOp.SET, "2"))
    assert asked(harness.image, "t") == 2
    alter(harness, (BROKER_RESOURCE, "1"), ("min.insync.replicas", ConfigOp.SET, "3"))
    assert asked(harness.image, "t") == 3
    alter(harness, TOPIC_T, ("min.insync.replicas", ConfigOp.SET, "4"))
    assert asked(harness.image, "t") == 4
    alter(harness, TOPIC_T, ("min.insync.replicas", ConfigOp.DELETE, None))
    alter(harness, (BROKER_RESOURCE, "1"), ("min.insync.replicas", ConfigOp.DELETE, None))
    assert asked(harness.image, "t") == 2


def test_lists_of_brokers_grow_and_shrink() -> None:
    harness = prepared()
    alter(harness, EVERY_BROKER, ("log.cleanup.policy", ConfigOp.SET, "delete"))
    alter(harness, EVERY_BROKER, ("log.cleanup.policy", ConfigOp.APPEND, "compact"))
    assert harness.image.configs[EVERY_BROKER] == {"log.cleanup.policy": "delete,compact"}
    alter(harness, EVERY_BROKER, ("log.cleanup.policy", ConfigOp.SUBTRACT, "delete"))
    assert harness.image.configs[EVERY_BROKER] == {"log.cleanup.policy": "compact"}
    assert alter(harness, EVERY_BROKER, ("min.insync.replicas", ConfigOp.APPEND, "2")) == ErrorCode.INVALID_CONFIG
    alter(harness, EVERY_BROKER, ("log.cleanup.policy", ConfigOp.DELETE, None))
    assert EVERY_BROKER not in harness.image.configs


def test_the_older_request_replaces_all_settings() -> None:
    harness = prepared()
    assert replace(harness, TOPIC_T, min_insync_replicas="2") == ErrorCode.NONE
    assert harness.image.configs[TOPIC_T] == {"min.insync.replicas": "2"}
    assert replace(harness, TOPIC_T) == ErrorCode.NONE
    assert TOPIC_T not in harness.image.configs
    assert replace(harness, TOPIC_T, retention_ms="soon") == ErrorCode.INVALID_CONFIG
    assert replace(harness, (TOPIC_RESOURCE, "u")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_limit_that_locks_everybody_out_is_refused_and_one_of_an_earlier_version_can_be_deleted() -> None:
    harness = prepared()
    for resource in (EVERY_BROKER, (BROKER_RESOURCE, "1")):
        for name in ("max.connections", "max.connections.per.ip"):
            assert alter(harness, resource, (name, ConfigOp.SET, "0")) == ErrorCode.INVALID_REQUEST
            harness.image.configs[resource] = {name: "0"}
            assert alter(harness, TOPIC_T, ("retention.ms", ConfigOp.SET, "2000")) == ErrorCode.NONE
            assert alter(harness, resource, (name, ConfigOp.DELETE, None)) == ErrorCode.NONE
            assert name not in harness.image.configs.get(resource, {})
