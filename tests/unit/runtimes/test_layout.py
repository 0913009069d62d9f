"""Addresses and settings of a cluster, and ports that stay ours."""

from __future__ import annotations

import random
import socket

import pytest

from squall.broker.config import load_config, parse_properties
from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes import layout
from squall.chaos.runtimes.contract import Link
from squall.chaos.runtimes.layout import AddressLayout
from squall.chaos.runtimes.real.processes import ports

NODES, ZONES = (1, 2, 3), ("CLIENT", "ZONE_B")
HOST = "127.0.0.1"
LISTENERS = ("INTERNAL", *ZONES)
DIRECT = {(name, node): (HOST, 10_000 + 10 * at + node) for at, name in enumerate(LISTENERS) for node in NODES}
PROXIES = {link: (HOST, 20_000 + at) for at, link in enumerate(layout.links(NODES, ZONES))}


def test_every_directed_pair_and_every_zone_has_a_link_of_its_own() -> None:
    links = layout.links(NODES, ZONES)
    assert len(links) == len(set(links)) == 6 + 6
    assert Link(1, 2) in links
    assert Link(2, 1) in links
    assert Link("ZONE_B", 3) in links


def test_names_of_proxies_differ() -> None:
    assert len({layout.proxy_name(link) for link in PROXIES}) == len(PROXIES)


def test_a_broker_dials_peers_and_advertises_itself_through_proxies() -> None:
    placed = AddressLayout(NODES, NODES, ZONES, DIRECT, PROXIES)
    settings = placed.settings(2)
    assert settings["squall.peers"] == (f"1@{layout.shown(PROXIES[Link(2, 1)])},3@{layout.shown(PROXIES[Link(2, 3)])}")
    assert settings["listeners"] == ("INTERNAL://127.0.0.1:10002,CLIENT://127.0.0.1:10012,ZONE_B://127.0.0.1:10022")
    assert settings["advertised.listeners"] == (
        f"INTERNAL://127.0.0.1:10002,CLIENT://{layout.shown(PROXIES[Link('CLIENT', 2)])},"
        f"ZONE_B://{layout.shown(PROXIES[Link('ZONE_B', 2)])}"
    )
    assert placed.bootstrap("CLIENT") == ",".join(layout.shown(PROXIES[Link("CLIENT", node)]) for node in NODES)


def test_without_proxies_everything_is_reached_straight() -> None:
    placed = AddressLayout(NODES, (1,), ZONES, DIRECT, {})
    assert placed.settings(1)["squall.peers"] == "2@127.0.0.1:10002,3@127.0.0.1:10003"
    assert placed.bootstrap("ZONE_B") == "127.0.0.1:10021,127.0.0.1:10022,127.0.0.1:10023"
    assert placed.settings(1)["process.roles"] == "broker,controller"
    assert placed.settings(2)["process.roles"] == "broker"


def test_the_broker_understands_what_it_is_given() -> None:
    text = layout.properties_text(AddressLayout(NODES, NODES, ZONES, DIRECT, PROXIES).settings(2))
    config = load_config(parse_properties(text))
    assert config.node_id == 2
    assert [peer.node_id for peer in config.squall_peers] == [1, 3]
    assert [voter.node_id for voter in config.controller_quorum_voters] == [1, 2, 3]
    assert config.inter_broker_listener_name == "INTERNAL"


@pytest.mark.parametrize(("nodes", "voters"), [((1,), (1,)), ((1, 2), (1,)), (NODES, NODES), ((1, 2, 3, 4, 5), NODES)])
def test_voters_are_as_many_as_can_lose_one(nodes: tuple[int, ...], voters: tuple[int, ...]) -> None:
    assert layout.choose_controllers(nodes) == voters
    assert layout.choose_controllers((1, 2, 3, 4, 5), 4) == (1, 2, 3, 4)


def test_settings_that_follow_from_the_place_are_refused() -> None:
    with pytest.raises(PreconditionError, match="squall.peers"):
        layout.check_settings({"num.partitions": "3", "squall.peers": "x"})


@pytest.mark.parametrize("zones", [("INTERNAL",), ("client",), ("A-B",), ("A", "A"), ("",)])
def test_zones_that_cannot_be_listeners_are_refused(zones: tuple[str, ...]) -> None:
    with pytest.raises(PreconditionError, match="zone"):
        layout.check_zones(zones)


def test_ports_are_outside_of_the_ephemeral_range_and_not_those_of_others() -> None:
    low, high = ports.ephemeral_range()
    rng = random.Random(1)
    first = ports.free_ports(20, (), rng)
    assert not [port for port in first if low <= port <= high]
    again = ports.free_ports(20, set(first), random.Random(1))
    assert not set(first) & set(again)


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not ports.is_free(server.getsockname()[1])


def test_where_the_ephemeral_range_is_everything_ports_inside_must_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ephemeral_range", lambda: (1024, 65535))
    assert len(ports.free_ports(3, (), random.Random(1))) == 3


def test_too_few_ports_are_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(HarnessError, match="needs 3 free ports"):
        ports.free_ports(3, (), random.Random(1))
