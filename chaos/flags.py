"""Reads default flags from `squall.toml` and from environment variables such as SQUALL_RUN_SEED.

Both become click's `default_map`, so that the command line wins; the environment wins over the file. Values are checked
as the command line is, and an error names the file and the line, or the variable.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

FILE = "squall.toml"
NAMED = "SQUALL_CONFIG"
"""Names the environment variable with the path of the file to read in place of squall.toml. If the variable is set to
an empty text, no file is read.
"""
PREFIX = "SQUALL_"

Words = tuple[str, ...]


def default_map(ctx: click.Context, name: str, command: click.Command, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return click's `default_map` for the command `name`: the values of its flags from squall.toml and the
    environment. Raise UsageError for a wrong name or value.

    names: a mapping whose keys are the names of all commands.
    """
    return {name: _values(ctx, command, (name,), *_read_file(names))}


def of_this_call(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the flags, with None (or {}) in place of each value that comes from squall.toml or the environment. Use it
    for a command on an existing plan, which keeps its own values: squall.toml and the environment set defaults for new
    plans only.
    """
    ctx = click.get_current_context()
    kept = dict(flags)
    for name, value in flags.items():
        if ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
            kept[name] = {} if isinstance(value, dict) else None
    return kept


def is_typed(name: str) -> bool:
    """Return whether a flag of the current command is on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def environment_of_children() -> dict[str, str]:
    """Return the environment for child processes, without the variables that set flags of `run` or `sim`. Such a
    process gets all its flags on its command line.
    """
    prefixes = tuple(_variable((name,), "") for name in ("run", "sim"))
    return {**{k: v for k, v in os.environ.items() if not k.startswith(prefixes)}, NAMED: ""}


# ---------------------------------------------------------------------------------------------------------- reading


def _find_file() -> Path | None:
    """Return the nearest `squall.toml`: of the working directory, or of a parent up to the checkout (the folder with
    .git). Return None if there is none.

    Outside a checkout only the working directory counts.
    """
    if (named := os.environ.get(NAMED)) is not None:
        return Path(named) if named else None
    here = Path.cwd()
    folders = [here, *here.parents]
    checkout = next((number for number, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    return next((folder / FILE for folder in folders[: checkout + 1] if (folder / FILE).is_file()), None)


def _read_file(names: Mapping[str, Any]) -> tuple[Path, str, dict[str, Any]]:
    """Return the path, the text and the values of squall.toml; an empty text if there is no file. Raise UsageError if
    it cannot be read, or has a table for an unknown command. names: a mapping whose keys are the names of all commands.
    """
    import tomllib

    path = _find_file()
    if path is None:
        return Path(FILE), "", {}
    try:
        text = path.read_text()
        values = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise click.UsageError(f"{path}: not TOML: {error}") from None
    for name, table in values.items():
        if name not in names:
            raise _wrong(path, text, (name,), f"there is no command {name!r}{_near(name, names)}")
        if not isinstance(table, dict):
            raise _wrong(path, text, (name,), f"flags stand in a table of their command, such as [run], not {table!r}")
    return path, text, values


def _wrong(path: Path, text: str, keys: Words, said: str) -> click.UsageError:
    from squall.chaos.plans.lines import with_line

    key = ".".join(keys)
    return click.UsageError(f"{path}: {with_line(text, f'{key}: {said}')}")


def _near(name: str, names: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f": did you mean {near[0]!r}?" if near else f": there are {', '.join(names)}"


# --------------------------------------------------------------------------------------------------------- checking


def _values(
    ctx: click.Context, command: click.Command, words: Words, path: Path, text: str, table: dict[str, Any]
) -> dict[str, Any]:
    """Return the `default_map` of a command, and of its subcommands.

    words: the command as it is typed after `squall`, such as ("run",). path, text: the path and the text of
    squall.toml, for messages. table: the TOML table that contains the command's own table. For ("run",) it is the whole
    file, which contains [run].
    """
    table = table.get(words[-1], {})
    inside = click.Context(command, info_name=words[-1], parent=ctx)
    if isinstance(command, click.Group):
        for name in table:
            if name not in command.commands:
                raise _wrong(path, text, (*words, name), f"there is no such command{_near(name, command.commands)}")
        return {name: _values(inside, each, (*words, name), path, text, table)
                for name, each in command.commands.items()}  # fmt: skip
    options = dict(_options(command, inside))
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key not in options:
            raise _wrong(path, text, (*words, key), f"squall {' '.join(words)} has no such flag{_near(key, options)}")
        try:
            found[options[key].name or ""] = _checked(inside, options[key], value)
        except click.BadParameter as wrong:
            raise _wrong(path, text, (*words, key), wrong.message) from None
    return found | _of_environment(inside, words, options)


def _of_environment(ctx: click.Context, words: Words, options: dict[str, click.Option]) -> dict[str, Any]:
    variables = {_variable(words, key): option for key, option in options.items()}
    found: dict[str, Any] = {}
    for name in sorted(os.environ):
        if not name.startswith(_variable(words, "")):
            continue
        if name not in variables:
            raise click.UsageError(f"{name}: squall {' '.join(words)} has no such flag{_near(name, variables)}")
        option, value = variables[name], os.environ[name]
        try:
            found[option.name or ""] = _checked(ctx, option, value.split() if option.multiple else value)
        except click.BadParameter as wrong:
            raise click.UsageError(f"{name}: {wrong.message}") from None
    return found


def _variable(words: Words, key: str) -> str:
    return PREFIX + "_".join((*words, key)).upper().replace("-", "_")


def _options(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Option]]:
    """Yield each option of a command with the name of its flag, without leading hyphens."""
    for param in command.get_params(ctx):
        if isinstance(param, click.Option) and param.expose_value:
            yield from ((flag.lstrip("-"), param) for flag in param.opts)


def _checked(ctx: click.Context, option: click.Option, value: Any) -> Any:
    """Return the value in the form in which the command line would give it. Raise BadParameter if the option rejects
    it.
    """
    if isinstance(value, dict) or (isinstance(value, list) and not option.multiple):
        raise click.BadParameter(f"one value is wanted, not {value!r}")
    if isinstance(value, bool) and not option.is_flag:
        raise click.BadParameter(f"a value is wanted, not {str(value).lower()}")
    if option.multiple:
        value = [str(each) for each in (value if isinstance(value, list) else [value])]
    elif not isinstance(value, bool):
        value = str(value)
    option.process_value(ctx, value)
    return value
