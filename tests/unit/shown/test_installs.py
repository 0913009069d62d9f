"""README's table of installations: it names every extra, and its sizes are those that were measured."""

from __future__ import annotations

import re

import pytest

from squall.chaos.toolchain.extras import EXTRAS
from tests.shown.installs import INSTALLS, InstallCommand, ways
from tests.shown.table import DOCS, ROOT, read

NAMED = ways((ROOT / "README.md").read_text())
MARGIN, LEAST_MB = 0.15, 10
"""README rounds, and what an extra brings grows by itself."""


def test_rows_are_read_from_a_page() -> None:
    page = "| `pip install .` | `sim`; no Java | 55 MB |\n| `./squall` in a checkout | all | 1,100 MB |\n| `x` | y |\n"
    assert ways(page) == [
        InstallCommand("pip install .", "`sim`; no Java", 55),
        InstallCommand("./squall", "all", 1100),
    ]


def test_readme_names_the_launcher_every_extra_and_both_images() -> None:
    extras = {f'pip install ".[{each}]"' for each in EXTRAS}
    images = {"./squall images --harness", "./squall images --standalone"}
    assert {each.command for each in NAMED} == {"./squall", "pip install .", *extras, *images}


@pytest.mark.parametrize("way", NAMED, ids=lambda way: way.command)
def test_the_size_that_readme_says_was_measured(way: InstallCommand) -> None:
    rows = {cells[0]: cells[1:] for _, cells in read(INSTALLS, DOCS)[1]}
    measured = float(rows[f"`{way.command}`"][1].replace(",", ""))
    assert abs(way.size_mb - measured) <= max(LEAST_MB, MARGIN * measured)


def test_pages_and_the_launcher_say_the_same_sizes_as_readme() -> None:
    said = {each.command: f"{each.size_mb:,} MB" for each in NAMED}
    docker = (ROOT / "docs/docker.md").read_text()
    assert f"| size | {said['./squall images --harness']}, " in docker
    assert f"| size | {said['./squall images --standalone']}, " in docker
    takes = re.search(r"requirements\) echo '(.+? MB), ", (ROOT / "squall").read_text())
    assert takes is not None and takes[1] == said["./squall"]
    assert f"({said['./squall']}," in (ROOT / "docs/tutorial.md").read_text()
