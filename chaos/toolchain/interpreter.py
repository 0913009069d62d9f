"""Ranks Python interpreters: ./squall and `squall doctor` ask each that is found.

As a program, with the interpreter in question and nothing of ours imported, it prints "RANK VERSION PATH", the lowest
rank being the best, and ends with 1 if that interpreter will not do at all.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig

OLDEST, NEWEST = (3, 11), (3, 14)
"""What the tests are run with. A newer one is tried, with a warning."""
BEST, SLOWER, UNTRIED, NO_VENV = 1, 2, 3, 4
"""Ranks: tried and built with optimisation; tried; newer than what was tried; without what makes an environment."""


def is_optimised(configured: str, prefix: str) -> bool:
    """Return whether a build is optimised by a profile, which is worth 5 to 20 % of a broker's CPU.

    configured: the arguments of its `configure`; prefix: where it is installed. The interpreters of distributions are,
    but Debian's do not say so: its packaging calls for the profile itself.
    """
    return "--enable-optimizations" in configured or prefix == "/usr"


def optimised_here() -> bool:
    """`is_optimised` of the interpreter that runs this."""
    return is_optimised(str(sysconfig.get_config_var("CONFIG_ARGS") or ""), sys.base_prefix)


def rank(version: tuple[int, int], *, optimised: bool, has_venv: bool) -> int | None:
    """Rank an interpreter; None if it is too old."""
    if version < OLDEST:
        return None
    if not has_venv:
        return NO_VENV
    if version > NEWEST:
        return UNTRIED
    return BEST if optimised else SLOWER


def _main() -> int:
    has_venv = all(importlib.util.find_spec(name) is not None for name in ("venv", "ensurepip"))
    found = rank(sys.version_info[:2], optimised=optimised_here(), has_venv=has_venv)
    if found is None:
        return 1
    sys.stdout.write(f"{found} {sys.version_info[0]}.{sys.version_info[1]} {sys.executable}\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
