"""Allure's page opens without network."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.errors import PreconditionError
from squall.chaos.toolchain.allure import make_page, without_counter

PAGE = """<body><script src="data:x"></script>
    <script async src="https://www.googletagmanager.com/gtag/js?id=G-1"></script>
    <script>
        window.dataLayer = window.dataLayer || [];
        gtag('config', 'G-1');
    </script>
    <script async>window.ready = true</script></body>"""


def test_the_counter_of_visitors_is_removed_and_nothing_else() -> None:
    page = without_counter(PAGE)
    assert "googletagmanager" not in page
    assert "gtag" not in page
    assert '<script src="data:x"></script>' in page
    assert "<script async>window.ready = true</script>" in page


def test_without_node_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreconditionError, match="npm was not found on PATH"):
        make_page(tmp_path, tmp_path / "allure", "night", lambda line: None)
