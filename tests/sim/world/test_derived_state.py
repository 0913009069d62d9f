"""State that is derived from other state, with a mistake planted in how it is derived: a simulation sees it at once.

Each mistake is planted in a rule of the broker, and the same plan without it breaks nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from broker.cluster import replay
from broker.protocol.schema import metadata_records as records
from chaos.mutants.hunt_plans import Values, draw, hunt_plan, killings
from chaos.plans.plan import Plan
from chaos.runs.simulation import simulate


class Mistake(NamedTuple):
    """What is planted, under which plan, and which invariant sees it."""

    invariant: str
    plan: Callable[[], Plan]
    owner: Any
    """A class, a module or a dict."""
    name: Any
    by: Callable[[Any], Callable[..., Any]]
    """The rule into what stands in its place."""


def failover(*more: Values, **plan: Any) -> Plan:
    """Two brokers die one after the other, under a load."""
    return hunt_plan(1, [*killings(draw(1, "derived"), rounds=2), *more], **plan)


def leaves_fencing_out(rule: Callable[..., Any]) -> Callable[..., Any]:
    def change(image: Any, record: Any) -> None:
        rule(image, record.replace(fenced=0))

    return change


MISTAKES = {
    "all images leave the same record out": Mistake(
        "image-is-a-replay", failover, replay.APPLY, records.BrokerRegistrationChangeRecord, leaves_fencing_out
    ),
}


def found(plan: Plan) -> list[str]:
    result = simulate(plan, stop_at_first=False)
    assert result.trouble is None, result.trouble
    return [violation.name for violation in result.violations]


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_what_is_derived_is_seen(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = mistake.plan()
    assert found(plan) == []
    if isinstance(mistake.owner, dict):
        monkeypatch.setitem(mistake.owner, mistake.name, mistake.by(mistake.owner[mistake.name]))
    else:
        monkeypatch.setattr(mistake.owner, mistake.name, mistake.by(getattr(mistake.owner, mistake.name)))
    assert mistake.invariant in found(plan)
