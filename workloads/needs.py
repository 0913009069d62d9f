"""Defines what a workload's client libraries must do."""

from __future__ import annotations

from typing import NamedTuple

from squall.workloads.client.settings import ProducerSettings


class LibraryRequirements(NamedTuple):
    """Lists what a scenario requires of a library, whichever it is."""

    producer: ProducerSettings
    request_timeout_ms: int
    max_record_bytes: int
    poll_pause_ms: int
    """What a reader takes to handle what a poll returned."""
    program: str | None = None
    """The command of the program that does the work instead of a library; None: the workload has none."""
    directory: str = ""
    """Where the program is started."""
