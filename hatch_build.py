"""Writes the commit into wheels and sdists, for `squall --version`. A wheel of an sdist has the sdist's commit."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds a file with the commit, unless the commit is not known."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file beside the build. An editable build needs none: its checkout is asked."""
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
