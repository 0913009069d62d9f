"""Adds `--json` to commands: standard output then gets one JSON object, and everything else goes to standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from squall.chaos.commands.outputs import CommandOutput

_KEY = "squall.chaos.commands.json_output"
_HELP = "Print the result as one JSON object (docs/json.md) on standard output; everything else goes to stderr."


def json_flag(command: Callable[..., int]) -> Callable[..., int]:
    """Add the flag --json to a command. The command hands over its result by `set_json_result`; its exit code becomes
    the object's `exit`.
    """

    @click.option("--json", "as_json", is_flag=True, help=_HELP)
    @wraps(command)
    def called(*args: Any, as_json: bool, **flags: Any) -> int:
        if not as_json:
            return command(*args, **flags)
        meta = click.get_current_context().meta
        meta[_KEY] = None
        with redirect_stdout(sys.stderr):
            code = command(*args, **flags)
        if meta[_KEY] is not None:
            import msgspec

            click.echo(msgspec.json.encode({**msgspec.to_builtins(meta[_KEY]()), "exit": code}))
        return code

    return called


def set_json_result(make: Callable[[], CommandOutput]) -> bool:
    """Set the function that makes the command's JSON result after the command has ended. Return False, and do nothing,
    if the command was called without --json.
    """
    context = click.get_current_context(silent=True)
    if context is None or _KEY not in context.meta:
        return False
    context.meta[_KEY] = make
    return True
