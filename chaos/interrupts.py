"""Gives SIGINT, SIGTERM and SIGHUP the same meaning in every command: end in good order, and leave nothing behind.

Ctrl-C comes from a person; `timeout`, Jenkins, systemd and Kubernetes send SIGTERM, a closed terminal SIGHUP. A signal
that the parent process made us ignore (`nohup`, a background job of a script) stays ignored.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squall.chaos.toolchain.cache import Say

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Lists the signals that ask a command to end."""


def handled_signals() -> tuple[signal.Signals, ...]:
    """Return the signals of ENDING that this process does not ignore."""
    return tuple(number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN)


def as_ctrl_c() -> None:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt, as SIGINT does by default. Call it in the main thread of a
    program.
    """
    for number in handled_signals():
        if number is not signal.SIGINT:
            signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def end_asked(say: Say) -> threading.Event:
    """Return an event that each further signal of ENDING sets, instead of raising KeyboardInterrupt: for work that
    looks at it often and ends in good order. Each signal prints a line, by `say`. Call it in the main thread.
    """
    asked = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        say("still ending what was begun: that is bounded" if asked.is_set() else "ending in good order ...")
        asked.set()

    for number in handled_signals():
        signal.signal(number, note)
    return asked


async def stoppable(work: Callable[[], Awaitable[None]], say: Say) -> None:
    """Run `work` under trio. The first signal cancels `work`. Until `work` has ended, each further signal only prints a
    line, by `say`.

    If there was a signal, raise KeyboardInterrupt after `work` has ended, even if `work` raised another exception
    meanwhile.
    """
    import trio

    asked = False
    with trio.open_signal_receiver(*handled_signals()) as signals:
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def listen() -> None:
                nonlocal asked
                async for _ in signals:
                    say("still ending what was begun: that is bounded" if asked else "ending in good order ...")
                    asked = True
                    scope.cancel()

            nursery.start_soon(listen)
            try:
                with scope:
                    await work()
            except Exception as error:
                if not asked:
                    raise
                raise KeyboardInterrupt from error
            finally:
                nursery.cancel_scope.cancel()
    if asked:
        raise KeyboardInterrupt
