"""Defines the workload `semantics`: three applications side by side, and the inputs that each lost and doubled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from squall.broker.overriding import override
from squall.workloads.pipeline.scenario import MultiInstanceLoad, PipelineApplication
from squall.workloads.semantics.section import section_of

if TYPE_CHECKING:
    from squall.checkers.history.tables import History, RecordedFault
    from squall.workloads.pipeline.instance import InstanceProcessFactory
    from squall.workloads.section import WorkloadSection

AT_MOST_ONCE = PipelineApplication("squall-at-most-once", "at-most-once-0", False)
AT_LEAST_ONCE = PipelineApplication("squall-at-least-once", "at-least-once-0", False)
EXACTLY_ONCE = PipelineApplication("squall-exactly-once", "exactly-once-0", True)


class SemanticsLoad(MultiInstanceLoad):
    """Runs three applications that differ only in when they commit their positions."""

    INPUT: ClassVar[str] = "semantics-in-0"
    APPLICATIONS: ClassVar[tuple[PipelineApplication, ...]] = (AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE)

    SWARM_SHARE: ClassVar[float] = 0.06

    name: Literal["semantics"] = "semantics"
    churn: int = Field(
        40, ge=0, le=600, description="How many times a minute some member pauses, halts, leaves or crashes."
    )

    @classmethod
    @override
    def process_factory(cls, application: PipelineApplication) -> InstanceProcessFactory:
        from squall.workloads.pipeline.transactional import TransactionalInstanceProcess
        from squall.workloads.semantics.plain import AtLeastOnce, AtMostOnce

        found: dict[PipelineApplication, InstanceProcessFactory] = {
            AT_MOST_ONCE: AtMostOnce,
            AT_LEAST_ONCE: AtLeastOnce,
            EXACTLY_ONCE: TransactionalInstanceProcess,
        }
        return found[application]

    @override
    def measured(self, history: Callable[[], History], faults: Sequence[RecordedFault]) -> Mapping[str, Any]:
        from squall.checkers.measured_groups import measure_groups
        from squall.checkers.measured_outputs import measure_outputs

        found = history()
        made, groups = measure_outputs(found), measure_groups(found, faults)
        names = {"at most once": AT_MOST_ONCE, "at least once": AT_LEAST_ONCE, "exactly once": EXACTLY_ONCE}
        told = {name: made[each.group] for name, each in names.items() if each.group in made}
        theirs = {name: groups[each.group] for name, each in names.items() if each.group in groups}
        return {"applications": told, "groups": theirs} if told else {}

    @classmethod
    @override
    def section(cls, figures: Mapping[str, Any]) -> WorkloadSection | None:
        return section_of(figures)
