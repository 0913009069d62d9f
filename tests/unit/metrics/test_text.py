"""The text of metrics is read by prometheus-client's own parser of OpenMetrics."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from squall.broker.metrics.text import MetricFamily, exposition


def read(*families: MetricFamily) -> dict[str, Any]:
    text = exposition(list(families)).decode()
    return {each.name: each for each in text_string_to_metric_families(text)}


def test_each_kind_is_read_back_with_its_help_and_samples() -> None:
    gauge = MetricFamily("g", "gauge", "A gauge.").add(1, topic="a").add(2.5, topic="b")
    counter = MetricFamily("c", "counter", "Two\nlines.").add(7)
    summary = MetricFamily("s_seconds", "summary", "A sum.")
    summary.add(3, "_count", request="Fetch").add(0.25, "_sum", request="Fetch")
    info = MetricFamily("i", "info", "An info.").add(1, node_id=4)
    found = read(gauge, counter, summary, info)
    assert {name: each.type for name, each in found.items()} == {
        "g": "gauge", "c": "counter", "s_seconds": "summary", "i": "info",
    }  # fmt: skip
    assert {tuple(each.labels.values()): each.value for each in found["g"].samples} == {("a",): 1, ("b",): 2.5}
    assert found["c"].documentation == "Two\nlines."
    assert [(each.name, each.value) for each in found["c"].samples] == [("c_total", 7)]
    assert [each.name for each in found["s_seconds"].samples] == ["s_seconds_count", "s_seconds_sum"]
    assert found["i"].samples[0].labels == {"node_id": "4"}


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "a\\nb", "", "ü,{}="])
def test_a_label_may_have_any_text(value: str) -> None:
    assert read(MetricFamily("g", "gauge", "A.").add(1, name=value))["g"].samples[0].labels == {"name": value}


def test_a_family_without_samples_and_a_text_without_families_are_read() -> None:
    assert read(MetricFamily("g", "gauge", "A."))["g"].samples == []
    assert read() == {}
