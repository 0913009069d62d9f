"""Checks what shells offer at the press of a key, and options in groups."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from squall.chaos import cli
from squall.chaos.commands.completion import VARIABLE, completion_script
from squall.chaos.commands.grouped import REST, OptionGroupsCommand
from squall.chaos.faults.kinds import KINDS
from squall.chaos.mutants import MUTANTS
from squall.workloads.registry import SCENARIOS
from tests.support.lacks import skip_without

ROOT = Path(__file__).parents[3]
SHELLS = {
    "bash": ["bash", "--norc", "-c"],
    "zsh": ["zsh", "-f", "-c"],
    "fish": ["fish", "--no-config", "-c"],
}


def offered(*words: str) -> set[str]:
    """Return the completions of the last word; the words before it are typed already."""
    *typed, last = words
    completer = BashComplete(cli.squall, {}, "squall", VARIABLE)
    return {item.value for item in completer.get_completions(typed, last) if item.type == "plain"}


def test_commands_are_offered_without_loading_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.LazyCommandGroup, "get_command", lambda *_: pytest.fail("loaded"))
    assert offered("") == set(cli.COMMANDS)
    assert offered("ru") == {"run", "runs"}


def test_options_and_their_choices_are_offered() -> None:
    assert {"--runtime", "--runs"} == offered("run", "--run")
    assert offered("run", "--runtime", "") == {"process", "docker", "external"}


def test_kinds_of_faults_are_offered_one_by_one_where_they_work() -> None:
    here = {name for name, kind in KINDS.items() if "process" in kind.worlds}
    assert offered("run", "--faults", "") == here | {"none"}
    assert offered("run", "--faults", "kill,pa") == {"kill,pause", "kill,partition"}
    assert "kill,kill" not in offered("run", "--faults", "kill,")
    in_containers = {name for name, kind in KINDS.items() if "docker" in kind.worlds} - here
    assert in_containers <= offered("run", "--runtime", "docker", "--faults", "") and in_containers
    simulated = {name for name, kind in KINDS.items() if "sim" in kind.worlds}
    assert offered("sim", "--faults", "") == simulated | {"none"}


def test_mutants_and_workloads_are_offered() -> None:
    names = {each.name for each in MUTANTS.values()}
    assert offered("sim", "--mutant", "") == names
    first = next(iter(names))
    assert f"{first}," not in offered("hunt", "--mutants", f"{first},")
    assert {f"{first},{each}" for each in names - {first}} <= offered("hunt", "--mutants", f"{first},")
    assert offered("run", "--workload", "") == set(SCENARIOS)
    assert offered("sim", "--workload", "") == {name for name, each in SCENARIOS.items() if each.SIMULATED}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a plan and two runs, the newer one with findings."""
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans/zombie.toml").touch()
    for name in ("20260101T000000-seed1", "20260102T000000-seed2"):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        (run / "plan.toml").touch()
    (run / "verdict.json").write_text(json.dumps({"anomalies": [{"name": "lost-write", "count": 3}]}))
    (tmp_path / "runs/latest").symlink_to(run.name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plans_and_runs_of_the_folder_are_offered_and_findings_of_the_run(folder: Path) -> None:
    newest, oldest = "runs/20260102T000000-seed2", "runs/20260101T000000-seed1"
    assert offered("run", "--plan", "") == {"plans/zombie.toml", f"{newest}/plan.toml", f"{oldest}/plan.toml"}
    assert offered("verify", "") == {"runs/latest", newest, oldest}
    assert offered("verify", "runs/l") == {"runs/latest"}
    assert offered("explain", "runs/latest", "") == {"lost-write"}
    assert offered("explain", oldest, "") == set(), "it has no verdict"


def test_a_folder_with_nothing_in_it_offers_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    completer = BashComplete(cli.squall, {}, "squall", VARIABLE)
    assert [item.type for item in completer.get_completions(["run", "--plan"], "x")] == ["file"]
    assert [item.type for item in completer.get_completions(["verify"], "x")] == ["dir"]


# ---------------------------------------------------------------------------------------------------- real shells


def in_shell(shell: str, script: str) -> str:
    """Return the output of a script that a shell runs in the checkout."""
    if shutil.which(shell) is None:
        skip_without(shell, f"apt-get install {shell}")
    command = [*SHELLS[shell], script]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, timeout=60)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ["squall", "./squall"])
def test_bash_completes_what_is_typed(name: str) -> None:
    """The lines are loaded, and bash's own variables are what they are at the press of a key."""
    script = f"""
    PATH=$PWD:$PATH
    eval "$(./squall completion bash)"
    complete -p squall
    COMP_WORDS=({name} run --faults kill,par) COMP_CWORD=3
    _squall_completion {name}
    echo "offered: ${{COMPREPLY[*]}}"
    """
    told = in_shell("bash", script)
    assert "complete -o nosort -F _squall_completion squall" in told
    assert "offered: kill,partition\n" in told


def test_fish_completes_what_is_typed() -> None:
    told = in_shell("fish", "./squall completion fish | source; complete -C './squall run --faults kill,par'")
    assert told.startswith("kill,partition\t")


def test_zsh_loads_the_lines_and_asks_the_program_that_is_typed() -> None:
    """Only its line editor can complete; so the words that it would offer are caught."""
    script = """
    autoload -Uz compinit && compinit -u -D
    eval "$(./squall completion zsh)"
    echo "for squall: $_comps[squall]"
    _describe() { print -l -- "${(@P)3}" }
    words=(./squall run --faults kill,par) CURRENT=4
    _squall_completion
    """
    told = in_shell("zsh", script)
    assert "for squall: _squall_completion\n" in told
    assert "kill,partition:" in told


@pytest.mark.parametrize("shell", SHELLS)
def test_the_lines_are_printed_for_each_shell_and_no_other(shell: str) -> None:
    done = CliRunner().invoke(cli.squall, ["completion", shell])
    assert done.exit_code == 0 and done.stdout == completion_script(shell)
    assert CliRunner().invoke(cli.squall, ["completion", "tcsh"]).exit_code != 0


# --------------------------------------------------------------------------------------------- options in groups


@pytest.mark.parametrize("name", ["run", "sim"])
def test_every_option_stands_in_one_group(name: str) -> None:
    command = cli.squall.get_command(click.Context(cli.squall), name)
    assert isinstance(command, OptionGroupsCommand)
    grouped = [each for names in command.groups.values() for each in names]
    params = {param.name for param in command.params}
    assert len(grouped) == len(set(grouped))
    assert params <= set(grouped), "and none among the rest"
    assert set(grouped) <= params, "a group names what there is"


def test_help_shows_each_option_once_under_its_title() -> None:
    command = OptionGroupsCommand(
        "x",
        groups={"Second": ("b",), "Empty": ("nothing",), "First": ("a",)},
        params=[click.Option(["--a"], help="A."), click.Option(["--b"], help="B."), click.Option(["--c"], help="C.")],
    )
    text = command.get_help(click.Context(command))
    titles = [line.removesuffix(":") for line in text.splitlines() if line.endswith(":")]
    assert titles == ["Second", "First", REST]
    assert [text.count(f"--{each} ") for each in "abc"] == [1, 1, 1]
    assert text.index("--b") < text.index("First") < text.index("--a") < text.index(REST) < text.index("--c")
