"""`squall guarantees`: the cells of the matrix that hold for a configuration, and only those."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from squall.chaos.commands.guarantees import UNDER, command
from squall.checkers import mechanisms
from squall.checkers.guarantees import RunConfiguration, guarantee_for


def told(*flags: str, code: int = 0) -> str:
    # Each paragraph on one line, whatever width the terminal around this test has.
    done = CliRunner().invoke(command, flags, standalone_mode=False, env={"COLUMNS": "2000"})
    assert done.exit_code == code, done.output
    return done.output


def paragraph(text: str, head: str) -> str:
    """Return what is below the line that names these faults."""
    return next(each for each in text.split("\n\n") if each.startswith("Under") and head in each.splitlines()[0])


def test_the_safe_configuration_promises_all_but_under_power_loss_of_several_brokers() -> None:
    text = told("--acks", "all", "--min-isr", "2")
    assert text.startswith("acks=all, min ISR 2 or more (replication factor 3)\n")
    for safe in ("(P, N, C)", "(W1)", "(D)"):
        assert "  - No anomaly is permitted [" in paragraph(text, safe)
    assert "lost-write, unseen: every in-sync replica lost what it had not synced" in paragraph(text, "(WM)")


def test_acks_1_may_lose_where_nothing_but_a_process_dies() -> None:
    assert "lost-write, unseen: only the leader had the record" in paragraph(told("--acks", "1"), "(P, N, C)")


@pytest.mark.parametrize(
    ("acks", "min_isr", "generation", "isolation"),
    [
        *itertools.product(("1", "0"), (1, 2), ("none",), ("read_committed",)),
        *itertools.product(("all",), (1, 2), ("none", "V1", "V2"), ("read_committed", "read_uncommitted")),
    ],
)
def test_every_permitted_anomaly_and_every_source_of_a_configuration_is_told(
    acks: str, min_isr: int, generation: str, isolation: str
) -> None:
    text = told("--acks", acks, "--min-isr", str(min_isr), "--transactional", generation, "--isolation", isolation)
    version = ("none", "V1", "V2").index(generation)
    config = RunConfiguration(
        acks={"all": -1, "1": 1, "0": 0}[acks],
        min_isr=min_isr,
        replication_factor=3,
        idempotence=acks == "all",
        isolation=int(isolation == "read_committed" or not version),
        transaction_version=version,
    )
    numbers = {source: number for number, source in re.findall(r"^  \[(\d+)\] (.*)$", text, re.MULTILINE)}
    for title, classes in UNDER:
        wanted = guarantee_for(config, classes)
        cell = paragraph(text, title)
        for name, reason in wanted.permitted.items():
            number = numbers[wanted.cells[name].source]
            lines = (line.partition(" (mechanism: ")[0] for line in cell.splitlines())
            (line,) = (line for line in lines if line.endswith(f": {reason} [{number}]"))
            assert name.partition("/")[0] in line
        assert ("No anomaly is permitted" in cell) == (not wanted.permitted)
        if not wanted.permitted and wanted.forbids is not None:
            assert f"No anomaly is permitted [{numbers[wanted.forbids.source]}]." in cell
    for number in numbers.values():
        cited = text.partition("Where this is written:")[0].replace(" (mechanism: ", "\n")
        assert re.search(rf"\[{number}\]\.?\n", cited), "no source is there for nothing"


def test_a_min_isr_above_the_replicas_counts_as_their_number() -> None:
    text = told("--min-isr", "2", "--replication-factor", "1")
    assert "A min ISR of 2 counts as 1, the number of replicas." in text
    assert "acks=all, min ISR 1" in text


@pytest.mark.parametrize("flags", [("--acks", "1", "--idempotence"), ("--transactional", "V2", "--no-idempotence")])
def test_what_kafka_refuses_is_refused(flags: tuple[str, ...]) -> None:
    done = CliRunner().invoke(command, flags)
    assert done.exit_code == 2
    assert "Kafka refuses" in done.output


def test_each_mechanism_that_is_needed_is_told_as_the_docs_have_it() -> None:
    text = told("--acks", "0", "--commits", "auto")
    page = Path("docs/permissions.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| mechanism")]
    assert rows == [f"| {each.name} | {each.what} | {each.seen} |" for each in mechanisms.ALL]
    named = set(re.findall(r"\(mechanism: ([^)]*)\)", text))
    by_faults = {
        *("lost on the way", "lost copy", "replaced record", "second record", "retry"),
        *("disk damage", "coordinator's loss"),
    }
    assert named == by_faults | {"got again", "unfinished"}
    for each in mechanisms.ALL:
        assert (f"  - {each.name}: {each.what}. Seen by: {each.seen}." in text) is (each.name in named)
    assert "(mechanism:" not in told("--acks", "all", "--min-isr", "2", "--flush-messages", "1")


@pytest.mark.parametrize("generation", ["none", "V1", "V2"])
def test_the_late_end_of_kafka_17754_is_permitted_with_v1_and_excluded_by_name_with_v2(generation: str) -> None:
    text = told("--transactional", generation, "--isolation", "read_committed")
    assert ("Not permitted with V2: KAFKA-17754" in text) is (generation == "V2")
    assert ("late end" in text) is (generation == "V1")


def test_auto_commit_says_which_clients() -> None:
    text = told("--commits", "auto")
    assert re.search(r"eos-loss: .*librdkafka and aiokafka commit in the background.*; Java's consumer", text)


def test_a_damaged_disk_of_one_replica_is_judged_by_the_rules_of_its_broker() -> None:
    ours, kafka = (paragraph(told("--target", target), "(D)") for target in ("squall", "kafka"))
    assert "No anomaly is permitted" in ours
    names = "lost-write, unseen, corrupt, wrong-lookup, stuck-consumer, stuck-group, not-converged"
    assert f"{names}: Apache Kafka" in kafka
