"""Defines the `squall` program: a table of commands, each imported only when it is called, so that --help answers at
once.
"""

from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from squall.chaos.errors import HarnessError, gravest_error, traceback_text
from squall.chaos.flags import default_map
from squall.chaos.garbage import garbage_waits
from squall.chaos.interrupts import as_ctrl_c
from squall.chaos.nearest import did_you_mean, nearest
from squall.chaos.standard_streams import outlive_readers
from squall.chaos.toolchain.extras import install_hint

UNKNOWN = 2
USAGE = 3
INTERRUPTED = 130

# name -> (module, its line in --help). The module is imported when its command or its help is called.
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("squall.chaos.commands.run", "Run a cluster under load, break it on schedule, and judge what survived."),
    "sim": ("squall.chaos.commands.sim", "Run clusters in virtual time, from one seed or many."),
    "replay": ("squall.chaos.commands.replay", "Repeat a recorded run; a simulated one exactly."),
    "shrink": (
        "squall.chaos.commands.shrink",
        "Shrink a failing run to the few steps that still fail, and tell their story.",
    ),
    "nightly": (
        "squall.chaos.commands.nightly",
        "Run a matrix of configurations, faults and seeds within a time budget.",
    ),
    "verify": ("squall.chaos.commands.verify", "Judge a recorded run again."),
    "report": ("squall.chaos.commands.report", "Render a run's page again, and print the result."),
    "explain": ("squall.chaos.commands.explain", "Tell the story of one finding of a run."),
    "query": ("squall.chaos.commands.query", "Run SQL over the files of a run."),
    "load": ("squall.chaos.commands.load", "Load topics into Parquet files with Spark, each row exactly once."),
    "runs": ("squall.chaos.commands.runs", "List the runs in a folder; compare up to six; remove old runs."),
    "export": ("squall.chaos.commands.export", "Pack a run into a zip to send, and say what is in it."),
    "cluster": ("squall.chaos.commands.cluster", "Run a development cluster on this machine."),
    "broker": ("squall.chaos.commands.broker", "Run one broker from a .properties file."),
    "faults": ("squall.chaos.commands.faults", "List the faults that work here, and what the others need."),
    "guarantees": (
        "squall.chaos.commands.guarantees",
        "Print what a configuration promises under which faults, and why.",
    ),
    "hunt": ("squall.chaos.commands.hunt", "Plant known bugs, one at a time, and find each of them."),
    "images": ("squall.chaos.commands.images", "Make the images that containers run."),
    "doctor": ("squall.chaos.commands.doctor", "Say what this machine has, what it lacks, and how to get it."),
    "setup": ("squall.chaos.commands.setup", "Install client libraries, Apache Kafka, a Docker engine and the like."),
    "completion": (
        "squall.chaos.commands.completion",
        "Print the script with which a shell completes Squall's commands.",
    ),
    "clean": ("squall.chaos.commands.clean", "End what an interrupted run left behind, and only that."),
    "bench": ("squall.chaos.commands.bench", "Measure brokers, compared with Apache Kafka or an earlier commit."),
    "test": ("squall.chaos.commands.test", "Run the tests that every change must pass, or all of them."),
}

EXAMPLES = """\b
Examples:
  squall run                           a cluster, load and faults, and the verdict
  squall run --time 20 --seed 7        a short run that can be repeated
  squall sim --seed 7                  the same in virtual time, in seconds
  squall sim --seeds 0..1000           a thousand different clusters and faults
  squall shrink runs/latest            the few steps that still fail, and their story
  squall explain runs/latest lost-write  what it means, what caused it, and its story
  squall query runs/latest             the views and columns of a run, for SQL
  squall runs                          what is in runs/, as a table and as a page
  squall export                        the latest run as a zip to send
  squall nightly --list                what a night would run, and how long
  squall cluster up -n 3               three brokers on loopback, until Ctrl-C
  squall cluster up -n 3 --data ./c    the same, kept in ./c for the next time
  squall broker --config b1.properties one broker
  squall faults                        which faults work here, and what the others need
  squall guarantees --acks 1           what this configuration promises, and why
  squall doctor                        what this machine has and lacks
  squall setup --clients --kafka       install client libraries and Apache Kafka
  squall clean                         end what an interrupted run left behind
  squall bench --against HEAD~20       how fast brokers are, before and now
  squall test                          the tests that every change must pass

\b
Exit codes: 0 valid, 1 an anomaly that the configuration does not permit,
2 unknown (neither is proven, the last lines say why), 3 wrong usage.
"""


class LazyCommandGroup(click.Group):
    """Holds the commands of `COMMANDS`, and imports a command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names in the order of the table, which is the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command. Raise UsageError with the nearest name if there is no such command."""
        if cmd_name not in COMMANDS:
            if cmd_name in ("help", "version"):
                raise click.UsageError(f"there is no command {cmd_name!r}: squall --{cmd_name}", ctx)
            raise click.UsageError(f"there is no command {cmd_name!r}: {did_you_mean(cmd_name, COMMANDS)}", ctx)
        with garbage_waits():  # what modules define stays, and searching it costs an eighth of loading them
            command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command), f"{COMMANDS[cmd_name][0]}.command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called, and set its defaults from squall.toml and the environment."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not {"-h", "--help"} & {*rest}:
            ctx.default_map = default_map(ctx, name, command, COMMANDS)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command. A BrokenPipeError is wrapped, because click exits with 1 for it, and 1 means an anomaly
        here.

        Standard output and standard error never raise it, because `outlive_readers` has replaced them. So it comes from
        another pipe.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError as broken:
            raise ExceptionGroup("a broken pipe", [broken]) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete names from the table, because importing all commands takes a second."""
        names = {name: about for name, (_, about) in COMMANDS.items() if name.startswith(incomplete)}
        items = [CompletionItem(name, help=about) for name, about in names.items()]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands into the help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


def _print_versions(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the versions of Squall and of the software that it uses, and end the program, if --version was given."""
    if asked and not ctx.resilient_parsing:
        from squall.chaos.toolchain.version import version_text

        click.echo(version_text())
        ctx.exit()


@click.group(cls=LazyCommandGroup, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_versions,
    help="Show the versions of Squall, Python, Java, Spark, Toxiproxy and Kafka, and exit.",
)  # fmt: skip
def squall() -> None:
    """Break Kafka-style brokers on purpose, and prove what survived."""


def run(arguments: list[str] | None = None) -> int:
    """Run one command, and return its exit code. Neither a usage error nor a bug of ours returns 1, the code of an
    anomaly.
    """
    try:
        result = squall.main(args=arguments, prog_name="squall", standalone_mode=False)
    except BaseException as error:
        return _report_error(error)
    return result if isinstance(result, int) else 0


def _report_error(error: BaseException) -> int:
    """Print a sentence about the error, and return the program's exit code for it."""
    gravest = gravest_error(error)
    match gravest:
        case click.exceptions.NoArgsIsHelpError() as asked:
            click.echo(asked.format_message())
            return 0
        case click.ClickException() as wrong:
            if isinstance(wrong, click.NoSuchOption) and wrong.possibilities:
                wrong.possibilities[:] = filter(None, [nearest(wrong.option_name, wrong.possibilities)])
            wrong.show()
            return USAGE
        case HarnessError() as trouble:
            click.echo(f"squall: {trouble}", err=True)
            return trouble.exit_code
        case click.Abort() | KeyboardInterrupt():
            click.echo(": ".join(("squall: interrupted", *map(str, gravest.args))), err=True)
            return INTERRUPTED
        case SystemExit():
            raise gravest
        case ModuleNotFoundError(name=str(module)) if hint := install_hint(module):
            click.echo(f"squall: {hint}", err=True)
            return USAGE
        case OSError():
            sentence = f"the machine refused: {gravest}"
        case _:
            sentence = f"a failure inside Squall, and no word about the cluster: {type(gravest).__name__}: {gravest}"
    click.echo(f"squall: {sentence}\n{_kept_traceback(error)}", err=True)
    return UNKNOWN


def _kept_traceback(error: BaseException) -> str:
    """Write the traceback to a file, and return a line that names the file. If no file can be written, return the
    traceback itself.
    """
    import os
    import tempfile

    text = traceback_text(error)
    for folder in (Path("runs"), Path(tempfile.gettempdir())):
        try:
            folder.mkdir(exist_ok=True)
            path = folder / f"squall-traceback-{os.getpid()}.txt"
            path.write_text(text)
        except OSError:
            continue
        return f"squall: the traceback is in {path}"
    return text


def main() -> None:
    """Run the program, and exit with its code."""
    outlive_readers()
    as_ctrl_c()
    code = run()
    # If SIGINT arrives inside exec() of a string, as in an import that makes a dataclass, Python kills itself by SIGINT
    # at its exit, even if the signal was handled, unless another exec() has run since.
    exec("")
    gc.freeze()  # skip the last collection, because the process ends
    sys.exit(code)
