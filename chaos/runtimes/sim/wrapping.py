"""Replaces functions of the brokers by wrappers that observe their calls, while a simulation runs. If a planted bug has
replaced a function before, its replacement is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

FunctionWrapper = tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]
"""Is a tuple of a class or module, the name of a function in it, and a decorator that returns the function's
replacement.
"""


@contextmanager
def wrapped(wrappers: Iterable[FunctionWrapper]) -> Iterator[None]:
    """Replace functions inside this block. Blocks may be nested: the last one to begin must be the first to end."""
    before = [(owner, name, getattr(owner, name), wrap) for owner, name, wrap in wrappers]
    for owner, name, rule, wrap in before:
        setattr(owner, name, wrap(rule))
    try:
        yield
    finally:
        for owner, name, rule, _ in before:
            setattr(owner, name, rule)
