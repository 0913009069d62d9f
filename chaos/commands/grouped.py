"""Defines a click command whose --help shows its options in groups, because one list of dozens is hard to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

REST = "Other options"


def just_one(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> str | None:
    """Return the value of an option declared with `multiple`, or None if the option was not given. Raise UsageError if
    it was given twice, because click would silently take the last value.
    """
    if len(given) > 1:
        raise click.UsageError(
            f"{param.opts[0]} is given {len(given)} times ({', '.join(given)}): give one of them", ctx
        )
    return given[0] if given else None


class OptionGroupsCommand(click.Command):
    """Shows its options in groups. `groups` maps a title to parameter names, in the order of --help; other options come
    last.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section of the help for each group that has options."""
        shown = {param.name: param.get_help_record(ctx) for param in self.get_params(ctx)}
        grouped = {name for names in self.groups.values() for name in names}
        rest = [name for name in shown if name not in grouped]
        for title, names in {**self.groups, REST: rest}.items():
            records = [record for name in names if (record := shown.get(name)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
