"""Implements `squall guarantees`, which prints what a configuration promises under each class of faults, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import click

from squall.chaos.commands.json_output import json_flag, set_json_result
from squall.chaos.screen import columns

if TYPE_CHECKING:
    from squall.chaos.commands.outputs import CommandOutput
    from squall.checkers.guarantees import PermittedAnomalies
    from squall.checkers.mechanisms import AnomalyMechanism

ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
LEVELS = ("read_uncommitted", "read_committed")
COMMITS = ("auto", "before", "after", "transaction")
GENERATIONS = {"none": 0, "V1": 1, "V2": 2}
UNDER: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("no fault", ()),
    ("faults of processes, network and clocks (P, N, C)", ("P", "N", "C")),
    ("power loss of one broker at a time (W1)", ("W1",)),
    ("power loss of several brokers (WM)", ("W1", "WM")),
    ("disk damage on one replica (D)", ("D",)),
)
"""Lists the columns of the table that `squall guarantees` prints. Each has a title, and the classes of faults that it
is about.
"""
NOT_WITH_V2 = (
    "Not permitted with V2: KAFKA-17754, a late EndTxn that ends the producer's next transaction. Each transaction has "
    "an epoch of its own (KIP-890 part 2), so the coordinator refuses the late request. V1 permits it."
)


@click.command()
@click.option("--acks", type=click.Choice([*ACKS]), default="all", show_default=True, help="acks of the producer.")
@click.option("--min-isr", type=click.IntRange(1), default=2, show_default=True, help="min.insync.replicas.")
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Replication factor of the topic.",
)
@click.option(
    "--idempotence/--no-idempotence",
    default=None,
    help="Whether the producer is idempotent. [default: on if acks is all]",
)
@click.option(
    "--max-in-flight",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Produce requests in flight on each connection.",
)
@click.option(
    "--isolation",
    type=click.Choice(LEVELS),
    default=LEVELS[0],
    show_default=True,
    help="Isolation level of the reader.",
)
@click.option(
    "--transactional",
    type=click.Choice([*GENERATIONS]),
    default="none",
    show_default=True,
    help="Transaction version that the producer speaks.",
)
@click.option(
    "--commits",
    type=click.Choice(["none", *COMMITS]),
    default="none",
    show_default=True,
    help="How a group's member commits positions: at intervals, before or after its outputs, or in their transaction.",
)
@click.option("--unclean", is_flag=True, help="unclean.leader.election.enable is on.")
@click.option(
    "--target", type=click.Choice(["squall", "kafka"]), default="squall", show_default=True, help="Kind of broker."
)
@click.option("--flush-messages", type=click.IntRange(1), help="flush.messages. [default: never]")
@json_flag
def command(
    acks: str,
    min_isr: int,
    replication_factor: int,
    idempotence: bool | None,
    max_in_flight: int,
    isolation: str,
    transactional: str,
    commits: str,
    unclean: bool,
    target: str,
    flush_messages: int | None,
) -> int:
    """Print what a configuration promises: for each class of faults the anomalies that it permits, why, and the source
    of each reason. Any other anomaly makes a run invalid.

    \b
    Examples:
      squall guarantees
      squall guarantees --acks all --min-isr 2
      squall guarantees --acks 1
      squall guarantees --transactional V1 --isolation read_committed
      squall guarantees --commits auto
      squall guarantees --target kafka
    """
    from squall.checkers.anomalies.registry import FOUND
    from squall.checkers.guarantees import RunConfiguration, guarantee_for

    on = acks in ("all", "-1") if idempotence is None else idempotence
    if on and ACKS[acks] != -1:
        raise click.UsageError(f"--idempotence needs --acks all: Kafka refuses it with acks={acks}")
    if commits == "transaction" and transactional == "none":
        raise click.UsageError("--commits transaction needs --transactional V1 or V2")
    if transactional != "none" and not on:
        raise click.UsageError("--transactional needs --acks all and idempotence: Kafka refuses them otherwise")
    config = RunConfiguration(
        acks=ACKS[acks],
        min_isr=min_isr,
        replication_factor=replication_factor,
        idempotence=on,
        max_in_flight=max_in_flight,
        unclean=unclean,
        foreign_brokers=target == "kafka",
        flush_messages=flush_messages,
        # Without transactions both isolation levels are equal, because all records are committed.
        isolation=LEVELS.index(isolation) if transactional != "none" else 1,
        transaction_version=GENERATIONS[transactional],
        commits="" if commits == "none" else commits,
    )
    cells = [(title, guarantee_for(config, classes)) for title, classes in UNDER]
    set_json_result(lambda: _output(cells))
    _say(f"{cells[0][1].row} (replication factor {replication_factor})")
    if min_isr > replication_factor:
        _say(f"A min ISR of {min_isr} counts as {config.effective_min_isr}, the number of replicas.")
    numbers = {source: at for at, source in enumerate(_sources(each for _, each in cells), 1)}
    alike: dict[tuple[str, ...], list[str]] = {}
    for title, each in cells:
        alike.setdefault(tuple(_by_reason(each, numbers)), []).append(title)
    for reasons, titles in alike.items():
        _say(f"\nUnder {'; '.join(titles)}:")
        for reason in reasons:
            _say(reason, "  - ")
    if transactional == "V2":
        _say(f"\n{NOT_WITH_V2}")
    _say_mechanisms(each for _, each in cells)
    _say("\nWhere this is written:")
    for source, number in numbers.items():
        _say(source, f"  [{number}] ")
    _say(f"\nSquall looks for {len(FOUND)} anomalies (docs/verdicts.md). Those that are not named here are forbidden.")
    return 0


def _output(cells: Iterable[tuple[str, PermittedAnomalies]]) -> CommandOutput:
    from squall.chaos.commands.outputs import ConfigurationGuarantees, GuaranteesOutput, PermittedAnomaly
    from squall.checkers.anomalies.registry import FOUND
    from squall.checkers.mechanisms import ITSELF
    from squall.checkers.reasons import mechanism_of

    def permissions(each: PermittedAnomalies) -> Iterator[PermittedAnomaly]:
        for name, reason in each.permitted.items():
            anomaly, _, evidence = name.partition("/")
            needs = mechanism_of(reason)
            yield PermittedAnomaly(
                anomaly=anomaly,
                evidence=evidence,
                reason=reason,
                source=each.cells[name].source,
                mechanism="" if needs is ITSELF else needs.name,
            )

    rows = list(cells)
    classes = dict(UNDER)
    return GuaranteesOutput(
        row=rows[0][1].row,
        promises=tuple(
            ConfigurationGuarantees(under=title, fault_classes=classes[title], permitted=tuple(permissions(each)))
            for title, each in rows
        ),
        looked_for=tuple(FOUND),
    )


def _say(text: str, head: str = "") -> None:
    """Print a paragraph wrapped to the terminal's width, or as one line if the output is a pipe. `head` goes before its
    first line.
    """
    blank = "\n" * (len(text) - len(text.lstrip("\n")))
    indent = " " * len(head)
    click.echo(blank + textwrap.fill(text.strip("\n"), columns(), initial_indent=head, subsequent_indent=indent))


def _sources(guarantees: Iterable[PermittedAnomalies]) -> Iterator[str]:
    """Yield the sources (such as a KIP) that say why anomalies are permitted. If a guarantee permits no anomaly, yield
    the source that promises that no record is lost. Each source is yielded once.
    """
    found: dict[str, None] = {}
    for each in guarantees:
        cells = each.cells.values() or [each.forbids]
        found.update(dict.fromkeys(cell.source for cell in cells if cell is not None))
    yield from found


def _say_mechanisms(guarantees: Iterable[PermittedAnomalies]) -> None:
    """Print the mechanisms of these guarantees. Some anomalies are permitted only if a record was lost or duplicated in
    a certain way, which is called a mechanism.
    """
    if needed := _mechanisms(guarantees):
        _say("\nA finding is permitted only if its mechanism hit that very record (docs/permissions.md):")
        for mechanism in needed:
            _say(f"{mechanism.name}: {mechanism.what}. Seen by: {mechanism.seen}.", "  - ")


def _mechanisms(guarantees: Iterable[PermittedAnomalies]) -> list[AnomalyMechanism]:
    """Return the mechanisms that these guarantees require, each once. A mechanism is an event, such as a power loss,
    that must have hit a record; otherwise an anomaly of this record is not permitted.
    """
    from squall.checkers.mechanisms import ITSELF
    from squall.checkers.reasons import mechanism_of

    needed = [mechanism_of(reason) for each in guarantees for reason in each.permitted.values()]
    return [each for each in dict.fromkeys(needed) if each is not ITSELF]


def _by_reason(guarantee: PermittedAnomalies, numbers: Mapping[str, int]) -> list[str]:
    """Return one line for each reason why anomalies are permitted, such as "inconsistent-offset (acks): REASON [3]":
    the anomalies, the reason, and the number of the reason's source in the printed list of sources. An anomaly that is
    permitted only on some kinds of evidence has these kinds in brackets. numbers: maps each source to its number.
    """
    from squall.checkers.mechanisms import ITSELF
    from squall.checkers.reasons import mechanism_of

    found: dict[str, dict[str, list[str]]] = {}
    for name, reason in guarantee.permitted.items():
        anomaly, _, evidence = name.partition("/")
        needs = mechanism_of(reason)
        only = "" if needs is ITSELF else f" (mechanism: {needs.name})"
        why = f"{reason} [{numbers[guarantee.cells[name].source]}]{only}"
        found.setdefault(why, {}).setdefault(anomaly, []).extend([evidence] if evidence else [])
    if not found:
        assert guarantee.forbids is not None, guarantee.row
        return [f"No anomaly is permitted [{numbers[guarantee.forbids.source]}]."]
    return [f"{', '.join(_named(names))}: {reason}" for reason, names in found.items()]


def _named(names: dict[str, list[str]]) -> Iterator[str]:
    for anomaly, evidence in names.items():
        yield f"{anomaly} ({', '.join(evidence)})" if evidence else anomaly
