"""Ranges that are free, addresses in them, and what an engine says of ends."""

from __future__ import annotations

import os
import random
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from squall.broker.config import load_config, parse_properties
from squall.chaos.runtimes.contract import Link
from squall.chaos.runtimes.docker import addresses, labels, watch
from squall.chaos.runtimes.docker.addresses import free_ranges, of_networks, place, routed
from squall.chaos.runtimes.layout import properties_text

NODES = (1, 2, 3)


def test_a_range_touches_nobodys() -> None:
    taken = [IPv4Network("10.128.0.0/10"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.7.0/24")]
    found = list(free_ranges(taken, random.Random(1)))
    assert found
    assert not [(a, b) for a in found for b in taken if a.overlaps(b)]


def test_where_everything_is_taken_there_is_none() -> None:
    assert list(free_ranges(addresses.POOLS, random.Random(1))) == []


def test_runs_that_start_together_begin_elsewhere() -> None:
    assert len({next(free_ranges([], random.Random(seed))) for seed in range(20)}) > 15


def test_the_kernels_routes_are_read_and_the_default_route_is_none(tmp_path: Path) -> None:
    table = tmp_path / "route"
    table.write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        "tun0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"
    )
    assert routed(table) == [IPv4Network("192.168.1.0/24"), IPv4Network("10.0.0.0/8")]
    assert routed(tmp_path / "none") == []


def test_ranges_of_an_engines_networks() -> None:
    networks = [
        {"IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}, {"Subnet": "fd00::/64"}]}},
        {"IPAM": {"Config": None}},
        {"IPAM": None},
    ]
    assert of_networks(networks) == [IPv4Network("172.17.0.0/16")]


def test_every_broker_and_every_link_has_an_address_of_its_own_and_the_broker_understands_it() -> None:
    layout = place(IPv4Network("10.200.1.0/24"), NODES, NODES, ("CLIENT",))
    assert layout.bootstrap("CLIENT") == "10.200.1.2:20007,10.200.1.2:20008,10.200.1.2:20009"
    used = [*layout.direct.values(), *layout.proxies.values()]
    assert len(set(used)) == len(used)
    assert layout.target(Link(1, 2)) == ("10.200.1.12", 9091)
    assert layout.target(Link("CLIENT", 2)) == ("10.200.1.12", 9092)
    config = load_config(parse_properties(properties_text(layout.settings(2))))
    assert [(peer.host, peer.port) for peer in config.squall_peers] == [("10.200.1.2", 20003), ("10.200.1.2", 20004)]


@pytest.mark.parametrize(("said", "meant"), [(0, 0), (1, 1), (3, 3), (137, -9), (143, -15), (255, 255)])
def test_an_end_by_a_signal_is_told_as_processes_tell_it(said: int, meant: int) -> None:
    assert watch.signed(said) == meant


def test_labels_tell_whose_they_are_and_whether_he_lives() -> None:
    own = labels.labels_of("r1", "/runs/r1")
    assert labels.harness_alive(own[labels.HARNESS])
    pid, ticks, boot = own[labels.HARNESS].split(":")
    assert pid == str(os.getpid())
    assert not labels.harness_alive(f"{pid}:{int(ticks) - 1}:{boot}")
    assert not labels.harness_alive("who knows")
