"""Wraps the brokers' functions while a simulation runs, also those that a planted bug has replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

FunctionWrapper = tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]
"""Names a function by its class or module and its name. The third value is called with the function and returns its
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
