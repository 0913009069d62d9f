"""`squall run`: a cluster, load, faults, and what survived."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from chaos.faults.vocabulary import ACTIONS, FaultError
from chaos.plans.plan import LimitsPlan, Plan, PlanError, WorkloadPlan, make_plan, read_plan, with_schedule
from chaos.plans.schedule import DEFAULT_KINDS, parse_kinds

_HELP = {
    "topics": "Topics of the workload.",
    "partitions": "Partitions of each topic.",
    "replication_factor": "Replicas of each partition.",
    "min_isr": "min.insync.replicas of the topics.",
    "client": "Which library produces and reads.",
    "acks": "all, 1 or 0.",
    "idempotence": "Idempotent producers; off by itself where acks is not all.",
    "max_in_flight": "Produce requests in flight on each connection.",
    "producers": "Producing processes at a time.",
    "readers": "Readers beside them.",
    "zones": "Client zones, over which both are dealt by turns; a fault may hit one: target zone:N.",
    "rate": "Records a second, all producers together.",
    "min_bytes": "Smallest record.",
    "max_bytes": "Largest record.",
    "linger_ms": "How long a producer waits to fill a batch.",
    "batch_bytes": "Largest batch.",
    "codec": "Compression of batches.",
    "poll_pause_ms": "How long a reader takes over what a poll brought.",
    "request_timeout_ms": "Until a request counts as lost.",
    "delivery_timeout_ms": "Until a record is given up.",
    "converge_s": "Limit for full ISRs after healing.",
    "final_read_s": "Limit for each final reader.",
    "stuck_s": "No progress for so long after healing is a finding.",
}
INTERRUPTED = 130
KEPT = ("docker", "external")
"""Runtimes of a plan's file that are the run's, too."""
_LEFT_OUT = ("name", "topic_settings")


def workload_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for every setting of the workload and the limits."""
    for part in (LimitsPlan, WorkloadPlan):
        for name, field in reversed(part.model_fields.items()):
            if name in _LEFT_OUT:
                continue
            flag = "--" + name.replace("_", "-")
            shown = f"{_HELP[name]} [default: {'all' if name == 'acks' else field.default}]"
            if field.annotation is bool:
                option = click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=shown)
            elif name == "acks":
                option = click.option(flag, name, type=click.Choice(["all", "-1", "1", "0"]), help=shown)
            elif get_origin(field.annotation) is Literal:
                option = click.option(flag, name, type=click.Choice(get_args(field.annotation)), help=shown)
            else:
                option = click.option(flag, name, type=field.annotation, help=shown)
            command = option(command)
    return command


def _pairs(_: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{each!r}: NAME=VALUE is wanted, as in {option.opts[0]} segment.bytes=65536")
        found[name.strip()] = value.strip()
    return found


def plan_flags(runtime: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The flags that make a plan; `plan_of` takes what they and `workload_flags` give."""
    kinds = ",".join(name for name, action in ACTIONS.items() if runtime in action.runtimes)
    drawn = ",".join(DEFAULT_KINDS)
    pairs: dict[str, Any] = {"multiple": True, "callback": _pairs, "metavar": "NAME=VALUE"}
    expect = "Hold the run to what its configuration promises, to everything, or to a loss. [default: config]"
    options = (
        click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="Repeat it; other flags go over it."),
        click.option("--seed", type=int, help="Draws the faults and every random choice. [default: drawn, and shown]"),
        click.option("--time", "time_s", type=float, help="Seconds of load with faults. [default: 30]"),
        click.option("--warmup", "warmup_s", type=float, help="Seconds of load before. [default: 2]"),
        click.option("--faults", help=f"A list of {kinds}; or none. [default: {drawn}]"),
        click.option("--nodes", type=int, help="Brokers. [default: 3]"),
        click.option("--expect", type=click.Choice(["config", "safe", "loss"]), help=expect),
        click.option("--set", "broker_settings", **pairs, help="A broker setting."),
        click.option("--topic-set", "topic_settings", **pairs, help="A topic setting."),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command(
    epilog="""\b
Examples:
  squall run                                    3 brokers, all faults, half a minute
  squall run --seed 7 --time 60 --faults kill,partition
  squall run --acks 1 --min-isr 1 --faults kill,partition --expect safe
  squall run --plan runs/latest/plan.toml       the same again
  squall run --runtime docker                   the same in containers
  squall run --set log.segment.bytes=65536 --topic-set flush.messages=1

\b
Exit codes: 0 valid, 1 an anomaly that the configuration does not permit,
2 unknown (nothing was judged), 3 usage."""
)
@plan_flags("process")
@click.option(
    "--runs",
    "--out",
    "root",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Where run directories go.",
)
@click.option(
    "--runtime",
    type=click.Choice(["process", "docker", "external"]),
    help="Where. external: a cluster that is there. [default: the plan's, else process]",
)
@click.option("--volume-mib", type=int, help="Of runtime docker: MiB for each broker's data. [default: no limit]")
@click.option("--bootstrap", metavar="HOST:PORT", help="Of an external cluster.")
@click.option("--compose", metavar="FILE", help="Whose containers are an external cluster's brokers, to be hurt.")
@click.option("--upgrade-to", metavar="DIR|IMAGE", help="The second version, of the fault upgrade.")
@click.option("--target", type=click.Choice(["squall", "kafka", "other"]), help="Whose brokers. [default: squall]")
@click.option("--keep-data", is_flag=True, help="Keep the brokers' data also of a valid run.")
@workload_flags
def command(plan_file: Path | None, root: Path, runtime: str | None, keep_data: bool, **flags: Any) -> int:
    """Run a cluster under load, break it on schedule, and judge what survived.

    Three brokers behind Toxiproxy, load, faults, healing, final reads, Spark's verdict, a report.
    """
    try:
        plan = plan_of(plan_file, flags, runtime)
    except (PlanError, FaultError) as wrong:
        raise click.UsageError(str(wrong)) from None
    from chaos.commands.conclusion import conclude
    from chaos.runs.real import run_and_judge

    directory = run_and_judge(plan, root)
    return INTERRUPTED if directory is None else conclude(directory, keep_data=keep_data)


def plan_of(plan_file: Path | None, flags: dict[str, Any], runtime: str | None = None) -> Plan:
    """The plan that a file (or the defaults) and the given flags make. PlanError, FaultError.

    runtime: where, else where the file says; but what was simulated is played by processes.
    """
    if plan_file is not None:
        values = read_plan(plan_file).model_dump(mode="json")
    else:
        values = {"seed": _drawn_seed()}
    values["runtime"] = runtime or (values["runtime"] if values.get("runtime") in KEPT else "process")
    given = {name: value for name, value in flags.items() if value is not None}
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
    cluster["settings"] = {**cluster["settings"], **given["broker_settings"]}
    workload = values.setdefault("workload", {})
    workload.update(
        {name: given[name] for name in WorkloadPlan.model_fields if name in given and name not in _LEFT_OUT}
    )
    workload["topic_settings"] = {**workload.get("topic_settings", {}), **given["topic_settings"]}
    if "acks" in given:
        workload["acks"] = -1 if given["acks"] == "all" else int(given["acks"])
        if workload["acks"] != -1 and "idempotence" not in given:
            workload["idempotence"] = False
    if "replication_factor" not in workload:
        workload["replication_factor"] = min(3, cluster["nodes"])
    if "min_isr" not in workload:
        workload["min_isr"] = min(2, workload["replication_factor"])
    limits = values.setdefault("limits", {})
    limits.update({name: given[name] for name in LimitsPlan.model_fields if name in given})
    kinds = parse_kinds(given["faults"]) if "faults" in given else None
    if plan_file is not None and kinds is None:
        return make_plan(values)
    values.pop("faults", None)
    return with_schedule(values, kinds)


def _as_found(values: dict[str, Any], given: dict[str, Any]) -> None:
    """Of an external cluster the plan says what it is: its brokers, and that its settings are its own."""
    import trio

    from chaos.runtimes.external.runtime import discover

    values["bootstrap"] = given.get("bootstrap") or values.get("bootstrap", "")
    values["compose"] = given.get("compose") or values.get("compose", "")
    values["target"] = given.get("target") or values.get("target", "other")
    if not values["bootstrap"]:
        raise PlanError("--runtime external needs --bootstrap HOST:PORT")
    if "nodes" in given or given["broker_settings"]:
        raise PlanError("--nodes and --set: an external cluster has its own brokers and settings")
    ids = sorted(trio.run(discover, values["bootstrap"]))
    values["cluster"].update(nodes=len(ids), ids=ids, settings={})
    # What decides what is promised is said of the run's own topics: the cluster's defaults are not known.
    topic = values.setdefault("workload", {}).setdefault("topic_settings", {})
    topic.setdefault("unclean.leader.election.enable", "false")


def _drawn_seed() -> int:
    import secrets

    return secrets.randbelow(1_000_000)
