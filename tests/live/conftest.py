"""What live tests need before the first of them begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.toolchain.toxiproxy import toxiproxy_server


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have Toxiproxy, which the first time means building it: no test's time limit should pay for that."""
    if session.config.option.collectonly or not any(
        Path(__file__).parent in item.path.parents for item in session.items
    ):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    toxiproxy_server(reporter.write_line if reporter is not None else lambda line: None)
