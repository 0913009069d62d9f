"""Defines a command whose --help has its options in groups: a single list of dozens is hard to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

REST = "Other options"


def just_one(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> str | None:
    """Return the value of an option declared with `multiple`, or None if it was not given. UsageError if it was given
    twice: click would silently take the last one.
    """
    if len(given) > 1:
        raise click.UsageError(
            f"{param.opts[0]} is given {len(given)} times ({', '.join(given)}): give one of them", ctx
        )
    return given[0] if given else None


class OptionGroupsCommand(click.Command):
    """`groups`: title -> names of parameters, in the order in which --help shows them. The rest comes last."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A section for each group."""
        shown = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        grouped = {name for names in self.groups.values() for name in names}
        rest = [name for name in shown if name not in grouped]
        for title, names in {**self.groups, REST: rest}.items():
            records = [record for name in names if (record := shown.get(name)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
