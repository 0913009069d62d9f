"""`squall run --metrics 0`: a client can scrape metrics of the run until it ends."""

from __future__ import annotations

import re
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.live.shell.conftest import Squall

pytestmark = pytest.mark.night("whole runs; the gate has one")

RUN = ("run", "--seed", "7", "--time", "60", "--warmup", "1", "--faults", "none", "--rate", "200", "--metrics", "0")


def scraped(url: str) -> dict[tuple[str, ...], float]:
    """Return the samples by (name, label values)."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def scraped_when(url: str, acknowledged: int, limit_s: float = 30) -> dict[tuple[str, ...], float]:
    """Return the metrics once `acknowledged` sends were acknowledged, and the run has measured both the brokers'
    processes and the brokers (it does so in separate rounds). Raises AssertionError after the limit.
    """
    deadline = time.monotonic() + limit_s
    while True:
        values = scraped(url)
        asked = ("squall_broker_up", "3") in values and any(name == "squall_partition_isr" for name, *_ in values)
        if values["squall_send_outcomes_total", "ok"] >= acknowledged and asked:
            return values
        assert time.monotonic() < deadline, values
        time.sleep(0.1)


def test_metrics_of_a_run_are_there_while_it_goes_on_and_no_longer(tmp_path: Path, started: list[Squall]) -> None:
    squall = Squall(tmp_path, RUN)
    started.append(squall)
    squall.until("] load: ")
    found = re.search(r"metrics: (http://127\.0\.0\.1:\d+/metrics)", squall.said())
    assert found is not None, squall.said()
    values = scraped_when(found[1], 300)
    assert values["squall_phase", "load"] == 1
    assert 20 < values["squall_phase_remaining_seconds",] <= 60
    assert values["squall_send_outcomes_total", "ok"] > 100
    assert values["squall_send_latency_seconds_count",] > 100
    assert [values["squall_broker_up", str(node)] for node in (1, 2, 3)] == [1, 1, 1]
    assert {value for (name, *_), value in values.items() if name == "squall_partition_isr"} == {3}
    squall.send(signal.SIGTERM)
    assert squall.code() == 130, squall.said()
    assert squall.left_behind() == []
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(found[1], timeout=10)
