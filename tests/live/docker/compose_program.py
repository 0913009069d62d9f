"""Finds the program for compose files: Debian's docker-compose, or the plugin of the `docker` program."""

from __future__ import annotations

from squall.chaos.toolchain.lookout import compose_program
from tests.support.lacks import skip_without


def compose() -> list[str]:
    """Return the command of that program. Skips the test if there is none."""
    return compose_program() or skip_without("docker-compose", "as root: apt-get install -y docker-compose")
