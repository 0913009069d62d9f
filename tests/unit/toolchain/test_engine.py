"""Checks which engines will do, and what is said of those that will not."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from squall.chaos.errors import PreconditionError
from squall.chaos.toolchain import engine
from squall.chaos.toolchain.engine import check, find_engine, host_name

FINE: dict[str, Any] = {"ServerVersion": "28.0", "OSType": "linux", "MemoryLimit": True, "CpuCfsQuota": True}


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_an_engine_as_they_are_will_do() -> None:
    check(FINE, "1.41")


def test_a_container_with_a_long_name_has_a_host_name_that_the_kernel_takes() -> None:
    run = "squall-20260704T010000-squall-docker.transactions.processes.seed2026070400-4242-0a1b2c3d"
    names = [host_name(f"{run}-broker-{node}") for node in (1, 2)]
    assert names == [f"{run}-broker-{node}"[-63:].lstrip("-.") for node in (1, 2)]
    assert all(len(name) <= 63 and name[0].isalnum() for name in names)
    assert host_name("squall-run-broker-1") == "squall-run-broker-1"


@pytest.mark.parametrize(
    ("said", "api", "why"),
    [
        ({}, "1.40", "too old"),
        ({"OSType": "windows"}, "1.41", "virtual machine"),
        ({"OperatingSystem": "Docker Desktop"}, "1.45", "virtual machine"),
        ({"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}, "1.41", "rootless"),
        ({"MemoryLimit": False}, "1.41", "cannot set limits .MemoryLimit."),
        ({"CpuCfsQuota": False}, "1.41", "cannot set limits .CpuCfsQuota."),
    ],
)
def test_an_engine_that_will_not_do_is_refused_with_the_reason(said: dict[str, Any], api: str, why: str) -> None:
    with pytest.raises(PreconditionError, match=why):
        check(FINE | said, api)


def test_an_engine_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10 << 30, (10 << 30) - (50 << 20), 50 << 20))
    with pytest.raises(PreconditionError, match="out of disk: 50 MiB are free"):
        check(FINE | {"DockerRootDir": str(tmp_path)}, "1.41")


def test_no_engine_is_told_with_what_starts_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(PreconditionError, match="no Docker engine: there is no .*none.sock.*compose/engine.sh"):
        find_engine()


def test_a_socket_that_nobody_answers_at_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deaf.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with pytest.raises(PreconditionError, match="no Docker engine answers at .*deaf.sock.*\n.*does not answer"):
        find_engine()


def test_an_engine_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    with pytest.raises(PreconditionError, match="need an engine of this machine"):
        find_engine()


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("write /x: no space left on device", "docker system df"),
        ("Pool overlaps with other one on this address space", "network range is taken"),
        ('Conflict. The container name "/x" is already in use by container "y"', "squall clean"),
        ("No such image: squall-broker:1", "builds it again"),
        ("exec /bin/sh: exec format error", "image is broken"),
    ],
)
def test_what_an_engine_refuses_comes_with_what_to_do(said: str, advice: str) -> None:
    assert advice in engine._advised(said)


def test_what_is_not_known_is_told_as_it_is() -> None:
    assert engine._advised("the moon is full") == "the moon is full"
