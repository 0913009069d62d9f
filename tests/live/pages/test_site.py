"""The documentation site in a real Chromium, from `file://`: navigation, search, narrow window, no network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import Browser

pytestmark = pytest.mark.night("makes the site of the docs; CI makes it, too")

ROOT = Path(__file__).resolve().parents[3]
NAVIGATION = """
[...document.querySelectorAll(".sidebar-tree > .caption, .sidebar-tree > ul > li > a")]
  .map(each => each.getAttribute("href") ?? each.textContent)
"""
FOUND = """
new Promise(done => {
  const look = () => document.querySelector(".search-summary")?.textContent.startsWith("Search finished")
    ? done([...document.querySelectorAll("#search-results li > a")].map(each => each.getAttribute("href")))
    : setTimeout(look, 20);
  look();
})
"""


def make(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site by the command in docs/testing.md."""
    words = ["-qEW", "--keep-going", "-c", ROOT / "docs", source, site]
    return subprocess.run([sys.executable, "-m", "sphinx", *words], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this checkout."""
    folder = tmp_path_factory.mktemp("site")
    done = make(ROOT, folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_the_navigation_has_the_groups_and_pages_of_the_readme(site: Path, browser: Browser) -> None:
    groups = (ROOT / "README.md").read_text().partition("\n## Pages\n")[2].partition("\n## ")[0]
    wanted = [title or f"{page}.html" for title, page in re.findall(r"^### (.*)|\]\((.*?)\.md\)", groups, re.MULTILINE)]
    assert browser.open(site / "index.html").evaluate(NAVIGATION) == wanted


def test_the_search_finds_a_page_without_a_server(site: Path, browser: Browser) -> None:
    page = browser.open(site / "search.html", query="?q=late+EndTxn")
    assert "docs/late-end-txn.html" in page.evaluate(FOUND)
    assert page.troubles() == []


def test_no_page_is_wider_than_a_phone_or_needs_a_network(site: Path, browser: Browser) -> None:
    for path in sorted(site.rglob("*.html")):
        page = browser.open(path, width=390)
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, path
        assert page.troubles() == []
        assert {request.partition(":")[0] for request in page.requests()} <= {"file", "data"}


def test_a_broken_link_and_a_page_in_no_group_are_errors(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# A\n\n## Pages\n\n### All\n\n[b](docs/b.md) [c](docs/c.md)\n\n## End\n")
    (tmp_path / "docs/b.md").write_text("# B\n\n[gone](gone.md) [heading](c.md#gone) [right](c.md#right)\n")
    (tmp_path / "docs/c.md").write_text("# C\n\n## Right\n\n![gone](gone.png)\n")
    (tmp_path / "docs/d.md").write_text("# D\n")
    done = make(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    said = [line.removeprefix(f"{tmp_path}/docs/") for line in done.stderr.splitlines()]
    assert sorted(said) == [
        "b.md:3: WARNING: 'myst' cross-reference target not found: 'gone.md' [myst.xref_missing]",
        "b.md:3: WARNING: local id not found in doc 'docs/c': 'gone' [myst.xref_missing]",
        "c.md:5: WARNING: image file not readable: docs/gone.png [image.not_readable]",
        "d.md: WARNING: document isn't included in any toctree [toc.not_included]",
    ]
