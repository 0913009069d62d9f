"""Recognises that a simulation was interrupted from outside, as by Ctrl-C. Such an interruption is no failure of the
simulated cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

import trio

from squall.broker.env import NodeDead

OF_A_SIMULATION = (Exception, NodeDead, trio.Cancelled, GeneratorExit)


def interruption_of(error: BaseException | None) -> BaseException | None:
    """Return the interruption in an error, for example a KeyboardInterrupt: the error itself, a member of its exception
    group, or its cause. None if there is none.

    A signal is raised in whatever code runs at that moment. The cluster is stopped then, which may raise other errors:
    they are consequences of the interruption.
    """
    return next((each for each in _all_in(error) if not isinstance(each, (*OF_A_SIMULATION, BaseExceptionGroup))), None)


def _all_in(error: BaseException | None) -> Iterator[BaseException]:
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        left += [each.__context__, each.__cause__, *reversed(getattr(each, "exceptions", ()))]
