"""The harness's own errors, by whose fault they are. Broken invariants stay AssertionErrors."""

from __future__ import annotations


class HarnessError(Exception):
    """Something of the harness did not work, so nothing was judged: exit code 2, unknown."""

    exit_code = 2


class Refused(HarnessError):
    """Asked for what cannot be: a wrong argument, a missing program or privilege. Exit code 3, before anything began.

    The message names what is missing and the command that provides it.
    """

    exit_code = 3
