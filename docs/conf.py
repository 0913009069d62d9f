"""Makes the site of these pages: `.venv/bin/sphinx-build -EW --keep-going -c docs . site`.

Sphinx, not MkDocs: its search index is a script, which a browser also loads from `file://`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

project = "Squall"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = [".*", "nights", "runs", "site"]
myst_heading_anchors = 6
smartquotes = False
highlight_language = "none"
html_theme = "furo"
html_title = "Squall"
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_show_search_summary = False  # summaries are fetched, which browsers refuse for file://


def navigate(app: Sphinx, name: str, source: list[str]) -> None:
    """Gives README the navigation that its section "Pages" describes: a caption for each reader, a line for each page.

    A page with a folder of its name is followed by the pages of the folder.
    """
    if name == root_doc:
        pages = source[0].partition("\n## Pages\n")[2].partition("\n## ")[0]
        for reader in pages.split("\n### ")[1:]:
            caption, _, rows = reader.partition("\n")
            source[0] += toctree(f":caption: {caption}\n", re.findall(r"\]\(([^)#]+)\.md\)", rows))
    elif (Path(app.srcdir) / name).is_dir():
        source[0] += toctree(":glob:\n", [f"{Path(name).name}/*"])


def toctree(options: str, pages: list[str]) -> str:
    """A table of contents that only the navigation shows."""
    return f"\n```{{toctree}}\n:hidden:\n{options}\n" + "\n".join(pages) + "\n```\n"


def copy_front(app: Sphinx, failed: Exception | None) -> None:
    """Makes README the page that a server shows for the folder."""
    if failed is None:
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    app.connect("source-read", navigate)
    app.connect("build-finished", copy_front)
