"""The installed package in the tests of a project that has folders of the same names, on each supported Python.

It is skipped for a Python that the machine lacks. The night's parts `oldest` and `newest` run it on machines that have
only that one, as `tests/fresh/machine.sh forky --only test -- tests/live/ground/test_pythons.py` does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.toolchain.interpreter import NEWEST, OLDEST
from tests.support.installed import Installed, python_of

pytestmark = pytest.mark.night("makes an environment with pip for each Python: minutes")
PYTHONS = [f"3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
THEIRS = ("chaos", "broker", "reports", "tests/chaos")
"""Folders of the project, each with a module of its own."""
TEST = """
import os, sys
import broker.mine, chaos.mine, reports.mine
import pytest

def test_their_own_modules_are_theirs():
    assert (broker.mine.WHOSE, chaos.mine.WHOSE, reports.mine.WHOSE) == ("broker", "chaos", "reports")

@pytest.mark.squall_cluster(nodes=1)
def test_our_fixture_is_there(squall_cluster):
    squall_cluster.create_topic("orders", replication_factor=1, min_insync_replicas="1")
    assert squall_cluster.leader("orders") == 1
    import squall.broker.env
    assert squall.broker.env.__file__ != broker.mine.__file__

def test_no_file_has_two_names():
    files = [os.path.realpath(each.__file__) for name, each in sys.modules.items()
             if "/site-packages/squall/" in (getattr(each, "__file__", None) or "")]
    assert files and len(files) == len(set(files))
"""


@pytest.fixture(scope="module", params=PYTHONS)
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment with Squall and common pytest plugins."""
    python = python_of(request.param)
    words = ("pytest-xdist", "pytest-asyncio", "pytest-trio")
    return Installed(tmp_path_factory.mktemp("installed"), "[run]", *words, python=python)


@pytest.mark.parametrize("words", [(), ("-n", "1"), ("-p", "no:squall", "-k", "not fixture and not two_names")])
def test_a_project_with_folders_of_the_same_names_runs_its_tests_beside_ours(
    installed: Installed, words: tuple[str, ...], tmp_path: Path
) -> None:
    for folder in THEIRS:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
        (tmp_path / folder / "mine.py").write_text(f"WHOSE = {folder!r}\n")
    (tmp_path / "tests/__init__.py").touch()
    (tmp_path / "tests/chaos/test_theirs.py").write_text("def test_it():\n    assert True\n")
    (tmp_path / "tests/test_theirs.py").write_text(TEST)
    asked = ("-m", "pytest", "-q", "-W", "error::pytest.PytestAssertRewriteWarning", *words)
    done = installed.python(*asked, path=True, where=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
