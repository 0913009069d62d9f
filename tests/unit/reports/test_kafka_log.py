"""Apache Kafka's own logs tell who led, who was in sync, what was truncated; what they lack is said with the logger."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from squall.checkers import kafka_log
from squall.reports.explained import explained
from squall.reports.lanes import broker_lanes, leader_epochs, partition_lanes
from squall.reports.page import render
from squall.reports.run_files import read_run
from tests.support.histories import kafka_lines
from tests.support.histories.kafka_lines import CHANGE, LOSS, write_logs
from tests.unit.reports.test_foreign_brokers import as_kafka


def told(node: int, lines: list[str], zone_ms: int = 0) -> kafka_log.BrokerLogEvents:
    return kafka_log.read_log(lines, node, lambda ms: ms / 1000, zone_ms)


@pytest.fixture
def kafka_dir(lost_dir: Path) -> Path:
    """The run that lost a record, as Apache Kafka would have left it."""
    as_kafka(lost_dir)
    write_logs(lost_dir, LOSS)
    return lost_dir


def test_a_leader_its_epoch_its_log_and_its_isr_are_told() -> None:
    (event,) = told(2, [kafka_lines.leads(6.0, 2, 1, 50, 48, "3,2")]).events
    assert event == {"t": 6.0, "n": 2, "e": "became_leader", "topic": "appends-0", "partition": 0, "epoch": 1,
                     "leo": 50, "partition_epoch": 1, "hw": 48, "isr": [2, 3]}  # fmt: skip


def test_a_truncation_says_from_where_to_where_and_why() -> None:
    lines = [
        kafka_lines.follows(7.4, 1, 2, 1, 90, 61),
        kafka_lines.truncates(7.5, 1, 2, 50, kafka_lines.epoch_ends(0, 50)),
    ]
    event = told(1, lines).events[1]
    assert (event["from_offset"], event["to_offset"]) == (90, 50)
    assert event["reason"] == "its leader says that epoch 0 ends at 50"


def test_a_new_follower_that_cuts_nothing_has_not_truncated() -> None:
    lines = [kafka_lines.follows(0.6, 2, 1, 0, 0, 0), kafka_lines.truncates(0.7, 2, 1, 0, "local high watermark 0")]
    assert [event["e"] for event in told(2, lines).events] == ["became_follower"]


def test_an_election_that_only_its_deposed_controller_knows_is_not_told() -> None:
    lost = "isr: [1, 2, 3] -> [1], leader: 2 -> 1, leaderEpoch: 0 -> 1, partitionEpoch: 0 -> 1"
    deposed = told(1, [kafka_lines.active(1, 1, 1), kafka_lines.changes(2, 1, lost), kafka_lines.renounces(3, 1, 1)])
    elected = told(2, [kafka_lines.active(2, 2, 2), kafka_lines.changes(4, 2, CHANGE)])
    replayed = told(3, [kafka_lines.changes(5, 3, CHANGE)])
    kafka_log.drop_uncommitted_elections([deposed, elected, replayed])
    said = [(event["n"], event["leader"]) for each in (deposed, elected, replayed) for event in each.events
            if event["e"] == "leader_elected"]  # fmt: skip
    assert said == [(2, 2)]
    assert [event["e"] for event in deposed.events] == ["controller_active", "controller_resigned"]


def test_an_unclean_election_is_told_as_one_with_the_isr_before_it() -> None:
    diff = "leader: -1 -> 3, leaderRecoveryState: RECOVERED -> RECOVERING, leaderEpoch: 1 -> 2, partitionEpoch: 2 -> 3"
    lines = [kafka_lines.active(1, 1, 1), kafka_lines.created(1.5, 1), kafka_lines.changes(2, 1, diff, unclean=True)]
    event = told(1, lines).events[-1]
    assert (event["leader"], event["epoch"], event["unclean"], event["isr"]) == (3, 2, True, [1, 2, 3])


@pytest.mark.parametrize("hours", [-7, 0, 2, 5.75])
def test_times_are_right_in_whatever_zone_the_broker_wrote_them(hours: float) -> None:
    ahead = round(hours * 3_600_000)
    assert kafka_log.zone_of(5_000 + ahead, 1_000) == ahead


@pytest.mark.parametrize(
    ("logger", "said"),
    [
        (kafka_log.ROLES, "turn the logger state.change.logger on at INFO"),
        (kafka_log.TRUNCATIONS, "turn the logger kafka.server.ReplicaFetcherThread on at INFO"),
        (kafka_log.ISRS, "turn the logger kafka.cluster.Partition on at INFO"),
        (kafka_log.ELECTIONS, "turn the logger org.apache.kafka.controller.ReplicationControlManager on at DEBUG"),
    ],
)
def test_a_logger_that_was_off_is_named_with_its_line(kafka_dir: Path, logger: str, said: str) -> None:
    assert not any("logger" in problem for problem in read_run(kafka_dir).problems)
    without = {node: [line for line in lines if f"({logger})" not in line] for node, lines in LOSS.items()}
    write_logs(kafka_dir, without)
    problems = read_run(kafka_dir).problems
    assert any(said in problem and "no line `" in problem for problem in problems), problems


def test_the_loss_of_a_record_has_the_same_story_as_on_our_brokers(kafka_dir: Path) -> None:
    text = " ".join(explained(kafka_dir, "lost-write", 10_000).split())
    for words in (
        "Broker 1 truncates appends-0-0 from 90 to 50, which covers 60: its leader says that epoch 0 ends at 50.",
        "A: record 7 of process 3 (producer 1 of the plan), offset 60 of epoch 0, acknowledged",
        "Broker 1 is killed (LEO ≥ 61, HW ≥",
        "The controller (broker 2) elects broker 2 in epoch 1 (in sync: 2, 3).",
        "Broker 2 leads in epoch 1 (LEO 50, HW 48), in sync: 2, 3. It does not have A",
        "Its copy of A is gone. No log holds A any more.",
        "The final reads do not find A.",
    ):
        assert words in text, words


def test_the_page_draws_leaders_controllers_and_brokers_of_kafka(kafka_dir: Path) -> None:
    files = read_run(kafka_dir)
    assert files.from_broker_logs and files.traces_whole and not files.problems
    assert [(term.epoch, term.leader, term.leo) for term in leader_epochs(files)["appends-0-0"]] == [
        (0, 1, 0),
        (1, 2, 50),
    ]
    lanes = {lane.node: lane for lane in broker_lanes(files, 0.0, 12.0)}
    assert "down" in [span.kind for span in lanes[1].states]
    assert [round(span.begin, 1) for span in lanes[2].controller] == [3.5]
    (lane,) = partition_lanes(files, 0.0, 12.0, {})
    assert [span.kind for span in lane.leaders] == ["1", "2"]
    page = render(kafka_dir).read_text()
    assert 'id="story"' in page and "times of brokers are those of their logs, to the millisecond" in page


def test_damaged_lines_take_nothing_down() -> None:
    rng = Random(1)
    for _ in range(300):
        lines = [list(line) for line in LOSS[rng.randint(1, 3)]]
        for line in lines:
            for _ in range(rng.randint(0, 4)):
                line[rng.randrange(len(line))] = rng.choice("0123456789[](),.:- =xé")
        text = ["".join(line) for line in lines]
        said = told(1, text)
        kafka_log.drop_uncommitted_elections([said])
        kafka_log.missing_loggers([said])
        assert kafka_log.first_ms(text) is not None
    assert kafka_log.first_ms(["[2026-99-99 99:99:99,999] INFO x (y)"]) is None


def test_a_log_that_is_no_kafkas_and_one_that_is_cut_take_nothing_down(kafka_dir: Path) -> None:
    (kafka_dir / "nodes" / "1" / "broker.log").write_bytes(b"\xff\xfe nothing\n[1970-01-01 00:00:01,000] INFO")
    files = read_run(kafka_dir)
    assert not files.traces_whole
    assert "nodes/1/broker.log has nothing: what only broker 1 knew is not told." in files.problems
