"""Build hooks of hatch for wheels and sdists: they add the commit, for `squall --version`, and the package's
description.

A wheel built from an sdist has the sdist's commit.
"""

from __future__ import annotations

import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\[\]]+)\]\(([^():\s]+)\)")
"""Matches a picture or a link to a file of the checkout."""
PAGES = "\n## Pages\n"


def described(readme: str, pages: str) -> str:
    """Return README.md for readers without a checkout, as a package index shows it.

    pages: the address of the checkout's files, with a slash at the end. If it is empty, files are named instead of
    linked, and pictures are replaced by their texts.
    """

    def shown(link: re.Match[str]) -> str:
        picture, text, path = link.groups()
        if pages:
            return f"{picture}[{text}]({pages}{path}{'?raw=true' if picture else ''})"
        if picture:
            return f"*{text}*"
        file = path.partition("#")[0]
        return f"`{file}`" if text in (file, Path(file).name) else text

    if not pages:
        readme = readme.replace(PAGES, f"{PAGES}\nThese files are in the source distribution.\n", 1)
    return LINK.sub(shown, readme)


class DescriptionHook(MetadataHookInterface):
    """Makes README.md the description of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the description. pyproject.toml says where the checkout's files can be read, if anywhere."""
        text = described(Path(self.root, "README.md").read_text(encoding="utf-8"), self.config.get("pages", ""))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds a file with the commit, if it is known."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file beside the build. An editable build needs none, because its checkout knows the commit."""
        places = runpy.run_path(str(Path(self.root, "chaos/toolchain/places.py")))
        commit = places["commit"]()
        if commit and version != "editable":
            self.folder = tempfile.TemporaryDirectory()
            written = Path(self.folder.name, "commit")
            written.write_text(commit + "\n")
            goes_to = places["COMMIT_OF_SDIST"] if self.target_name == "sdist" else places["COMMIT_OF_WHEEL"]
            build_data["force_include"][str(written)] = str(goes_to.relative_to(places["ROOT"]))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file beside the build."""
        if folder := getattr(self, "folder", None):
            folder.cleanup()
