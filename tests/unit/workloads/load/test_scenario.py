"""The settings and figures of the workload `load`."""

from __future__ import annotations

from typing import Any

from squall.workloads.load import BatchLoad
from squall.workloads.load.section import section_of

LOAD: dict[str, Any] = {"name": "load"}


def test_the_loads_are_the_last_readers() -> None:
    assert BatchLoad.model_validate(LOAD).traffic().readers == 2
    assert BatchLoad.model_validate({**LOAD, "isolation": "both", "readers": 3}).traffic().readers == 5


def test_the_section_has_a_row_for_each_isolation_level() -> None:
    counts = {"loads": 1, "batches": 4, "rows": 1200, "drivers": 2, "executors": 5, "read": 1300, "read_again": 100}
    section = section_of({"loads": {"read_committed": counts}})
    assert section is not None
    assert "1,200 rows in 4 batches; 100 were read again" in section.sentence
    assert section.tables[0].rows == [["read_committed", "4", "1,200", "2", "5", "1,300", "100"]]
    assert section_of({}) is None


def test_only_the_plain_producer_can_be_without_idempotence() -> None:
    load = BatchLoad.model_validate({**LOAD, "plain_idempotence": False})
    assert load.producer_settings().idempotence
    assert not load.plain_settings().idempotence
