"""Wrong usage of `squall test` ends with 3, whichever of its parts refuses it; as a program, for pytest.

argparse ends with 2, which means unknown, and pytest with 4.
"""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

import pytest

USAGE = 3


class Parser(argparse.ArgumentParser):
    """A command line that is refused with the exit code of all of Squall's."""

    def error(self, message: str) -> NoReturn:
        """Say why, and end."""
        self.exit(USAGE, f"squall: {message}\n")


def main() -> int:
    """Run pytest with this program's arguments, and return its exit code."""
    code = pytest.main()
    return USAGE if code == pytest.ExitCode.USAGE_ERROR else int(code)


if __name__ == "__main__":
    sys.exit(main())
