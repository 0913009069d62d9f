"""Checks what a cluster that is not ours says of itself."""

from __future__ import annotations

from squall.broker.protocol.apis import ApiKey, request_class
from squall.broker.protocol.schema.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.plan import PlanError, make_plan
from squall.chaos.runs.target_facts import capabilities_of, compare, unsupported_faults


def speaks(*keys: ApiKey, high: int = 99) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[ApiVersion(int(key), 0, high) for key in keys],
        finalized_features=[FinalizedFeatureKey("metadata.version", 30, 30)],
    )


def test_versions_in_common_are_those_of_both_and_the_rest_is_lacking() -> None:
    target = capabilities_of(speaks(ApiKey.PRODUCE, ApiKey.FETCH))
    assert target.apis["FETCH"][1] == request_class(ApiKey.FETCH).MAX_VERSION
    assert "ELECT_LEADERS" in target.lacks
    assert target.features == {"metadata.version": 30}


def test_an_api_whose_versions_do_not_overlap_is_lacking() -> None:
    target = capabilities_of(speaks(ApiKey.PRODUCE, high=-1))
    assert "PRODUCE" in target.lacks
    assert "PRODUCE" not in target.apis


def test_settings_that_brokers_do_not_have_or_have_otherwise_are_told() -> None:
    target = capabilities_of(speaks(ApiKey.PRODUCE))
    target.unknown_settings = ["squall.parked.bytes"]
    compare(target, {"a.ms": "1", "b.ms": "2", "c": "TRUE", "d": "4"}, {"a.ms": "1", "b.ms": "3", "c": "true"})
    assert target.unknown_settings == ["d", "squall.parked.bytes"]
    assert target.other_settings == {"b.ms": "3"}
    assert any("b.ms = 3" in line for line in target.lines())


def test_brokers_that_tell_no_settings_are_not_said_to_lack_them() -> None:
    target = capabilities_of(speaks(ApiKey.PRODUCE))
    compare(target, {"a.ms": "1"}, {})
    assert target.unknown_settings == []


def refusal(**values: object) -> str:
    try:
        make_plan({"target": "kafka", **values})
    except PlanError as error:
        return str(error)
    return ""


def test_a_plan_for_kafka_takes_settings_that_only_kafka_knows() -> None:
    settings = {"cluster": {"settings": {"num.replica.fetchers": "2", "remote.log.manager.thread.pool.size": "1"}}}
    assert refusal(**settings) == ""
    assert refusal(**settings, runtime="sim").startswith("the simulator runs Squall's own broker only")


def test_what_only_our_broker_can_be_made_to_do_is_refused_of_kafka() -> None:
    clock = {"at_s": 1, "duration_s": 1, "action": "clock"}
    resign = {"at_s": 1, "duration_s": 1, "action": "leadership", "params": {"how": "resign"}}
    assert "only Squall's own broker" in refusal(faults=[clock])
    assert "only Squall's own broker" in refusal(faults=[resign])
    assert refusal(faults=[{**resign, "params": {"how": "move"}}]) == ""


def test_settings_are_still_refused_by_name_where_the_brokers_are_ours() -> None:
    assert "no.such.setting" in refusal(target="squall", cluster={"settings": {"no.such.setting": "1"}})


def test_what_cannot_land_for_want_of_an_api_is_told_beforehand() -> None:
    listed = [("leadership", {"how": "move"}), ("leadership", {"how": "preferred"}), ("kill", {})]
    faults = [make_fault(number, 1, 1, action, "random", params) for number, (action, params) in enumerate(listed)]
    assert unsupported_faults(capabilities_of(speaks(ApiKey.ELECT_LEADERS)), faults) == [
        "fault 0 (leadership) cannot land: it does not speak ALTER_PARTITION_REASSIGNMENTS"
    ]
    assert len(unsupported_faults(capabilities_of(speaks()), faults)) == 2
    assert (
        unsupported_faults(capabilities_of(speaks(ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS)), faults)
        == []
    )
