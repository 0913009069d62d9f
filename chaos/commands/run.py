"""Implements `squall run`, which runs a cluster under load and faults, and judges what survived."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from squall.chaos.commands import completions
from squall.chaos.commands.engines import engine_flag
from squall.chaos.commands.grouped import OptionGroupsCommand
from squall.chaos.commands.json_output import json_flag, set_json_result
from squall.chaos.faults.kind import FaultError
from squall.chaos.faults.kinds import KINDS
from squall.chaos.flags import is_typed, of_this_call
from squall.chaos.plans.mistakes import beyond_limits
from squall.chaos.plans.parts import LimitsPlan
from squall.chaos.plans.plan import Plan, PlanError, kinds_without_room, make_plan, read_plan, with_schedule
from squall.chaos.plans.schedule import DEFAULT_KINDS, parse_kinds
from squall.chaos.typed import typed
from squall.workloads.registry import DEFAULT, SCENARIOS, suited_brokers, unknown
from squall.workloads.scenario import Scenario

if TYPE_CHECKING:
    from squall.chaos.commands.outputs import CommandOutput

INTERRUPTED = 130
KEPT = ("docker", "external")
"""Lists the runtimes that `squall run` takes from a plan file if --runtime is not given. A plan for any other runtime
runs as processes.
"""
PAIRS = {"--set": "log.segment.bytes=65536", "--topic-set": "segment.bytes=65536"}
"""Maps a flag that takes NAME=VALUE to an example of its value."""
_FLAGS = {"time_s": "--time", "warmup_s": "--warmup", "settings": "--set", "topic_settings": "--topic-set"}
"""Maps a plan's setting to the flag that gives it, if the flag has another name."""
_NAMED = re.compile(r"(?m)\b(?:cluster|workload|limits)\.(\w+)|\b(\w+_\w+)\b|^(\w+)(?=:)")
"""Matches the name of a setting in a sentence about a plan, with or without the name of its table."""
_LEFT_OUT = ("name", "topic_settings")


def _scenarios(*, simulated: bool) -> dict[str, type[Scenario]]:
    """Return the class of each workload by name. simulated: only workloads that the simulator can run."""
    return {name: scenario for name, scenario in SCENARIOS.items() if scenario.SIMULATED or not simulated}


def _settings(*, simulated: bool = False) -> dict[str, dict[str, FieldInfo]]:
    """Return the settings of all workloads: for each setting, the workloads that have it, with its field (type,
    description and default) there. An example is `{"acks": {"appends": FieldInfo(...)}}`.
    """
    found: dict[str, dict[str, FieldInfo]] = {}
    for workload, scenario in _scenarios(simulated=simulated).items():
        for name, about in scenario.model_fields.items():
            if name not in _LEFT_OUT:
                found.setdefault(name, {})[workload] = about
    return found


CLUSTER = ("nodes", "broker_settings", "topic_settings")
LIMITS = tuple(LimitsPlan.model_fields)
"""Lists the options in the help group "Limits". CLUSTER lists those in "Cluster" that `run` and `sim` both have."""


def workload_options(*, simulated: bool = False) -> tuple[str, ...]:
    """Return the names of the options that `workload_flags` adds for the workload and its settings."""
    return ("workload", *(name for name in _settings(simulated=simulated) if not (simulated and name == "client")))


def _default(name: str, having: Mapping[str, FieldInfo], *, light: bool) -> str:
    """Return a setting's default as text for --help: "3" if all workloads have the same, else "3 (appends), 6
    (groups)". having: the setting's field in each workload that has it.
    """
    defaults = {workload: _word(name, about, workload, light=light) for workload, about in having.items()}
    if len(set(defaults.values())) == 1 and len(defaults) == len(_scenarios(simulated=light)):
        return next(iter(defaults.values()))
    return ", ".join(f"{value} ({workload})" if len(SCENARIOS) > 1 else value for workload, value in defaults.items())


def _word(name: str, about: FieldInfo, workload: str, *, light: bool) -> str:
    """Return a setting's default in one workload as text for --help. light: True for a simulation, whose load is
    lighter unless --rate is given.
    """
    said = {"acks": "all", "idempotence": "on", "directory": "the current folder"}
    usual = ("off", "on")[about.default] if isinstance(about.default, bool) else about.default
    word = said.get(name, str(usual) or "none")
    lighter = SCENARIOS[workload].LIGHT if light else {}
    if name not in lighter:
        return word
    return str(lighter[name]) if name == "rate" else f"{lighter[name]}, or {word} if --rate is given"


def workload_flags(*, simulated: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds --workload and a flag for every setting of the workloads and of the limits to a
    command.

    simulated: use the simulator's defaults, which have a lighter load, and leave out --client.
    """
    limits = {name: {"": about} for name, about in LimitsPlan.model_fields.items()}
    settings = {name: having for name, having in _settings(simulated=simulated).items()
                if not (simulated and name == "client")}  # fmt: skip
    names = ", ".join(_scenarios(simulated=simulated))
    options = [click.option("--workload", callback=_known, metavar="NAME", shell_complete=completions.workloads,
                            help=f"What clients do: {names}. [default: {DEFAULT}]")]  # fmt: skip
    for name, having in (limits | settings).items():
        about = next(iter(having.values()))
        default = str(about.default) if name in limits else _default(name, having, light=simulated)
        options.append(_option(name, about, f"{about.description} [default: {default}]"))

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        # click puts the option that is applied last first.
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _option(name: str, about: FieldInfo, shown: str) -> Callable[..., Any]:
    """Return the click option of one setting. about: the setting's field, with its type. shown: the text for --help."""
    flag = "--" + name.replace("_", "-")
    if about.annotation is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=shown)
    if name == "acks":
        return click.option(flag, name, type=click.Choice(["all", "-1", "1", "0"]), help=shown)
    if get_origin(about.annotation) is Literal:
        return click.option(flag, name, type=click.Choice(get_args(about.annotation)), help=shown)
    return click.option(flag, name, type=about.annotation, help=shown)


def _known(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
    if given is not None and given not in SCENARIOS:
        raise click.BadParameter(unknown(given))
    return given


def _pairs(_: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{each!r}: NAME=VALUE is wanted, as in {option.opts[0]} {PAIRS[option.opts[0]]}")
        found[name.strip()] = value.strip()
    return found


class _RuntimeChoice(click.Choice[str]):
    """Parses --runtime, and points to `squall sim` if the value is `sim`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "sim":
            self.fail(f"'sim': {typed('sim')} simulates runs; it takes the same flags", param, ctx)
        return super().convert(value, param, ctx)


def plan_flags(*runtimes: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the flags of a plan to a command; `plan_of` makes the plan from their values.
    runtimes: the runtimes whose faults are offered, the default runtime first.
    """
    worlds = {name: [each for each in runtimes if each in kind.worlds] for name, kind in KINDS.items()}
    kinds = ", ".join(
        name if runtimes[0] in those else f"{name} (only {' and '.join(those)})"
        for name, those in worlds.items()
        if those
    )
    drawn = ",".join(DEFAULT_KINDS)
    pairs: dict[str, Any] = {"multiple": True, "callback": _pairs, "metavar": "NAME=VALUE"}
    expect = (
        "What the verdict asks for. config: what the configuration promises; safe: that nothing acknowledged is lost, "
        "whatever the configuration; loss: that something acknowledged is lost. [default: config]"
    )
    options = (
        click.option(
            "--plan",
            "plan_file",
            type=click.Path(path_type=Path),
            shell_complete=completions.plans,
            help="Run this plan; other options override it.",
        ),
        click.option(
            "--seed", type=int, help="Seed of the faults and of every random choice. [default: random, and printed]"
        ),
        click.option(
            "--time", "time_s", type=float, help="How long the load with faults lasts, in seconds. [default: 30]"
        ),
        click.option(
            "--warmup",
            "warmup_s",
            type=float,
            help="How long the load before the faults lasts, in seconds. [default: 2]",
        ),
        click.option(
            "--faults",
            metavar="LIST",
            shell_complete=completions.fault_kinds,
            help=f"Kinds of faults, separated by commas: {kinds}; or none. [default: {drawn}]",
        ),
        click.option(
            "--fault-count",
            type=click.IntRange(1),
            metavar="N",
            help="How many faults to draw. [default: as many as the load has room for]",
        ),
        click.option("--nodes", type=int, help="Number of brokers. [default: 3]"),
        click.option("--expect", type=click.Choice(["config", "safe", "loss"]), help=expect),
        click.option("--set", "broker_settings", **pairs, help="A setting of all brokers; may be repeated."),
        click.option("--topic-set", "topic_settings", **pairs, help="A setting of all topics; may be repeated."),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _folder_word(_: click.Context, __: click.Parameter, given: str) -> str:
    if given and re.fullmatch(r"[\w.+\-]{1,200}", given) is None:
        raise click.BadParameter(f"{given!r}: letters, digits and . + - _ make the name of a folder")
    return given


label_flag = click.option(
    "--label",
    default="",
    callback=_folder_word,
    metavar="WORD",
    help="A word for the name of the run directory. [default: the seed]",
)
"""Adds --label to the commands that make run directories."""


@click.command(
    cls=OptionGroupsCommand,
    groups={
        "Plan": ("plan_file", "seed", "time_s", "warmup_s", "expect"),
        "Faults": ("faults", "fault_count", "upgrade_to"),
        "Cluster": (*CLUSTER, "target", "runtime", "volume_mib", "bootstrap", "compose"),
        "Workload": workload_options(),
        "Limits": LIMITS,
        "Judging": ("engine",),
        "Files and progress": ("root", "label", "keep_data", "port", "as_json"),
    },
    epilog="""\b
Examples:
  squall run                                    3 brokers, 4 kinds of faults, half a minute
  squall run --seed 7 --time 60 --faults kill,partition
  squall run --acks 1 --min-isr 1 --faults kill,partition --expect safe
  squall run --plan runs/latest/plan.toml       the same again
  squall run --runtime docker                   the same in containers
  squall run --set log.segment.bytes=65536 --topic-set flush.messages=1
  squall run --engine reference                 without Spark and Java

\b
Exit codes: 0 valid, 1 an anomaly that the configuration does not permit,
2 unknown (neither is proven, the last lines say why), 3 wrong usage, 130 interrupted.""",
)
@plan_flags("process", "docker")
@click.option(
    "--runs",
    "--out",
    "root",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder for run directories.",
)
@click.option(
    "--runtime",
    type=_RuntimeChoice(["process", "docker", "external"]),
    help="Where brokers run: process, docker, or external (a running cluster, see --bootstrap). "
    "[default: the plan's, else process]",
)
@click.option("--volume-mib", type=int, help="With --runtime docker: MiB for each broker's data. [default: no limit]")
@click.option("--bootstrap", metavar="HOST:PORT", help="With --runtime external: the address of one broker.")
@click.option(
    "--compose",
    metavar="FILE",
    help="With --runtime external: the compose file of the brokers; faults may hit its containers.",
)
@click.option("--upgrade-to", metavar="DIR|IMAGE", help="The version to which the fault upgrade changes the brokers.")
@engine_flag
@click.option("--target", type=click.Choice(["squall", "kafka", "other"]), help="The kind of broker. [default: squall]")
@click.option("--keep-data", is_flag=True, help="Keep the brokers' data even if the run is valid.")
@click.option(
    "--metrics",
    "port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve OpenMetrics at 127.0.0.1:PORT/metrics during the run. 0: a free port, which is printed.",
)
@label_flag
@workload_flags()
@json_flag
def command(
    plan_file: Path | None,
    root: Path,
    runtime: str | None,
    keep_data: bool,
    port: int | None,
    label: str,
    engine: str,
    **flags: Any,
) -> int:
    """Run a cluster under load, break it on schedule, and judge what survived.

    Three brokers behind Toxiproxy, load, faults, healing, final reads, a verdict, a report.
    """
    if plan_file is not None and is_typed("plan_file"):
        runtime, flags = of_this_call({"runtime": runtime})["runtime"], of_this_call(flags)
    try:
        plan = plan_of(plan_file, flags, runtime)
    except (PlanError, FaultError) as wrong:
        raise click.UsageError(in_flags(wrong, plan_file, flags)) from None
    from squall.chaos.commands.conclusion import conclude, load_report
    from squall.chaos.commands.setup import offer
    from squall.chaos.runs.exporter import serving
    from squall.chaos.runs.progress import Progress
    from squall.chaos.runs.real import THEN, lacks, run_and_judge

    offer(lacks(plan))
    progress = Progress("squall run", then=THEN)
    with serving(progress, port):
        drawn = plan_file is None or flags.get("faults") is not None
        directory = run_and_judge(plan, root, progress, label, load_report, drawn, engine)
        if directory is None:
            return INTERRUPTED
        path = directory.path
        set_json_result(lambda: _output(path))
        return conclude(directory, keep_data=keep_data, progress=progress)


def _output(path: Path) -> CommandOutput:
    from squall.chaos.commands.outputs import RunOutput
    from squall.chaos.commands.run_output import judged_run

    return RunOutput(run=judged_run(path))


def plan_of(plan_file: Path | None, flags: dict[str, Any], runtime: str | None = None) -> Plan:
    """Return the plan that a plan file (or the defaults) and the given flags make. Raise PlanError or FaultError if it
    is invalid.

    runtime: the runtime to use; None: the plan file's.
    """
    beyond = ""
    if plan_file is not None:
        was = read_plan(plan_file)
        values, beyond = was.model_dump(mode="json"), beyond_limits(was)
        _check_file(plan_file, values, flags, runtime)
    else:
        values = {"seed": _drawn_seed()}
    values["runtime"] = runtime or (values["runtime"] if values.get("runtime") in KEPT else "process")
    given = {name: value for name, value in flags.items() if value is not None}
    if values["runtime"] != "external":
        _check_ours(given)
    for name in ("seed", "time_s", "warmup_s", "expect", "target", "upgrade_to"):
        if name in given:
            values[name] = given[name]
    if Path(values.get("upgrade_to") or "-").is_dir():
        values["upgrade_to"] = str(Path(values["upgrade_to"]).absolute())  # a plan is repeated from anywhere
    cluster = values.setdefault("cluster", make_plan({"workload": {}}).cluster.model_dump(mode="json"))
    if values["runtime"] == "external":
        _as_found(values, given)
    for name in ("nodes", "volume_mib"):
        if name in given:
            cluster[name] = given[name]
    values["workload"] = _table(values.get("workload", {}), given, cluster["nodes"])
    suited = suited_brokers(values["workload"]) if values["runtime"] != "external" else {}
    cluster["settings"] = {**suited, **cluster["settings"], **given["broker_settings"]}
    limits = values.setdefault("limits", {})
    limits.update({name: given[name] for name in LimitsPlan.model_fields if name in given})
    kinds = parse_kinds(given["faults"]) if "faults" in given else None
    if plan_file is not None and kinds is None:
        if "fault_count" in given:
            raise PlanError(f"--fault-count: the faults are those of {plan_file}, unless --faults asks for others")
        if beyond:
            click.echo(f"as it was recorded, {beyond}", err=True)
        return make_plan(values, as_recorded=bool(beyond))
    if kinds == () and "fault_count" in given:
        raise PlanError("--fault-count: --faults none draws no faults")
    # New faults are drawn: the file's do not count, nor the limit of probes that was measured for them.
    for name in ("faults", "probe_ms"):
        values.pop(name, None)
    plan = with_schedule(values, kinds, given.get("fault_count"))
    if missing := kinds_without_room(plan, kinds or ()):
        click.echo(missing, err=True)
    return plan


def _check_file(file: Path, values: dict[str, Any], flags: dict[str, Any], runtime: str | None) -> None:
    """Raise PlanError for a simulation's plan without --runtime, or for load flags if the plan lists its operations."""
    if runtime is None and values["runtime"] == "sim":
        raise PlanError(
            f"{file} is the plan of a simulation. Simulate it: {typed('sim', '--plan', file)}; "
            f"or give it to processes: {typed('run', '--runtime', 'process', '--plan', file)}"
        )
    operations, workload = len(values["operations"] or ()), values["workload"]["name"]
    if not operations:
        return
    if flags.get("workload") not in (None, workload):
        raise PlanError(
            f"--workload {flags['workload']}: the plan has {operations:,} operations of its own, and they are of the "
            f"workload {workload}: leave --workload out, or remove `operations` from {file}"
        )
    if idle := [name for name in SCENARIOS[workload].DRAW_ONLY_SETTINGS if flags.get(name) is not None]:
        options = ", ".join("--" + name.replace("_", "-") for name in idle)
        raise PlanError(
            f"{options}: the plan has {operations:,} operations of its own, and they are its load: leave the option "
            f"out, or remove `operations` from {file}, so that the load is drawn"
        )


def _table(table: dict[str, Any], given: dict[str, Any], nodes: int) -> dict[str, Any]:
    """Return the table `[workload]` of the plan: the plan file's (`table`), overridden by the flags (`given`). If a
    flag names another workload, the file's table is ignored. nodes: the number of brokers.
    """
    name = given.get("workload", table.get("name", DEFAULT))
    table = {**table} if name == table.get("name", DEFAULT) else {}
    scenario = SCENARIOS[name]
    settings = {each: given[each] for each in _settings() if each in given}
    if strange := [each for each in settings if each not in scenario.model_fields]:
        had = {flag_of(each): ", ".join(_settings()[each]) for each in strange}
        lines = [f"{flag}: the workload {name} has no such setting; these have: {by}" for flag, by in had.items()]
        if "workload" not in given and len(only := set(had.values())) == 1 and (meant := only.pop()) in SCENARIOS:
            lines.append(f"did you forget --workload {meant}?")
        raise PlanError("\n".join(lines))
    if "acks" in settings:
        settings["acks"] = -1 if settings["acks"] == "all" else int(settings["acks"])
        if settings["acks"] != -1:
            # An idempotent producer needs acks=all.
            settings.setdefault("idempotence", False)
    factor = scenario.model_fields["replication_factor"].default
    table = {"name": name, **table, **settings}
    if "directory" in scenario.model_fields:
        table["directory"] = os.path.abspath(table.get("directory", ""))  # a plan is repeated from anywhere
    table["topic_settings"] = {**table.get("topic_settings", {}), **given["topic_settings"]}
    table.setdefault("replication_factor", max(1, min(factor, nodes)))  # of no nodes the plan says what is wrong
    table.setdefault("min_isr", min(scenario.model_fields["min_isr"].default, table["replication_factor"]))
    return table


def flag_of(setting: str) -> str:
    """Return the flag that gives a plan's setting."""
    return _FLAGS.get(setting) or "--" + setting.replace("_", "-")


def in_flags(wrong: Exception, plan_file: Path | None, flags: Mapping[str, Any]) -> str:
    """Return the error's text with each plan setting replaced by its flag, such as min_isr by --min-isr. With a plan
    file, settings whose flags were not given keep their names, because they come from the file.
    """

    def named(found: re.Match[str]) -> str:
        setting = next(filter(None, found.groups()))
        given = {"settings": "broker_settings"}.get(setting, setting)
        here = given in flags and (plan_file is None or flags[given] not in (None, {}))
        return flag_of(setting) if here else found[0]

    return _NAMED.sub(named, re.sub(r"(?m)^workload: ", "", str(wrong)))


def _check_ours(given: dict[str, Any]) -> None:
    """Raise PlanError for options of an external cluster if Squall starts the brokers itself."""
    external = [f"--{name}" for name in ("bootstrap", "compose") if name in given]
    if given.get("target") == "other":
        external.append("--target other")
    if external:
        raise PlanError(f"{', '.join(external)}: only for a cluster that already runs: --runtime external")


def _as_found(values: dict[str, Any], given: dict[str, Any]) -> None:
    """Complete `values`, the fields of the plan, for an external cluster: address, broker ids, and no settings for
    brokers. given: the options that were given. Raise PlanError if they do not suit such a cluster.
    """
    import trio

    from squall.chaos.runtimes.external.runtime import discover

    values["bootstrap"] = given.get("bootstrap") or values.get("bootstrap", "")
    values["compose"] = given.get("compose") or values.get("compose", "")
    values["target"] = given.get("target") or values.get("target", "other")
    if not values["bootstrap"]:
        raise PlanError("--runtime external needs --bootstrap HOST:PORT")
    if "nodes" in given or given["broker_settings"]:
        raise PlanError("--nodes and --set: an external cluster has its own brokers and settings")
    ids = sorted(trio.run(discover, values["bootstrap"]))
    values["cluster"].update(nodes=len(ids), ids=ids, settings={})
    # Guarantees depend on this setting, and the cluster's default is not known, so the run's topics set it.
    topic = values.setdefault("workload", {}).setdefault("topic_settings", {})
    topic.setdefault("unclean.leader.election.enable", "false")


def _drawn_seed() -> int:
    import secrets

    return secrets.randbelow(1_000_000)
