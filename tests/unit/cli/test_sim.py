"""`squall sim`: what is refused before anything runs, and what a batch says."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from squall.chaos import cli
from squall.chaos.runs import batch
from squall.chaos.runs.batch import SeedBatch, SeedResult
from squall.chaos.runs.result import FailureSignature
from squall.chaos.typed import shortened


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "7"], "FIRST..LAST"),
        (["--seeds", "7..7"], "FIRST..LAST"),
        (["--seed", "1", "--seeds", "0..3"], "give one of them"),
        (["--seeds", "0..3", "--nodes", "5"], "leave out --nodes"),
        (["--swarm"], "give --seed N or --seeds A..B"),
        (["--swarm", "--plan", "x.toml"], "leave out --plan"),
        (["--swarm", "--seed", "1", "--rate", "5"], "leave out --rate"),
        (["--seed", "1", "--faults", "earthquake"], "unknown fault 'earthquake'"),
        (["--seed", "1", "--faults", "kil"], "did you mean 'kill'?"),
        (["--seed", "1", "--faults", ""], "no faults are named"),
        (["--seed", "1", "--runs", "/dev/null"], "--runs /dev/null: no run directory can be made there"),
        (["--seeds", "0..3", "--runs", "/dev/null"], "--runs /dev/null: no run directory can be made there"),
        (["--seed", "1", "--set", "no.such=1"], "unknown setting no.such"),
        (["--seeds", "0..3", "--plan", "/nonexistent"], "there is no such file"),
        (["--jobs", "0", "--seeds", "0..3"], "--jobs"),
    ],
)
def test_what_does_not_go_together_or_does_not_exist_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["sim", *arguments]) == 3
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody", "there is no mutant 'nobody'; docs/shown/mutants.md lists them"),
        ("999", "there is no mutant '999'; docs/shown/mutants.md lists them"),
        ("bufer-reused", "no mutant 'bufer-reused': did you mean buffer-reused (61)? docs/shown/mutants.md lists them"),
    ],
)
def test_an_unknown_mutant_is_refused_in_one_sentence(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["sim", "--seed", "1", "--mutant", name]) == 3
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", [["sim", "--seed", "1"], ["shrink", "."]])
def test_two_mutants_are_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*command, "--mutant", "40", "--mutant", "1"]) == 3
    assert "--mutant is given 2 times (40, 1): give one of them" in capsys.readouterr().err


def test_a_batch_names_its_mutant_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_batch_of(monkeypatch, [seeded(0)], "--mutant", "40") == 0
    assert (
        capsys.readouterr().err.splitlines()[1].startswith("planted: mutant 40 (not-unloaded), a broker that goes on")
    )


def seeded(seed: int, failure: FailureSignature | None = None, trouble: str | None = None) -> SeedResult:
    counts = Counter({"log truncated": 2, "unclean election": 0})
    verdict = "invalid" if failure else "unknown" if trouble else "valid"
    told = ("records 3 and 4 are gone",) if failure else ()
    return SeedResult(seed, verdict, failure, told, trouble, 40.0, 0.5, "d", counts, 4, 3)


def test_a_batch_says_what_its_valid_seeds_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_batch_of(monkeypatch, [seeded(0), replace(seeded(1), lost=40), replace(seeded(2), lost=1200)]) == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert "2 of 3 valid seeds lost 1,240 acknowledged records, as they permit; most of them seed 2: 1,200" in said
    assert run_batch_of(monkeypatch, [seeded(0)]) == 0
    assert "lost" not in capsys.readouterr().out


def run_batch_of(monkeypatch: pytest.MonkeyPatch, results: Iterable[SeedResult], *arguments: str) -> int:
    made = list(results)

    def faked(order: SeedBatch, seeds: Iterable[int], jobs: int) -> Iterator[SeedResult]:
        assert [each.seed for each in made] == list(seeds)
        return iter(made)

    monkeypatch.setattr(batch, "run_batch", faked)
    return cli.run(["sim", "--seeds", f"0..{len(made)}", "--jobs", "1", *arguments])


def test_a_clean_batch_says_how_fast_it_was_and_which_paths_nobody_took(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_batch_of(monkeypatch, [seeded(0), seeded(1)]) == 0
    said = capsys.readouterr().out
    assert "2/2 seeds" in said
    assert "80 virtual s a CPU second" in said
    assert "6 of 8 faults landed" in said
    assert "never taken by any of these seeds: unclean election" in said


def test_what_a_workload_cannot_take_is_no_gap_and_is_named_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = seeded(0)
    result.counts.update({"member fenced": 0, "look-up by time": 0, "offsets expired": 2})
    assert run_batch_of(monkeypatch, [result], "--workload", "transactions") == 0
    said = capsys.readouterr().out
    assert re.search(r"^never taken by any of these seeds: unclean election$", said, re.MULTILINE)
    apart = " ".join(said[said.index("not possible with this workload: ") :].split())
    assert "look-up by time" in apart and "member fenced" in apart and "offsets expired" not in apart
    table = said[: said.index("never taken")]
    assert "member fenced" not in table and "offsets expired" in table, "what was taken was possible"
    assert run_batch_of(monkeypatch, [result]) == 0
    said = capsys.readouterr().out
    assert "not possible" not in said and "member fenced" in said, "another seed draws another workload"


@pytest.mark.parametrize(
    ("count", "flags", "code"),
    [(1_999, [], 0), (2_000, [], 2), (2_000, ["--mutant", "40"], 0), (2_000, ["--workload", "appends"], 0)],
)
def test_many_seeds_of_the_whole_swarm_prove_too_little_where_they_never_took_a_path(
    count: int, flags: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [seeded(n) for n in range(count)]
    assert run_batch_of(monkeypatch, results, *flags) == code
    assert ("too little is proven of unclean election\n" in capsys.readouterr().out) == (code == 2)
    results[7].counts["unclean election"] = 1
    assert run_batch_of(monkeypatch, results, *flags) == 0


def test_every_failure_is_told_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [
        seeded(0),
        seeded(1, FailureSignature("invariant", "committed-prefix")),
        seeded(2, trouble="Traceback\nKeyError: 3"),
    ]
    assert run_batch_of(monkeypatch, results, "--mutant", "1") == 1
    said = capsys.readouterr()
    assert "seed 1: invariant committed-prefix" in said.err
    assert "records 3 and 4 are gone" in said.err
    assert "./squall sim --seed 1 --swarm --mutant 1" in said.err
    assert "seed 2: the harness failed" in said.err
    assert "KeyError: 3" in said.err
    assert "1 x invariant committed-prefix, first by seed 1" in said.out


def interrupted_after(*results: SeedResult) -> Iterator[SeedResult]:
    yield from results
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("results", "code"), [([seeded(0)], 130), ([seeded(0, FailureSignature("invariant", "committed-prefix"))], 1)]
)
def test_an_interrupted_batch_says_so_at_its_end(
    results: list[SeedResult], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch, "run_batch", lambda order, seeds, jobs: interrupted_after(*results))
    assert cli.run(["sim", "--seeds", "0..3", "--jobs", "1"]) == code
    assert capsys.readouterr().out.splitlines()[-1] == "interrupted: 2 of 3 seeds did not run, or not to their end"


def test_a_batch_that_is_interrupted_before_its_first_seed_ended_says_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch, "run_batch", lambda order, seeds, jobs: interrupted_after())
    assert cli.run(["sim", "--seeds", "0..3", "--jobs", "1"]) == 130
    assert capsys.readouterr().out == "interrupted: 3 of 3 seeds did not run, or not to their end\n"


def test_trouble_of_the_harness_alone_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_batch_of(monkeypatch, [seeded(0), seeded(1, trouble="KeyError")]) == 2


def unknown(seed: int) -> SeedResult:
    told = (f"fault {seed} (kill of 2) did not land",)
    return SeedResult(seed, "unknown", None, told, None, 40.0, 0.5, "d", Counter(), 4, 3)


@pytest.mark.parametrize(
    ("seeds", "flags", "code"),
    [
        ([unknown(0), unknown(1)], [], 2),
        ([*(seeded(n) for n in range(19)), unknown(19)], [], 0),
        ([*(seeded(n) for n in range(18)), unknown(18)], [], 2),
        ([*(seeded(n) for n in range(18)), unknown(18)], ["--max-unknown", "6"], 0),
        ([*(seeded(n) for n in range(19)), unknown(19)], ["--max-unknown", "0"], 2),
    ],
)
def test_a_batch_with_too_many_unknown_seeds_is_unknown_and_says_why(
    seeds: list[SeedResult],
    flags: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_batch_of(monkeypatch, seeds, *flags) == code
    said = capsys.readouterr().out
    assert f"of {len(seeds)} seeds are unknown" in said
    assert "x fault N (kill of N) did not land" in said
    assert ("too little is proven" in said) == (code == 2)


def test_a_batch_draws_no_page_of_what_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["sim", "--seeds", "0..2", "--page"]) == 3
    assert "--page" in capsys.readouterr().err


def test_a_batch_of_a_plan_repeats_by_that_plan() -> None:
    order = SeedBatch(Path("p.toml"), None, Path("runs"))
    assert shortened(order.command(9)) == "./squall sim --seed 9 --plan p.toml"
    assert shlex.split(order.command(9))[-1] == str(Path("p.toml").absolute())
