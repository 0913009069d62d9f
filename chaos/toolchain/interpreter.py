"""Ranks Python interpreters, for ./squall and `squall doctor`, which run this file with each interpreter that they
find.

As a program, with none of Squall's modules imported, it prints "RANK VERSION PATH", where the lowest rank is the best,
and exits with 1 if the interpreter is too old.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig

OLDEST, NEWEST = (3, 11), (3, 14)
"""Are the oldest and newest versions that the tests are run with. A newer version is tried, with a warning."""
BEST, SLOWER, UNTRIED, NO_VENV = 1, 2, 3, 4
"""Are the ranks of interpreters: a tested version, built with optimisation; a tested version without it; a version
newer than the tested ones; an interpreter that cannot make virtual environments.
"""


def is_optimised(configured: str, prefix: str) -> bool:
    """Return whether a Python was built with profile-guided optimisation, which saves 5 to 20 % of a broker's CPU.

    configured: the arguments of Python's `configure` script; prefix: the folder in which Python is installed. A
    distribution's Python (prefix /usr) counts as optimised: Debian's Python is, although its arguments do not show it.
    """
    return "--enable-optimizations" in configured or prefix == "/usr"


def optimised_here() -> bool:
    """Return whether the interpreter that runs this is optimised (`is_optimised`)."""
    return is_optimised(str(sysconfig.get_config_var("CONFIG_ARGS") or ""), sys.base_prefix)


def rank(version: tuple[int, int], *, optimised: bool, has_venv: bool) -> int | None:
    """Return the rank of an interpreter, from BEST (1) to NO_VENV (4); None if it is older than OLDEST.

    optimised: it was built with profile-guided optimisation; has_venv: it can make virtual environments.
    """
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
