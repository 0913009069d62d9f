"""Links between our own pages lead to files and headings that exist.

README lists every page in one group.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.*?)\s*$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings as GitHub makes them: lower case, with dashes for spaces."""
    text = FENCED.sub("", page.read_text())
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {each.replace(" ", "-") for each in words}


def broken(page: Path) -> list[str]:
    found = []
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if ":" in link:
            continue  # to somewhere else
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_readme_has_every_page_in_one_group() -> None:
    groups = (ROOT / "README.md").read_text().partition("\n## Pages\n")[2].partition("\n## ")[0]
    inside = [page for page in PAGES if page.parent.with_suffix(".md") in PAGES]
    wanted = [page for page in PAGES if page not in inside and page.name != "README.md"]
    assert sorted(ROOT / link for link in LINK.findall(groups)) == wanted


def test_a_link_to_nowhere_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# One: two\n[a](#one-two) [b](#three) [c](a.md#one-two) [d](b.md) [e](https://x.y/z)\n")
    assert broken(page) == ["#three", "b.md"]
