"""Checks what images are made of, and what they are called after."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from squall.chaos.toolchain import base_image, images

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, TOOLS = SETTINGS["project"], SETTINGS["tool"]


def pins(path: Path) -> dict[str, str]:
    """name -> version, with all of its hashes."""
    found = re.findall(r"^([a-z0-9_.-]+)==((?:[^\n]*\\\n)+[^\n]*)", path.read_text(), re.MULTILINE)
    return dict(found)


@pytest.mark.parametrize(
    ("recipe", "named"),
    [
        ("broker", ["trio", "crc32c", "cramjam", "google-re2"]),
        ("harness", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["run"]]),
    ],
)
def test_an_image_holds_the_versions_that_are_tested_here(recipe: str, named: list[str]) -> None:
    ours, all_of_them = pins(ROOT / f"compose/{recipe}/requirements.txt"), pins(ROOT / "requirements.txt")
    assert {re.split("[<>=]", each)[0] for each in named} <= ours.keys()
    assert {name: all_of_them.get(name) for name in ours} == ours


def test_the_harnesss_image_holds_what_a_wheel_holds() -> None:
    wheel = TOOLS["hatch"]["build"]["targets"]["wheel"]
    assert set(images.IN_HARNESS) == set(wheel["only-include"])
    files = images._harness_files()
    assert {"app/squall/__init__.py", "app/squall/fixture.py", "app/squall/chaos/cli.py"} <= files.keys()
    assert {"app/squall/chaos/shared/commit", "app/squall/chaos/shared/plans/nightly.toml"} <= files.keys()
    assert "app/squall/chaos/shared/compose/harness/Dockerfile" in files
    assert not [name for name in files if "__pycache__" in name or name.startswith("app/squall/tests")]


def test_a_brokers_image_holds_the_broker_and_no_harness() -> None:
    files = images._broker_files(images.ROOT)
    assert {"app/squall/__init__.py", "app/squall/broker/__main__.py"} <= files.keys()
    assert not [name for name in files if "codegen" in name or "chaos" in name]


def test_an_image_of_a_former_checkout_runs_its_broker_by_todays_command(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker/__init__.py").touch()
    (tmp_path / "broker/__main__.py").write_text("print('former', __name__)")
    for name, data in images._broker_files(tmp_path).items():
        path = tmp_path / "image" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    command = [sys.executable, "-P", "-m", "squall.broker"]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path / "image/app")}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("former __main__\n", "")


def test_the_same_files_make_the_same_archive_and_programs_can_be_run() -> None:
    files = {"b": b"text", "a": b"\x7fELF..."}
    packed = images._tar(files).getvalue()
    assert packed == images._tar(dict(reversed(files.items()))).getvalue()
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert [(entry.name, oct(entry.mode), entry.mtime) for entry in tar] == [("a", "0o755", 0), ("b", "0o644", 0)]


def test_names_change_with_any_byte_and_with_its_place() -> None:
    names = {images._named("x", parts) for parts in (("a", "b"), ("ab", ""), ("", "ab"), ("a", "c"), ("b", "a"))}
    assert len(names) == 5


def test_of_many_lines_few_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 6.0, 6.0, 7.0, 12.5, 12.5])
    monkeypatch.setattr(images.time, "monotonic", lambda: next(now))
    assert list(images.sparse(["one", "two", "three", "", " four "])) == ["two", "four"]


def test_packages_come_from_where_this_machines_own_do(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "stable-security main http://s.example/\nstable contrib http://c.example/\nstable main http://m.example/\n"
    monkeypatch.setattr(base_image, "run", lambda *arguments, **options: said)
    assert base_image._mirror("stable") == ["http://m.example/"]
    assert base_image._mirror("older") == []


def test_a_published_version_stays_and_what_a_checkout_makes_again_does_not() -> None:
    assert images._is_kept("squall/broker:0.1.0") and images._is_kept("squall/squall:latest")
    assert images._is_kept("squall-base:bookworm-1") and images._is_kept("squall-broker:latest")
    assert not images._is_kept("squall-broker:1c811d241dfc1f9d")
