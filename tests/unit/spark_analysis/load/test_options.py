"""The options of the data source, and what is wrong with them."""

from __future__ import annotations

import pytest

from squall.spark_analysis.load.options import EARLIEST, LATEST, OptionError, read_options

GIVEN = {"kafka.bootstrap.servers": "one:9092, two:9093", "subscribe": "a, b,a"}


def test_names_are_read_in_any_case_and_defaults_are_those_of_sparks_kafka_source() -> None:
    batch = read_options({name.upper(): value for name, value in GIVEN.items()}, streams=False)
    assert (batch.bootstrap, batch.topics) == ((("one", 9092), ("two", 9093)), ("a", "b"))
    assert (batch.starting, batch.ending, batch.isolation, batch.fail_on_data_loss) == (EARLIEST, LATEST, 0, True)
    assert read_options(GIVEN, streams=True).starting == LATEST


def test_values_are_read() -> None:
    given = {
        "kafka.bootstrap.servers": "[::1]:9092",
        "assign": '{"a": [0, 2]}',
        "startingOffsets": '{"a": {"0": 23, "2": -2}}',
        "endingOffsets": '{"a": {"0": -1}}',
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "TRUE",
        "extraColumns": "codec,producerId",
        "kafka.fetch.max.bytes": "1000",
    }
    found = read_options(given, streams=False)
    assert found.bootstrap == (("::1", 9092),)
    assert found.partitions == {"a": (0, 2)}
    assert (found.starting, found.ending) == ({"a": {0: 23, 2: -2}}, {"a": {0: -1}})
    assert (found.isolation, found.headers, found.columns) == (1, True, ("producerId", "codec"))
    assert found.client == {"max_bytes": 1000}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"startingOffset": "latest"}, "unknown options: startingOffset; there are assign"),
        ({"subscribePattern": "a.*"}, "one of subscribe, .* given: subscribe, subscribePattern"),
        ({"kafka.bootstrap.servers": "here"}, "here is not HOST:PORT"),
        ({"startingOffsets": "first"}, "startingOffsets=first: not JSON like"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets: a-0 has -3, not a number from -2 to"),
        ({"endingOffsets": "earliest"}, "nothing before the earliest"),
        ({"includeHeaders": "1"}, "includeHeaders=1: true or false"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition=0: a number from 1 to"),
        ({"kafka.fetch.max.bytes": "99999999999"}, "a number from 1 to 2147483647"),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 99999999999999999999}}'}, "not a number from 0 to"),
        ({"maxOffsetsPerTrigger": "5"}, "only a stream has triggers"),
        ({"extraColumns": "size"}, "extraColumns: unknown: size; there are producerId"),
        ({"kafka.isolation.level": "serializable"}, "one of read_uncommitted, read_committed"),
    ],
)
def test_a_mistake_is_named(more: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        read_options({**GIVEN, **more}, streams=False)


@pytest.mark.parametrize(
    "given", ["assign={}", 'assign={"a": [true]}', 'assign={"a": []}', "subscribePattern=", "subscribe=,"]
)
def test_what_names_no_topic_is_refused_and_does_not_mean_all(given: str) -> None:
    name, _, value = given.partition("=")
    with pytest.raises(OptionError, match=f"^{name}"):
        read_options({"kafka.bootstrap.servers": "one:9092", name: value}, streams=False)


def test_what_lacks_is_named() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers lacks"):
        read_options({"subscribe": "a"}, streams=False)
    with pytest.raises(OptionError, match=r"subscribe, subscribePattern, assign .* given: none"):
        read_options({"kafka.bootstrap.servers": "a:1"}, streams=False)
    with pytest.raises(OptionError, match="a stream has no end"):
        read_options({**GIVEN, "endingOffsets": "latest"}, streams=True)
