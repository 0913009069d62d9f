"""Checks where Apache Kafka listens, what it connects to, and how its log is read."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.contract import Link, ProbeResult, RuntimeCapability
from squall.chaos.runtimes.kafka.layout import CONTROLLER, KafkaLayout, link_host
from squall.chaos.runtimes.kafka.program import KafkaLogReports
from squall.chaos.runtimes.kafka.runtime import KafkaRuntime, KafkaSoftware, kafka_settings
from squall.chaos.runtimes.layout import links
from squall.chaos.runtimes.real.blueprint import blueprint
from squall.chaos.runtimes.real.links import join_probes
from squall.chaos.runtimes.real.processes.ports import free_ports
from squall.chaos.toolchain.kafka import ApacheKafka

NODES, ZONES = (1, 2, 3), ("CLIENT",)
HOME = "127.0.0.1"
LISTENERS = ("INTERNAL", CONTROLLER, *ZONES)
DIRECT = {(name, node): (HOME, 10_000 + 10 * at + node) for at, name in enumerate(LISTENERS) for node in NODES}
PROXIES = {
    link: (link_host(link), DIRECT["INTERNAL", link.target][1])
    if isinstance(link.source, int)
    else (HOME, 20_000 + link.target)
    for link in links(NODES, ZONES)
}
LAYOUT = KafkaLayout(NODES, NODES, ZONES, DIRECT, PROXIES)
YES, NO = ProbeResult(True, 3.0), ProbeResult(False, 700.0, "timed out")


def test_each_node_finds_each_peer_behind_the_proxy_of_just_that_link() -> None:
    lines = [line.split() for line in LAYOUT.hosts(2).splitlines()]
    assert ["127.0.2.1", "node-1"] in lines
    assert ["127.0.0.1", "node-2"] in lines
    assert ["127.0.2.3", "node-3"] in lines
    assert ["127.0.0.1", "localhost"] in lines, "a JVM with a hosts file asks nobody else"


def test_what_a_node_advertises_is_a_name_to_peers_and_a_proxy_to_clients() -> None:
    settings = LAYOUT.settings(3)
    assert (
        settings["advertised.listeners"] == "INTERNAL://node-3:10003,CLIENT://127.0.0.1:20003,CONTROLLER://node-3:10013"
    )
    assert settings["listeners"] == "INTERNAL://127.0.0.1:10003,CLIENT://127.0.0.1:10023,CONTROLLER://127.0.0.1:10013"
    assert settings["controller.quorum.voters"] == "1@node-1:10011,2@node-2:10012,3@node-3:10013"


def test_a_link_between_nodes_is_two_proxies_on_one_address_and_a_clients_is_one() -> None:
    data, control = LAYOUT.families()
    assert data[Link(1, 2)] == (("127.0.1.2", 10_002), (HOME, 10_002))
    assert control[Link(1, 2)] == (("127.0.1.2", 10_012), (HOME, 10_012))
    assert set(control) == {link for link in data if isinstance(link.source, int)}


def test_without_proxies_nodes_and_clients_dial_each_node_itself_at_the_port_that_was_asked_for(tmp_path: Path) -> None:
    (port,) = free_ports(1, set(), Random(0))
    software = KafkaSoftware(
        ApacheKafka("", "", "4.3.1"), None, proxied=False, client_port=port, client_host="localhost"
    )
    plan = blueprint(tmp_path, 1, ZONES, {}, None)
    layout = software.place(plan, lambda count: [(HOME, 10_000 + number) for number in range(count)])
    assert layout.bootstrap("CLIENT") == f"localhost:{port}"
    settings = layout.settings(1)
    assert f"CLIENT://localhost:{port}" in settings["listeners"]
    assert f"CLIENT://localhost:{port}" in settings["advertised.listeners"]
    assert layout.proxies == {}


def test_no_two_proxies_share_an_address() -> None:
    taken = [listen for family in LAYOUT.families() for listen, _ in family.values()]
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize(
    ("found", "hurt", "ok"),
    [([YES, YES], False, True), ([YES, NO], False, False), ([YES, NO], True, True), ([NO, NO], True, False)],
)
def test_one_answer_speaks_against_a_cut_and_one_silence_against_its_end(
    found: list[ProbeResult], hurt: bool, ok: bool
) -> None:
    said = join_probes(found, hurt=hurt)
    assert said.ok is ok
    assert (said.error is None) is ok


def test_a_log_tells_the_broker_epoch_and_version_of_this_incarnation_only(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text(
        "INFO Kafka version: 4.0.0 (org.apache.kafka.common.utils.AppInfoParser)\n"
        "INFO [BrokerLifecycleManager id=1] Successfully registered broker 1 with broker epoch 7 (x)\n"
        "INFO [KafkaRaftServer nodeId=1] Kafka Server started (x)\n"
    )
    words = KafkaLogReports(log)
    assert words.ready(2) is None, "those were the last incarnation's words"
    with log.open("a") as file:
        file.write("INFO Kafka version: 4.3.1 (x)\nINFO Successfully registered broker 1 with broker epoch 45 (x)\n")
        file.write("INFO Kafka Server sta")
    assert words.ready(2) is None
    with log.open("a") as file:
        file.write("rted (x)\n")
    assert words.ready(2) == {"broker_epoch": 45, "version": "4.3.1", "seen_in": "broker.log"}


def test_a_log_that_names_no_epoch_is_no_evidence_of_a_registration(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    words = KafkaLogReports(log)
    log.write_text("INFO Kafka Server started (x)\n")
    with pytest.raises(HarnessError, match="not in which broker epoch"):
        words.ready(1)


@pytest.mark.parametrize(
    ("said", "code", "controlled"),
    [
        ("The controller has asked us to exit controlled shutdown.", 143, True),
        ("The controller has asked us to exit controlled shutdown.", -9, False),
        ("shut down", 143, False),
    ],
)
def test_a_stop_is_controlled_where_the_controller_let_the_broker_go(
    tmp_path: Path, said: str, code: int, controlled: bool
) -> None:
    log = tmp_path / "broker.log"
    words = KafkaLogReports(log)
    log.write_text(f"INFO Beginning controlled shutdown. (x)\nINFO {said} (x)\n")
    assert words.shutdown_report(code).controlled is controlled


def test_settings_of_ours_are_left_out_and_told_and_addresses_are_nobodys_to_give() -> None:
    known, left_out = kafka_settings({"squall.parked.bytes": "1", "num.io.threads": "2"})
    assert (known, left_out) == ({"num.io.threads": "2"}, ("squall.parked.bytes",))
    with pytest.raises(PreconditionError, match="listeners cannot be given"):
        kafka_settings({"listeners": "PLAINTEXT://:9092"})


def test_nobody_can_bend_the_clock_of_a_jvm(tmp_path: Path) -> None:
    assert RuntimeCapability.CLOCK not in KafkaRuntime(tmp_path, kafka=ApacheKafka("java", "jars/*", "4.3.1")).acts
