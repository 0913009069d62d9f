"""Prepares Toxiproxy and the container images before the first live test."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.toolchain.toxiproxy import toxiproxy_server
from tests.live import engine


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get Toxiproxy and the images. The first time they are built, which must not count for the time limit of a test.
    """
    if session.config.option.collectonly or not any(
        Path(__file__).parent in item.path.parents for item in session.items
    ):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    say = reporter.write_line if reporter is not None else lambda line: None
    toxiproxy_server(say)
    if any(
        getattr(item, "callspec", None) and "docker" in item.callspec.id or "docker" in item.path.parts
        for item in session.items
    ):
        engine.prepare(say)
