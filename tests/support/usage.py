"""Makes wrong usage of `squall test` end with exit code 3, also if pytest refuses the arguments. As a program it runs
pytest.

Without it argparse would end with 2, which means unknown in Squall, and pytest with 4.
"""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

import pytest

USAGE = 3


class Parser(argparse.ArgumentParser):
    """A command-line parser that ends with Squall's exit code for wrong usage."""

    def error(self, message: str) -> NoReturn:
        """Print the message, and end with exit code 3."""
        self.exit(USAGE, f"squall: {message}\n")


def main() -> int:
    """Run pytest with this program's arguments, and return its exit code."""
    code = pytest.main()
    return USAGE if code == pytest.ExitCode.USAGE_ERROR else int(code)


if __name__ == "__main__":
    sys.exit(main())
