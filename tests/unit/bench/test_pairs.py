"""Ratios of pairs, and the interval that their median lies in."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import pytest

from bench.clusters import PROGRAM, Squall, is_prototype
from bench.pairs import CERTAINTY, Figures, PairedFigures, PairedMeasurement, checkout, interval, measured, table
from squall.chaos.errors import PreconditionError


def test_of_ten_pairs_the_smallest_and_the_largest_are_left_out() -> None:
    assert interval([1.3, 0.7, 1.0, 1.1, 0.9, 1.02, 0.98, 1.01, 0.99, 1.05]) == (0.9, 1.1)


def test_few_pairs_have_no_narrower_interval_than_all_of_them() -> None:
    assert interval([1.1, 0.9, 1.0]) == (0.9, 1.1)


@pytest.mark.parametrize("n", range(6, 14))
def test_the_interval_misses_the_median_no_more_often_than_is_said(n: int) -> None:
    low, high = interval(range(n))
    # Each value is below the median or above it, as a coin falls: count the falls in which the interval misses it.
    missed = sum(math.comb(n, below) for below in range(n + 1) if below <= low or below > high)
    assert missed / 2**n <= 1 - CERTAINTY


def test_both_are_measured_in_turn_a_peer_beside_them_and_each_pair_gives_a_ratio() -> None:
    asked: list[str] = []

    def take(side: str) -> Figures:
        asked.append(side)
        return {"s": {"now": 3.0, "then": 2.0, "peer": 6.0}[side]}

    warmed: list[str] = []
    rows = measured([PairedMeasurement("a load", take, warmed.append)], "now", "then", "peer", 6)
    assert warmed == ["now", "then", "peer"]
    assert asked == 3 * ["now", "then", "peer", "peer", "then", "now"]
    assert rows["a load, s"].ratios == 6 * [1.5]
    head, line = table(rows, "kafka").splitlines()
    assert head.split() == ["figure", "before", "now", "ratio", "interval", "kafka", "ratio"]
    assert line.split() == ["a", "load,", "s", "2", "3", "1.500", "1.500", "to", "1.500", "6", "0.500"]


def test_few_pairs_have_no_interval_and_nothing_is_worse_by_them() -> None:
    rows = {"a load, s": PairedFigures(now=[2.0] * 5, then=[1.0] * 5)}
    assert "- (under 6 pairs)" in table(rows, "")
    assert not rows["a load, s"].is_worse("a load, s")


def test_what_fails_has_no_figures_whose_it_was_is_told_and_the_rest_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(side: str) -> Figures:
        if side == "then":
            raise RuntimeError("no leader")
        return {"s": 1.0}

    rows = measured(
        [PairedMeasurement("bad", fails), PairedMeasurement("good", lambda _: {"s": 1.0})], "now", "then", None, 2
    )
    assert "bad: no figures, pair 1, the one to compare with: no leader" in capsys.readouterr().err
    assert "bad     no figures" in table(rows, "")
    assert rows["good, s"].ratios == [1.0, 1.0]


@pytest.mark.parametrize(("name", "worse"), [("CPU s", False), ("MB/s", True)])
def test_less_is_better_but_of_throughput(name: str, worse: bool) -> None:
    fewer = PairedFigures(now=[1.0] * 6, then=[2.0] * 6)
    assert fewer.is_worse(name) is worse
    assert PairedFigures(now=[2.0] * 6, then=[1.0] * 6).is_worse(name) is not worse
    assert not PairedFigures(now=[1.0, 3.0], then=[2.0, 2.0]).is_worse(name), "the interval holds 1"


def test_a_directory_is_measured_as_it_stands(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="no checkout"):
        checkout(str(tmp_path), tmp_path / "unused")
    (tmp_path / "broker.py").touch()
    assert checkout(str(tmp_path), tmp_path / "unused") == tmp_path.resolve()


def test_what_is_neither_a_directory_nor_a_commit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="--against nonsense: neither a directory nor"):
        checkout("nonsense", tmp_path)


def test_where_git_is_not_there_no_commit_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        PreconditionError, match="--against HEAD: neither a directory nor, as there is no git here, a commit"
    ):
        checkout("HEAD", tmp_path)


def test_a_prototype_is_a_program_without_a_checkout(tmp_path: Path) -> None:
    assert not is_prototype(tmp_path)
    (tmp_path / PROGRAM).touch()
    assert is_prototype(tmp_path)
    (tmp_path / "broker").mkdir()
    assert not is_prototype(tmp_path)


def test_all_pairs_of_checkouts_have_addresses_of_their_own(tmp_path: Path) -> None:
    clusters = [Squall(tmp_path), Squall(tmp_path, root=tmp_path)]
    assert clusters[0].environ() is None
    assert (clusters[1].environ() or {})["PYTHONPATH"] == str(tmp_path)
    assert [cluster.command(1, tmp_path)[3] for cluster in clusters] == ["squall.broker", "broker"], "of a former one"
    assert all(one.name == other.name for one, other in combinations(clusters, 2))
