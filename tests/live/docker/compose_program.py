"""The program that brings a compose file up: Debian's docker-compose, or the plugin of the `docker` program."""

from __future__ import annotations

from squall.chaos.toolchain.lookout import compose_program
from tests.support.lacks import skip_without


def compose() -> list[str]:
    """The program there is; skips the test where there is none."""
    return compose_program() or skip_without("docker-compose", "as root: apt-get install -y docker-compose")
