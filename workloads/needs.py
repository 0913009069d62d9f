"""Defines what a workload requires of its client library: for example, producer settings and the largest record."""

from __future__ import annotations

from typing import NamedTuple

from squall.workloads.client.settings import ProducerSettings


class LibraryRequirements(NamedTuple):
    """Lists the settings that a workload requires of its client library, whichever library it is."""

    producer: ProducerSettings
    request_timeout_ms: int
    max_record_bytes: int
    poll_pause_ms: int
    """Gives the pause of a reader after each poll, in ms."""
    program: str | None = None
    """Holds the command of the user's program that replaces the library; None if the workload has no program."""
    directory: str = ""
    """Names the directory in which the program is started."""
