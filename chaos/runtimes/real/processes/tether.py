"""Runs a program that cannot outlive the harness: python tether.py PARENT_PID PROGRAM ARGUMENTS...

It asks the kernel for a parent-death signal, by which the program is killed when the *thread* that started it ends, for
whatever reason. So nothing of a run survives `kill -9` of the harness, not even stopped (SIGSTOP) processes. The signal
is asked for here, between fork and exec of the program, and not in Popen's preexec_fn: that would run Python between
fork and exec of a process with threads, and would make Popen copy the harness's page tables.

This is a script and not a module of Squall: it imports nothing of Squall and starts in about 10 ms.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for the parent-death signal, then exec the program. Exits with 127 and a message on stderr if that
    fails.
    """
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"tether: prctl: {os.strerror(ctypes.get_errno())}")
    # A parent that died before the call above sends no signal any more.
    if os.getppid() != parent:
        sys.exit("tether: the harness is gone")
    try:
        os.execv(program[0], program)
    except OSError as error:
        sys.stderr.write(f"tether: {program[0]}: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main()
