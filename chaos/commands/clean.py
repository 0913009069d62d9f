"""Implements `squall clean`, which ends the processes and containers that interrupted runs left behind."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from squall.chaos.toolchain.engine import DockerEngine


@click.command()
@click.option("--dry-run", is_flag=True, help="Only print what would be ended.")
@click.option("--images", is_flag=True, help="Also remove Squall's Docker images; they are built again when needed.")
def command(dry_run: bool, images: bool) -> int:
    """End the processes and containers that an interrupted run left behind, and nothing else.

    `clean` ends a process only if the registry of runs lists it with the same start time, its environment names the
    run, and the run's harness has ended. It removes containers and networks whose labels name such a run. It starts or
    resumes containers of other people's clusters (--runtime external) that such a run had stopped or paused. It does
    not touch runs that are under way.

    \b
    Examples:
      squall clean
      squall clean --dry-run
    """
    report = LeftoverReport(dry_run)
    _resume_foreign_containers(report)
    _end_processes(report)
    _remove_containers(report, images)
    if not report.ended:
        click.echo("nothing was left behind" + (f" ({report.under_way} under way)" if report.under_way else ""))
    return 0


class LeftoverReport:
    """Counts the leftovers of runs that `squall clean` finds, and prints a line for each of them."""

    def __init__(self, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.ended = self.under_way = 0

    def count_running(self, run: str, what: str) -> None:
        """Print that the run is still under way and is left alone, and count it. what: the part that was found, such as
        "3 containers".
        """
        self.under_way += 1
        click.echo(f"{run}: under way with {what}, left alone")

    def count_ended(self, run: str, name: str) -> None:
        """Print that the process, container or image was ended, or with --dry-run would be, and count it."""
        self.ended += 1
        click.echo(f"{run}: {'would end' if self.dry_run else 'ended'} {name}")

    def count_resumed(self, run: str, name: str) -> None:
        """Print that a container which Squall did not create runs again, or with --dry-run would, and count it. name:
        the container, and how the run left it.
        """
        self.ended += 1
        click.echo(f"{run}: {'would let run' if self.dry_run else 'let run'} {name} again")


def _resume_foreign_containers(report: LeftoverReport) -> None:
    """Start or resume the containers that dead runs had stopped or paused in a cluster that Squall did not create
    (--runtime external). Call this before `_end_processes`, which removes those runs from the registry.
    """
    from squall.chaos.runtimes.real.processes import registry
    from squall.chaos.toolchain.engine import reach_engine

    hurt = [(run.run, container) for run in registry.runs() if not run.harness_alive for container in run.hurt]
    if not hurt:
        return
    engine = reach_engine()
    for run, container in hurt:
        status = engine.status(container)
        # It runs again, or is gone: somebody has seen to it meanwhile.
        if status not in ("paused", "exited"):
            continue
        report.count_resumed(run, f"container {container[:12]}, which it left {status}")
        if not report.dry_run:
            (engine.unpause if status == "paused" else engine.start)(container)
    engine.close()


def _end_processes(report: LeftoverReport) -> None:
    from squall.chaos.runtimes.real.processes import registry

    for run in registry.runs():
        if run.harness_alive:
            report.count_running(run.run, f"{len(run.processes)} processes")
            continue
        would = [f"{each.what} (pid {each.process.pid})" for each in run.processes]
        for name in would if report.dry_run else registry.end(run):
            report.count_ended(run.run, name)


def _remove_containers(report: LeftoverReport, images: bool) -> None:
    """Remove the containers and networks of dead runs, and with `images` Squall's images. Without an engine, print
    nothing unless DOCKER_HOST or `dockerd` shows that there should be one.
    """
    from squall.chaos.errors import PreconditionError
    from squall.chaos.runtimes.docker import labels
    from squall.chaos.toolchain.engine import reach_engine

    try:
        engine = reach_engine()
    except PreconditionError as refused:
        if os.environ.get("DOCKER_HOST") or shutil.which("dockerd"):
            click.echo(f"containers were not looked for: {str(refused).splitlines()[0]}", err=True)
        return
    for left in labels.find(engine):
        if left.harness_alive:
            report.count_running(left.run, f"{len(left.containers)} containers")
            continue
        names = left.names()
        for name in names if report.dry_run else labels.remove(engine, left):
            report.count_ended(left.run, name)
    if images:
        _remove_images(engine, report)
    engine.close()


def _remove_images(engine: DockerEngine, report: LeftoverReport) -> None:
    from squall.chaos.toolchain.images import LABEL

    # Images from which others are made are removed last.
    made_of = {"base": 2, "broker": 1}
    for image in sorted(engine.images(LABEL), key=lambda each: made_of.get(each["Labels"].get(LABEL), 0)):
        name = (image.get("RepoTags") or [image["Id"]])[0]
        if report.dry_run or engine.forget_image(image["Id"]):
            report.count_ended("images", name)
        else:
            click.echo(f"images: {name} is in use, left alone")
