"""All short histories with their sentences, by sentence."""

from __future__ import annotations

from tests.support.histories import reader_cases, record_cases
from tests.support.histories.case import CASES

__all__ = ["CASES", "reader_cases", "record_cases"]
