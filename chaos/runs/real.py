"""Carries out `squall run` from plan to verdict, except for the display of the result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio
from rich.console import Console

from squall.chaos.drivers.host import LibraryDriver, client_lacks
from squall.chaos.drivers.program import ProgramDriver, ProgramProtocolError, program_of
from squall.chaos.errors import HarnessError, PreconditionError, error_message, gravest_error, traceback_text
from squall.chaos.faults.framed import framed_links
from squall.chaos.faults.kind import FaultTrait
from squall.chaos.faults.triggers import counts_calls
from squall.chaos.interrupts import stoppable
from squall.chaos.plans.plan import Plan, write_plan
from squall.chaos.runs.directory import RunDirectory, writable
from squall.chaos.runs.judgement import judge
from squall.chaos.runs.prestarted_spark import prestart_spark
from squall.chaos.runs.progress import Progress
from squall.chaos.runs.run import MakeDriver, Run
from squall.chaos.runs.run_store import DirectoryRunStore
from squall.chaos.runs.spark import HERE, spark_lacks
from squall.chaos.runs.standstills import record_standstills
from squall.chaos.runs.target_facts import ForeignCluster
from squall.chaos.runtimes.broker_settings import notes
from squall.chaos.runtimes.contract import Runtime
from squall.chaos.runtimes.layout import ZONE, choose_controllers, links, zone_names
from squall.chaos.toolchain.cache import Say
from squall.chaos.toolchain.class_archive import class_archive
from squall.chaos.toolchain.compose_file import FILES, brokers_of
from squall.chaos.toolchain.engine import find_engine
from squall.chaos.toolchain.engine_lacks import engine_lacks
from squall.chaos.toolchain.extras import missing
from squall.chaos.toolchain.images import ensure_images, second_image
from squall.chaos.toolchain.java import java
from squall.chaos.toolchain.kafka import apache_kafka, kafka_lacks, second_kafka
from squall.chaos.toolchain.lacks import MissingDependency, refuse
from squall.chaos.toolchain.places import PACKAGES
from squall.chaos.toolchain.sources import second_version
from squall.chaos.toolchain.toxiproxy import toxiproxy_server
from squall.chaos.typed import absolute_command, typed
from squall.checkers.engines import REFERENCE, SPARK, over_limit

LINES_BYTES = 300
"""Gives the bytes that a record's lines take in history.jsonl."""
HISTORY_BYTES = 1_500
"""Gives the disk space that one record takes outside of the brokers' logs, in bytes: its lines in history.jsonl, its
rows in Parquet, and the data that Spark spills for it.
"""
LOGS_BYTES = 128 << 20
"""Gives the bytes for all that does not grow with the load: first segments, indexes, traces, programs' output, the
report.
"""
THEN = ("heal", "converge", "final reads", "stop the cluster", "judge", "report")
"""Lists the phases after the load that take noticeable time, for the display of the phases to come."""
STRANGERS = {"kafka": "Apache Kafka", "other": "the cluster"}


def run_and_judge(
    plan: Plan,
    root: Path,
    progress: Progress | None = None,
    label: str = "",
    beside: Callable[[], None] | None = None,
    drawn: bool = False,
    engine: str = SPARK,
) -> RunDirectory | None:
    """Run the plan, judge the run, and return the run directory with its verdict, or None if the run was interrupted.

    A failure of the harness ends the run, but what was recorded is judged, and the verdict is unknown. If the user's
    program broke its protocol (`ProgramProtocolError`), the history is not searched. progress: displays the run; the
    caller may continue to use it. label: replaces the seed in the directory's name. beside: called while the history is
    searched. drawn: the plan's faults were drawn at random (`Run`). engine: what searches, SPARK or REFERENCE.
    """
    progress = progress or Progress("squall run", then=THEN)
    say = progress.console
    refuse("this run", lacks(plan, engine))
    writable(root, bytes_needed(plan))
    # Whatever takes minutes to install is installed before anything is timed.
    if engine == SPARK:
        class_archive(java(say.print), say.print)
    if plan.runtime != "docker":  # the image contains it
        toxiproxy_server(say.print)
    make_runtime, stranger = runtime_maker(plan, say.print)  # before the directory exists: a refused run leaves none
    directory = RunDirectory.create(root, plan.seed, label=label)
    prestarted = None
    try:
        directory.reserve()
        runtime = make_runtime(directory.path)
        command = repeat_command(directory, engine)
        say.print(f"run {directory.run_id}: seed {plan.seed}, {plan.how_many} in {plan.time_s:g} s of load")
        for line in notes(plan.cluster.settings, plan.cluster.nodes, ours=plan.target == "squall"):
            say.print(line)
        progress.begin(f"squall run  {directory.run_id}")
        progress.status.about = {
            "run": directory.run_id,
            "seed": str(plan.seed),
            "target": plan.target,
            "runtime": plan.runtime,
            "workload": plan.workload.name,
        }
        store = DirectoryRunStore(directory)
        store.plan(write_plan(plan))
        drivers = driver_maker(plan, directory.path, progress.say)
        run = Run(plan, store, runtime, progress, command, stranger=stranger, drivers=drivers, drawn=drawn)
        prestarted = prestart_spark(directory, say.print) if engine == SPARK else None
        with progress.shown():
            try:
                trio.run(stoppable, partial(record_standstills, run.go, run.info), progress.say)
            except Exception as error:  # whatever it is: what was recorded is judged, and the verdict says what stopped
                _say_trouble(directory, run, error, say)
            if run.info["trouble"] and prestarted is not None:
                # A full disk stops a starting Java as well, which would then never answer.
                prestarted.end()
                prestarted = None
            spark = HERE if engine == SPARK else None
            verdict = judge(directory, say, spark=spark, phase=progress.phase, prestarted=prestarted, beside=beside)
            progress.status.verdict = verdict["verdict"]
    except BaseException as error:
        if not isinstance(gravest_error(error), KeyboardInterrupt):
            raise
        say.print(f"interrupted; no cluster is left. What was recorded: {typed('verify', directory.path)}")
        return None
    finally:
        directory.release()
        if prestarted is not None:
            prestarted.end()
    return directory


def lacks(plan: Plan, engine: str = SPARK) -> list[MissingDependency]:
    """Return everything that the plan needs, that this machine lacks, and that a run does not install itself."""
    in_containers = plan.runtime == "docker" or bool(plan.compose)
    found = spark_lacks() if engine == SPARK else []
    lines = _records(plan) * LINES_BYTES
    if engine == REFERENCE and (large := over_limit("Spark: the history of this load will have about", lines)):
        found.append(MissingDependency(large))
    found += client_lacks(plan.workload.client)
    needs = plan.workload.needs()
    try:
        if needs.program is not None:
            program_of(needs.program, needs.directory)
    except PreconditionError as lack:
        found.append(MissingDependency(str(lack)))
    found += engine_lacks() if in_containers else [MissingDependency(each) for each in missing("run")]
    if not in_containers and plan.runtime == "process" and plan.target == "kafka":
        found += kafka_lacks()
    return found


def bytes_needed(plan: Plan) -> int:
    """Return how many bytes a run may write, with a margin: records on every replica, their lines in the history, logs.
    """
    on_disk = plan.workload.replication_factor * plan.workload.traffic().mean_bytes + HISTORY_BYTES
    return int(_records(plan) * on_disk) + LOGS_BYTES


def _records(plan: Plan) -> float:
    """Estimate how many records the load will send."""
    return plan.workload.traffic().rate * (plan.warmup_s + plan.time_s)


def _say_trouble(directory: RunDirectory, run: Run, error: Exception, say: Console) -> None:
    """Write what ended the run to run.json and to the terminal. For a bug of Squall, write its traceback to a file."""
    # A full disk may be the trouble: the reserved space makes room for run.json. Then it is reserved again.
    directory.release()
    gravest = gravest_error(error)
    if not isinstance(gravest, HarnessError):
        record_traceback(directory, error)
    run.info["trouble"] = run.info["trouble"] or error_message(error)
    if isinstance(gravest, ProgramProtocolError):
        run.info["refused"] = str(gravest)
    directory.write_info(run.info)
    with suppress(PreconditionError):
        directory.reserve()
    say.print("[bold]trouble:[/]", end=" ")
    say.print(str(gravest) if isinstance(gravest, HarnessError) else str(run.info["trouble"]), markup=False)


def runtime_maker(plan: Plan, say: Say) -> tuple[Callable[[Path], Runtime], ForeignCluster | None]:
    """Return the function that makes the plan's runtime in a folder, and a description of the brokers if they are not
    Squall's.

    Raise PreconditionError before anything is made if this machine lacks something that the plan needs. Runtimes are
    imported here, because the packages that they need are optional.
    """
    from squall.chaos.runtimes.docker.runtime import DockerRuntime
    from squall.chaos.runtimes.kafka.runtime import KafkaRuntime, kafka_settings
    from squall.chaos.runtimes.process.runtime import ProcessRuntime

    settings = dict(plan.cluster.settings)
    voters = choose_controllers(plan.nodes, plan.cluster.voters)
    faults = plan.timeline()
    # Other runtimes use the real files, at no cost.
    faulted = any(FaultTrait.NEEDS_HURT_FILES in fault.traits or counts_calls(fault.when) for fault in faults)
    zones = zone_names(plan.workload.zones)
    framed = framed_links(faults, plan.nodes, links(plan.nodes, zones))
    if plan.runtime == "external":
        return _external_maker(plan, say), ForeignCluster(STRANGERS[plan.target])
    if plan.runtime == "docker":
        lossy = any(FaultTrait.NEEDS_PACKET_FILTER in fault.traits for fault in faults)
        engine = find_engine()
        in_containers = partial(DockerRuntime, engine=engine, images=ensure_images(engine, say), nodes=plan.nodes)
        faked = any(FaultTrait.NEEDS_FAKE_TIME in fault.traits for fault in faults)
        as_planned = {
            "settings": settings,
            "controllers": voters,
            "lossy": lossy,
            "fake_time": faked,
            "framed": framed,
            "faulted": faulted,
            "seed": plan.seed,
        }
        as_planned["volume_bytes"] = plan.cluster.volume_mib << 20
        if plan.upgrade_to:
            in_containers.keywords["second"] = second_image(
                engine, plan.upgrade_to, in_containers.keywords["images"], say, faulted=faulted
            )
        return partial(in_containers, zones=zones, say=say, **as_planned), None
    if plan.target == "kafka":
        kafka = apache_kafka(say)
        known, left_out = kafka_settings(settings)
        stranger = ForeignCluster("Apache Kafka", kafka.version, left_out)
        theirs = partial(KafkaRuntime, kafka=kafka, nodes=plan.nodes, zones=zones, settings=known, framed=framed)
        other = second_kafka(plan.upgrade_to, kafka) if plan.upgrade_to else None
        return partial(theirs, controllers=voters, second=other, say=say), stranger
    ours = partial(ProcessRuntime, nodes=plan.nodes, zones=zones, settings=settings, framed=framed, say=say)
    second = second_version(plan.upgrade_to, PACKAGES, faulted=faulted) if plan.upgrade_to else None
    return partial(ours, controllers=voters, faulted=faulted, seed=plan.seed, second=second), None


def _external_maker(plan: Plan, say: Say) -> Callable[[Path], Runtime]:
    """Return the function that makes the runtime of the external cluster in a folder. Raise PreconditionError if the
    container of a broker cannot be identified.
    """
    from squall.chaos.runtimes.external.runtime import ExternalRuntime

    engine, containers = None, {}
    if plan.compose:
        engine = find_engine()
        containers = brokers_of(Path(plan.compose), engine.containers(FILES), plan.nodes)
    topics = plan.workload.topic_names()
    there = partial(ExternalRuntime, bootstrap=plan.bootstrap, nodes=plan.nodes, zones=(ZONE,), topics=topics)
    return partial(there, engine=engine, containers=containers, say=say)


def driver_maker(plan: Plan, folder: Path, say: Say) -> MakeDriver | None:
    """Return the function that starts the plan's client library or program, whose log goes to a file in `folder`; None
    for Squall's own client. say: displays a line if the program takes long to start.
    """
    if plan.workload.needs().program is not None:
        topics = plan.workload.topic_names()
        return lambda bootstrap, needs: ProgramDriver(bootstrap, needs, topics, folder / "clients.log", say)
    client = plan.workload.client
    if client == "squall":
        return None
    return lambda bootstrap, needs: LibraryDriver(client, bootstrap, needs, folder / "clients.log")


def repeat_command(directory: RunDirectory, engine: str = SPARK) -> str:
    """Return the command that repeats a run. The run's plan holds everything but `engine` (Spark or reference), which
    searches the history.
    """
    return absolute_command("run", "--plan", directory.plan, *(("--engine", engine) if engine != SPARK else ()))


def record_traceback(directory: RunDirectory, error: BaseException) -> None:
    """Write the traceback of a failure of the harness into the run directory. The cluster is not to blame for it."""
    (directory.path / "harness-traceback.txt").write_text(traceback_text(error))
    sys.stderr.write(f"a failure of the harness: see {directory.path}/harness-traceback.txt\n")
