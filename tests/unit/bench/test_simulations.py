"""The CPU of a command counts all of its processes, and a row says what the pairs come to."""

from pathlib import Path

import pytest

from bench import simulations
from bench.simulations import ROOT, Command, cpu_s, main, row


def test_a_row_has_medians_their_ratio_pair_by_pair_and_its_interval() -> None:
    then = [2.0, 4.0, 2.0, 2.0, 2.0, 2.0]
    now = [1.0, 1.0, 1.0, 1.2, 0.8, 1.0]
    assert row("sim", then, now).split() == ["sim", "2.00", "1.00", "0.500", "0.250", "to", "0.600"]


def test_a_command_that_cannot_be_run_has_no_figure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with 3"):
        cpu_s(ROOT, Command(("nonsense",)), tmp_path)


def test_each_checkout_runs_its_own_files_and_its_cpu_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "chaos").mkdir(parents=True)
    (other / "chaos/__init__.py").write_text("")
    (other / "chaos/__main__.py").write_text("sum(range(5_000_000))\n")
    (tmp_path / "ours/chaos").mkdir(parents=True)
    (tmp_path / "ours/chaos/__init__.py").write_text("")
    (tmp_path / "ours/chaos/__main__.py").write_text("")
    monkeypatch.setattr(simulations, "ROOT", tmp_path / "ours")
    monkeypatch.setattr(simulations, "commands", lambda _: {"idle": Command(("--help",))})
    assert main([str(other), "--pairs", "2"]) == 0
    title, before, after, *_ = capsys.readouterr().out.splitlines()[1].split()
    assert title == "idle"
    assert float(before) > float(after) > 0
