"""Shrunk plans: what each of them showed once, and that it does not happen any more.

The two published scenarios need the switch of before KIP-101. What exactly a plan comes to moves with every change of the
broker's timing, so the switch has a few seeds to show it; without the switch none of them may.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.plan import Plan, make_plan, read_plan
from chaos.simulating import simulate

PLANS = Path(__file__).parent
SWITCH = "squall.replication.truncation"
SEEDS = 30


def with_truncation(name: str, how: str, seed: int) -> Plan:
    """A plan under another seed and with a certain truncation."""
    values = read_plan(PLANS / f"{name}.toml").model_dump(mode="json")
    values["cluster"]["settings"][SWITCH] = how
    return make_plan({**values, "seed": seed})


def shows(plan: Plan, wanted: str) -> bool:
    """Whether an anomaly or a broken invariant of that name is found."""
    result = simulate(plan, stop_at_first=False)
    assert result.trouble is None, result.trouble
    return wanted in result.anomalies or any(violation.name == wanted for violation in result.violations)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wanted"), [("kip_101_loss", "lost-write"), ("kip_101_divergence", "replicas-agree")]
)
def test_truncation_to_the_high_watermark_shows_the_published_scenario(name: str, wanted: str) -> None:
    assert any(shows(with_truncation(name, "high-watermark", seed), wanted) for seed in range(SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kip_101_loss", "kip_101_divergence"])
def test_truncation_by_epoch_stands_the_same_plan(name: str) -> None:
    for seed in range(SEEDS // 3):
        result = simulate(with_truncation(name, "epoch", seed), stop_at_first=False)
        assert result.failure is None, (seed, result.told)
