"""Metrics (--metrics) of a whole run in virtual time, from its beginning to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs import simulation
from squall.chaos.runs.metrics import exposition
from squall.chaos.runs.progress import NullProgress
from squall.chaos.runs.run import Run
from squall.chaos.runs.simulation import simulate

pytestmark = pytest.mark.gate

FAULT = {"at_s": 1, "duration_s": 6, "action": "kill", "target": "leader:appends-0-0"}
OPERATIONS = [[-0.5 + number * 0.25, 0, "appends-0", number % 2, 100 + number] for number in range(16)]
PLAN: dict[str, Any] = {
    "seed": 5,
    "runtime": "sim",
    "warmup_s": 0.5,
    "time_s": 9,
    "workload": {"topics": 1, "partitions": 2, "producers": 1, "readers": 1},
    "operations": OPERATIONS,
    "faults": [FAULT],
}


class Seeing(NullProgress):
    """Keeps the metrics at the end of each phase, and after each look of the run at its cluster."""

    view_every_s = 0.2

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[tuple[str, str], float]] = []
        WATCHES.append(self)

    def look(self) -> None:
        families = text_string_to_metric_families(exposition(self.status, 0.0))
        samples = [sample for family in families for sample in family.samples]
        self.seen.append({(each.name, " ".join(each.labels.values())): each.value for each in samples})

    @contextmanager
    def phase(self, name: str, lasts_s: float | None = None) -> Iterator[None]:
        phase = self.status.begin(name, lasts_s)
        yield
        self.look()
        phase.ended = phase.began


WATCHES: list[Seeing] = []


@cache
def watched() -> Seeing:
    """Return what was seen of a run in which a leader is killed."""
    look_around = Run._poll_view

    async def looking(self: Run, observer: Any, every_s: float) -> None:
        view = observer.view

        async def seen() -> Any:
            found = await view()
            WATCHES[-1].look()
            return found

        observer.view = seen
        await look_around(self, observer, every_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "NullProgress", Seeing)
        patch.setattr(Run, "_poll_view", looking)
        result = simulate(make_plan(PLAN))
    assert (result.verdict, result.trouble) == ("valid", None), result.reasons
    return WATCHES[-1]


def series(name: str, labels: str = "") -> list[float]:
    """Return all values of a metric in the order in which they were seen."""
    return [seen[name, labels] for seen in watched().seen if (name, labels) in seen]


def test_every_phase_is_seen() -> None:
    samples = [(key, on) for seen in watched().seen for key, on in seen.items()]
    order = list(dict.fromkeys(phase for (name, phase), on in samples if name == "squall_phase" and on))
    assert order[:4] == ["start the cluster", "create topics", "warm-up", "load"]
    assert order[-2:] == ["final reads", "stop the cluster"]


def test_operations_and_latencies_are_counted_while_the_run_goes_on() -> None:
    acked, sent = series("squall_send_outcomes_total", "ok"), series("squall_sends_total")
    assert acked == sorted(acked) and acked[-1] == sent[-1] == len(OPERATIONS)
    assert 0 < min(each for each in acked if each) < len(OPERATIONS), "not only at the end"
    buckets = series("squall_send_latency_seconds_bucket", "+Inf")
    assert buckets == series("squall_send_latency_seconds_count") == acked
    assert 0 < series("squall_send_latency_seconds_sum")[-1] < 60


def test_a_fault_waits_is_under_way_and_has_landed() -> None:
    states = {state: series("squall_faults", state) for state in ("waiting", "under way", "landed", "not landed")}
    assert max(states["waiting"]) == max(states["under way"]) == states["landed"][-1] == 1
    assert max(states["not landed"]) == 0
    assert max(series("squall_faults_under_way", "kill")) == 1
    due = series("squall_next_fault_seconds")
    assert due == sorted(due, reverse=True) and 0 <= due[-1] < due[0] <= FAULT["at_s"]


def test_a_killed_broker_is_down_and_out_of_the_isr_and_comes_back() -> None:
    up = [series("squall_broker_up", str(node)) for node in (1, 2, 3)]
    assert sorted(min(each) for each in up[:3]) == [0, 0, 0], "at the end all are stopped"
    running = [sum(each) for each in zip(*up, strict=True)]
    assert {2, 3} <= set(running) and running[-1] == 0
    isr = series("squall_partition_isr", "0 appends-0")
    assert isr[0] == isr[-1] == 3 and min(isr) == 2
    assert set(series("squall_partition_replicas", "0 appends-0")) == {3}
    assert len(set(series("squall_partition_leader", "0 appends-0"))) > 1


def test_where_nobody_wants_views_no_broker_is_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(Run, "_poll_view", lambda self, observer, every_s: asked.append(every_s))
    assert simulate(make_plan({**PLAN, "faults": []})).verdict == "valid"
    assert not asked
