"""The program that brings a compose file up: Debian's docker-compose, or the plugin of the `docker` program."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def compose() -> list[str]:
    """The program there is: Debian's, or the plugin of the `docker` program."""
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        return ["docker", "compose"]
    pytest.skip("neither docker-compose nor docker's compose plugin is here")
