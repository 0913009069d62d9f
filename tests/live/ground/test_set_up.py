"""The launcher ./squall sets up its environment once, completely, and again if needed. The requirements here are empty.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SETTING_UP, INSTALLING = "setting up .venv", "installing"
NEEDED = ("squall", "squall.py", "chaos/toolchain/interpreter.py", "chaos/standard_streams.py")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout that was set up once."""
    folder = checkout(tmp_path_factory.mktemp("template") / "checkout")
    run(folder)
    return folder


@pytest.fixture
def ready(template: Path) -> Path:
    """Return that checkout, moved back to its original path."""
    run(template)
    return template


def checkout(folder: Path) -> Path:
    """Copy the launcher and its files into a folder, with a program `squall` that prints its arguments and its path."""
    (folder / "chaos/toolchain").mkdir(parents=True)
    for name in NEEDED:
        shutil.copy(ROOT / name, folder / name)
    (folder / "chaos/__init__.py").touch()
    (folder / "chaos/__main__.py").write_text("import squall.chaos, sys; print(squall.chaos.__file__, *sys.argv[1:])")
    for name in ("requirements.txt", "requirements-clients.txt", "requirements-dev.txt"):
        (folder / name).write_text("# nothing\n")
    return folder


def run(folder: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the launcher. Its standard error says what it set up."""
    environment = {**os.environ, "SQUALL_PYTHON": sys.executable, "PIP_NO_INDEX": "1"}
    done = subprocess.run([folder / "squall", *arguments], env=environment, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.gate
def test_the_first_call_sets_up_and_the_next_only_runs(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "a checkout")
    first = run(folder, "run", "a b", cwd=tmp_path)
    assert SETTING_UP in first.stderr
    assert first.stdout == f"{folder}/chaos/__init__.py run a b\n"
    again = run(folder, "run")
    assert again.stderr == ""


@pytest.mark.gate
@pytest.mark.parametrize("full", [False, True], ids=["unread", "full"])
def test_a_set_up_whose_words_nobody_reads_or_stores_goes_on(full: bool, tmp_path: Path) -> None:
    folder = checkout(tmp_path / "unread")
    if full:
        end = os.open("/dev/full", os.O_WRONLY)
    else:
        read, end = os.pipe()
        os.close(read)
    environment = {**os.environ, "SQUALL_PYTHON": sys.executable, "PIP_NO_INDEX": "1"}
    done = subprocess.run([folder / "squall", "x"], env=environment, stdout=subprocess.PIPE, stderr=end, text=True)
    os.close(end)
    assert (done.returncode, done.stdout) == (0, f"{folder}/chaos/__init__.py x\n")
    assert run(folder).stderr == ""


def test_what_stands_in_the_current_folder_does_not_shadow_the_program(ready: Path, tmp_path: Path) -> None:
    (tmp_path / "squall.py").write_text("raise SystemExit(9)")
    assert run(ready, "x", cwd=tmp_path).stdout == f"{ready}/chaos/__init__.py x\n"


def test_changed_pins_are_installed_into_the_environment_that_is_there(ready: Path) -> None:
    (ready / "requirements.txt").write_text("# something\n")
    said = run(ready).stderr
    assert INSTALLING in said
    assert SETTING_UP not in said
    assert run(ready).stderr == ""


def test_test_requirements_are_installed_when_tests_are_asked_for(ready: Path) -> None:
    (ready / "requirements-dev.txt").write_text("# something\n")
    assert run(ready, "run").stderr == ""
    assert "requirements-dev.txt" in run(ready, "test").stderr
    assert run(ready, "test").stderr == ""
    assert run(ready, "run").stderr == ""


@pytest.mark.night("makes an environment with pip: minutes")
def test_client_libraries_are_installed_when_they_are_asked_for_with_their_size_beforehand(ready: Path) -> None:
    (ready / "requirements-clients.txt").write_text("# something\n")
    assert run(ready, "setup").stderr == ""
    assert "installing requirements-clients.txt (60 MB, half a minute)" in run(ready, "setup", "--clients").stderr
    assert run(ready, "setup", "--kafka", "--clients").stderr == ""
    assert run(ready, "run").stderr == ""


def test_an_interrupted_set_up_is_made_anew(ready: Path) -> None:
    for stamp in (ready / ".venv").glob(".squall-*"):
        stamp.unlink()
    (ready / ".venv/half").touch()
    assert SETTING_UP in run(ready).stderr
    assert not (ready / ".venv/half").exists()


@pytest.mark.gate
def test_a_set_up_that_is_killed_leaves_no_stamp(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "killed")
    environment = {**os.environ, "SQUALL_PYTHON": sys.executable, "PIP_NO_INDEX": "1"}
    with subprocess.Popen(
        [folder / "squall"], env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    ) as popen:
        assert popen.stderr is not None
        assert SETTING_UP in popen.stderr.readline().decode()
        os.killpg(popen.pid, signal.SIGKILL)
    assert list((folder / ".venv").glob(".squall-*")) == []


def test_a_checkout_that_moved_runs_from_where_it_is_now(ready: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(ready, moved, symlinks=True)
    assert run(moved, "x").stdout == f"{moved}/chaos/__init__.py x\n"
    assert run(moved, "x").stderr == ""


@pytest.mark.gate
def test_no_python_is_a_usage_error_that_names_what_to_install(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "bare")
    environment = {**os.environ, "SQUALL_PYTHON": "/nonexistent/python"}
    done = subprocess.run([folder / "squall"], env=environment, capture_output=True, text=True)
    assert done.returncode == 3
    assert "apt-get install python3" in done.stderr


def pretended(path: Path, says: str) -> Path:
    """Make a program that claims to be this version of Python, makes environments as ours do, and reports its calls."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f"""#!/bin/sh
case "$*" in
    *interpreter.py) {says} ;;
    *) echo "used $0" >&2; exec {sys.executable} "$@" ;;
esac
"""
    )
    path.chmod(0o755)
    return path


def saying(rank: int, version: str) -> str:
    return f"echo {rank} {version} $0"


def chosen(folder: Path, programs: Path, **environment: str) -> str:
    """Return what ./squall prints while it sets up with these programs first on PATH."""
    path = f"{programs}:{programs / 'other'}:/usr/bin:/bin"
    kept = {name: value for name, value in os.environ.items() if name != "SQUALL_PYTHON"}
    done = subprocess.run(
        [folder / "squall"],
        env={**kept, "PATH": path, "PIP_NO_INDEX": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_of_several_pythons_one_built_with_optimisation_is_taken_first(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    pretended(programs / "python3", saying(2, "3.13"))
    best = pretended(programs / "python3.12", saying(1, "3.12"))
    pretended(programs / "python3.14", saying(1, "3.14"))
    said = chosen(checkout(tmp_path / "a"), programs)
    assert f"used {best}\n" in said
    assert said.count(f"used {programs}/python3\n") == 0


def test_python3_is_taken_where_no_other_is_better(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    first = pretended(programs / "python3", saying(1, "3.13"))
    pretended(programs / "python3.12", saying(1, "3.12"))
    assert f"used {first}\n" in chosen(checkout(tmp_path / "a"), programs)


def test_a_newer_python_is_tried_with_a_warning(tmp_path: Path) -> None:
    newest = pretended(tmp_path / "bin/python3.15", saying(3, "3.15"))
    said = chosen(checkout(tmp_path / "a"), tmp_path / "bin", SQUALL_PYTHON=str(newest))
    assert "Python 3.15 is newer than those that Squall was tried with, 3.11 to 3.14" in said
    assert f"used {newest}\n" in said


def test_a_python_that_was_tried_goes_before_a_newer_one(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    pretended(programs / "python3", saying(3, "3.15"))
    tried = pretended(programs / "python3.11", saying(1, "3.11"))
    said = chosen(checkout(tmp_path / "a"), programs)
    assert f"used {tried}\n" in said
    assert "newer" not in said


def test_a_python_that_is_too_old_or_does_not_run_is_passed_over(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    pretended(programs / "python3", "exit 1")
    pretended(programs / "python3.12", "echo not known here >&2; exit 127")
    good = pretended(programs / "python3.13", saying(1, "3.13"))
    assert f"used {good}\n" in chosen(checkout(tmp_path / "a"), programs)


def test_the_script_itself_costs_next_to_nothing(ready: Path, bound_s: float) -> None:
    (ready / ".venv/bin/python").rename(ready / ".venv/bin/python.kept")
    (ready / ".venv/bin/python").write_text("#!/bin/sh\n")
    (ready / ".venv/bin/python").chmod(0o755)
    try:
        began = time.monotonic()
        for _ in range(10):
            run(ready)
        assert (time.monotonic() - began) / 10 < bound_s, "50 ms on a machine with nothing else to do"
    finally:
        (ready / ".venv/bin/python.kept").replace(ready / ".venv/bin/python")
