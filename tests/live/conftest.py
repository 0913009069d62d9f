"""Prepares what live tests need before the first of them begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.toolchain.toxiproxy import toxiproxy_server
from tests.live import engine


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have Toxiproxy and the images, which the first time means building them: no test's time limit should pay."""
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
