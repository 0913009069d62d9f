"""Runs one node in this OS process until SIGTERM or Ctrl-C: `python -m squall.broker --config FILE.properties`."""

from __future__ import annotations

import gc
import resource
import signal
import sys
from collections.abc import Iterable

import trio

from squall.broker.cluster.feed import UnsupportedFeature
from squall.broker.config import BrokerConfig, ConfigError, load_config_text
from squall.broker.control.port import RegistrationFailed
from squall.broker.log.manager import InconsistentMetaProperties
from squall.broker.node import broker_main
from squall.broker.real_env import RealEnv
from squall.broker.replicas.fetcher import StorageFailed
from squall.broker.turn_meter import TaskStepMeter

REFUSALS = (OSError, RegistrationFailed, StorageFailed, UnsupportedFeature, InconsistentMetaProperties)
"""Lists errors that have a cause outside of the code (configuration, disk, cluster). They end the OS process with a
message of one sentence instead of a traceback.
"""
USAGE, FAILED = 3, 1


async def _run(env: RealEnv, config: BrokerConfig, meter: TaskStepMeter | None) -> None:
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, stop)
        if meter is not None:
            await nursery.start(_report_on_signal, meter)
        longest_turn_s = None if meter is None else lambda: meter.longest_s
        await broker_main(env, config, stop=stop, longest_turn_s=longest_turn_s)
        nursery.cancel_scope.cancel()
    if meter is not None:
        meter.report()


async def _report_on_signal(meter: TaskStepMeter, task_status: trio.TaskStatus[None]) -> None:
    """Write a report of the longest task step to the node's trace (its file of events) whenever SIGUSR1 arrives. A task
    step is the work of one task between two checkpoints of trio (`TaskStepMeter`).
    """
    with trio.open_signal_receiver(signal.SIGUSR1) as signals:
        task_status.started()
        async for _ in signals:
            meter.report()


async def _stop_on_signal(stop: trio.Event) -> None:
    """Begin a controlled shutdown on the first signal, and end the OS process at once on the second."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            if stop.is_set():
                sys.exit(FAILED)
            stop.set()


def main() -> int:
    """Run the node that the command line describes. Return exit code 0 after a requested stop, 1 after a failure, 3 for
    an invalid command line or configuration.
    """
    arguments = sys.argv[1:]
    if len(arguments) not in (2, 4) or arguments[0] != "--config" or arguments[2:3] not in ([], ["--faults"]):
        sys.stderr.write("usage: python -m squall.broker --config FILE.properties [--faults FOLDER]\n")
        return USAGE
    _open_as_many_files_as_allowed()
    path = arguments[1]
    try:
        with open(path, encoding="utf-8") as file:
            config = load_config_text(file.read())
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        _print_lines(path, str(error).splitlines())
        return USAGE
    _print_lines(path, config.ignored)
    try:
        env = _env(config, arguments[3] if len(arguments) == 4 else None)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"broker: {error}\n")
        return USAGE
    # What was imported stays: a full collection that walks over its 36,000 objects holds up all for tens of ms.
    gc.freeze()
    try:
        meter = TaskStepMeter(env.trace) if config.squall_turn_measurement_enable else None
        trio.run(_run, env, config, meter, instruments=[] if meter is None else [meter])
    except BaseExceptionGroup as group:
        ours, others = group.split(REFUSALS)
        if others is not None:
            raise
        for leaf in leaves(ours):
            sys.stderr.write(f"broker: {leaf}\n")
        return FAILED
    return 0


def _print_lines(path: str, lines: Iterable[str]) -> None:
    for line in lines:
        sys.stderr.write(f"broker: {path}: {line}\n")


def _open_as_many_files_as_allowed() -> None:
    """Raise the limit of open files to the maximum: a log has three files open, and shells set a low limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _env(config: BrokerConfig, faults: str | None) -> RealEnv:
    """Return the environment (clock, network, files, randomness) in which the node runs. `faults` is the folder through
    which the harness commands disk faults, or None for a node without them.
    """
    name, incarnation = f"broker-{config.node_id}", config.squall_incarnation
    trace_path, clock_offset_path = config.squall_trace_path, config.squall_clock_offset_path
    if faults is None:
        return RealEnv(name, incarnation, trace_path=trace_path, clock_offset_path=clock_offset_path)
    from squall.broker.faulted.env import FaultedEnv

    return FaultedEnv(
        name,
        folder=faults,
        roots=config.log_dirs or (config.log_dir,),
        incarnation=incarnation,
        trace_path=trace_path,
        clock_offset_path=clock_offset_path,
    )


def leaves(group: BaseException | None) -> list[BaseException]:
    """Return the single exceptions of a group, including those of nested groups."""
    if isinstance(group, BaseExceptionGroup):
        return [leaf for each in group.exceptions for leaf in leaves(each)]
    return [] if group is None else [group]


if __name__ == "__main__":
    sys.exit(main())
