"""Checks what the player does with runs: retries, thinning, budget, expectations. A script replaces `squall run`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from squall.chaos.commands import nightly
from squall.chaos.nightly.budget import CostModel
from squall.chaos.nightly.directory import NightDirectory
from squall.chaos.nightly.items import PlannedRun, plan_night
from squall.chaos.nightly.matrix import Matrix, make_matrix
from squall.chaos.nightly.outcome import NightResult
from squall.chaos.nightly.player import NightLimits, NightRunner, judged
from squall.checkers.nightly.results import RunAttempt, by_item, parse

SCRIPT = """
import json, pathlib, sys
words = sys.argv[1:]
flags = dict(zip(words, words[1:]))
seed, label, runs = int(flags["--seed"]), flags["--label"], pathlib.Path(flags["--runs"])
told = json.loads((pathlib.Path(__file__).parent / "told.json").read_text())
ends = told[str(seed)]
codes = told.get("codes", {})
verdict = ends[min(int(label.partition(".again")[2] or 1), len(ends)) - 1]
if verdict in ("hangs", "hangs and ignores"):
    import signal, time
    ends = lambda number, frame: sys.exit(130)
    signal.signal(signal.SIGINT, signal.SIG_IGN if verdict == "hangs and ignores" else ends)
    print("squall: waiting", flush=True)
    time.sleep(600)
if verdict in ("disk full", "no files"):
    why = {"disk full": "No space left on device", "no files": "Too many open files"}[verdict]
    (runs / f"20260704T010000-{label}").mkdir(parents=True)
    print(f"squall: the machine refused: {why}")
    print("squall: the traceback is in runs/squall-traceback-1.txt")
    sys.exit(2)
if verdict == "refused":
    print("squall: no engine")
    sys.exit(3)
run = runs / f"20260704T010000-{label}"
(run / "nodes/1").mkdir(parents=True)
(run / "nodes/1/trace.jsonl").write_text("x" * 1000)
(run / "history.jsonl").write_text("y" * 500)
(run / "nodes/1/broker.log").write_text("z")
(run / "nodes/1/data").mkdir()
(run / "nodes/1/data/00.log").write_text("z")
losses = {"lossy": "lost-write", "lossy at the tail": "unseen"}
found = [{"name": losses[verdict], "permitted": True, "count": 1}] if verdict in losses else []
word = "valid" if verdict in losses else verdict
reasons = [] if word == "valid" else ["for a reason"]
(run / "verdict.json").write_text(json.dumps({"verdict": word, "reasons": reasons, "anomalies": found}))
sys.exit(codes.get(str(seed), {"valid": 0, "invalid": 1}.get(word, 2)))
"""


def night(
    tmp_path: Path,
    ends: dict[int, list[str]],
    runtime: str = "process",
    codes: dict[int, int] | None = None,
    **matrix: Any,
) -> NightRunner:
    """A night of a run for each seed, whose attempts end as scripted. codes: seed -> exit code."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "told.json").write_text(json.dumps({**ends, "codes": codes or {}}))
    read: Matrix = make_matrix({"runs": [{"axes": {"runtime": runtime}, "faults": ["kill"]}], **matrix})
    items = plan_night(read, min(ends), len(ends)).items
    player = NightRunner(NightDirectory(tmp_path), read, items, NightLimits(None, 1 << 40, 2), CostModel(), {})
    began = "2026-07-04T01:00:00+00:00"
    player.directory.write(player.directory.night, {"schema": 1, "began": began, "commit": "c0ffee", "items": []})
    player.program = (sys.executable, "-I", "-S", str(tmp_path / "script.py"))
    return player


def flags(**more: Any) -> dict[str, Any]:
    """Return the options that the end of a night takes from the command line."""
    usual = {"report": True, "summary": None, "mail": None, "accepted": {}, "fail_on": "any", "notify": None}
    return {**usual, "metrics": None, **more}


def played(player: NightRunner) -> dict[int, list[RunAttempt]]:
    """Seed -> its attempts."""
    return {each.seed: player.result(each) or [] for each in player.items}


def outcome(player: NightRunner) -> NightResult:
    """Return the outcome of a night that is over."""
    items = tuple(player.items)
    matrix = player.matrix
    return NightResult(
        "night", items, player.attempts, player.left_out, matrix.unknown_share, max_unplayed=matrix.max_unplayed
    )


def test_only_unknown_runs_are_tried_again_and_that_is_counted(tmp_path: Path) -> None:
    ends = {1: ["unknown", "valid"], 2: ["unknown", "unknown", "valid"], 3: ["invalid", "valid"], 4: ["valid"]}
    player = night(tmp_path, ends)
    found = {seed: [each.verdict for each in attempts] for seed, attempts in played(player).items()}
    assert found == {1: ["unknown", "valid"], 2: ["unknown", "unknown"], 3: ["invalid"], 4: ["valid"]}
    assert outcome(player).retried == 2
    assert outcome(player).counts() == {"valid": 2, "unknown": 1, "invalid": 1}
    assert outcome(player).exit == 1


def test_a_simulation_is_not_tried_again(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["unknown", "valid"]}, runtime="sim")
    assert [each.verdict for each in played(player)[1]] == ["unknown"]


@pytest.mark.parametrize(("share", "code"), [(0.5, 0), (0.49, 2)])
def test_too_much_that_is_unknown_is_exit_code_2(share: float, code: int, tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["unknown"], 2: ["valid"]}, retries=0, unknown_share=share)
    played(player)
    assert outcome(player).exit == code


def test_a_run_that_is_refused_says_nothing_of_the_cluster(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["refused"]})
    (attempt,) = played(player)[1]
    assert (attempt.verdict, attempt.exit, attempt.run) == ("no verdict", 3, "")
    assert attempt.why == "exit code 3: squall: no engine"
    assert outcome(player).exit == 2


def test_a_run_that_failed_by_itself_says_why_and_not_where_the_traceback_is(tmp_path: Path) -> None:
    (attempt, *_) = played(night(tmp_path, {1: ["no files"]}))[1]
    assert attempt.why == "exit code 2: squall: the machine refused: Too many open files"


def test_what_an_expectation_forbids_fails_the_night_though_the_run_permits_it(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["lossy"]}, expect=[{"where": {"acks": "all"}, "never": ["lost-write"]}])
    (attempt,) = played(player)[1]
    assert (attempt.verdict, attempt.unexpected) == ("valid", ("lost-write",))
    assert outcome(player).exit == 1
    elsewhere = night(tmp_path / "b", {1: ["lossy"]}) if (tmp_path / "b").mkdir() is None else None
    assert elsewhere is not None
    (permitted,) = played(elsewhere)[1]
    assert permitted.unexpected == ()
    assert outcome(elsewhere).exit == 0
    assert permitted.permitted_loss == "1 acknowledged record lost: the configuration permits it"
    assert parse(permitted.line()) == ([permitted], [])
    assert [each for _, each in outcome(elsewhere).with_permitted_loss] == [permitted]
    assert outcome(player).with_permitted_loss == [], "what the night forbids is a finding"


@pytest.mark.parametrize("forbidden", ["lost-write", "unseen"])
def test_a_night_that_forbids_one_name_of_a_loss_forbids_the_other(forbidden: str, tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["lossy"], 2: ["lossy at the tail"]}, expect=[{"never": [forbidden]}])
    found = {seed: attempts[0].unexpected for seed, attempts in played(player).items()}
    assert found == {1: ("lost-write",), 2: ("unseen",)}


def test_what_tells_the_story_of_a_permitted_finding_stays(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["lossy"]})
    run = tmp_path / played(player)[1][0].run
    kept = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())
    assert kept == ["history.jsonl", "nodes/1/broker.log", "nodes/1/trace.jsonl", "verdict.json"]


def test_valid_runs_are_thinned_and_others_stay_whole(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["valid"], 2: ["invalid"]})
    ended = played(player)
    kept = {
        seed: sorted(path.name for path in (tmp_path / attempts[0].run).iterdir()) for seed, attempts in ended.items()
    }
    assert kept == {1: ["history.jsonl", "verdict.json"], 2: ["history.jsonl", "nodes", "verdict.json"]}
    assert ended[1][0].bytes < 1000 < ended[2][0].bytes


def test_what_ended_is_on_disk_at_once_and_not_played_again(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["valid"], 2: ["valid"]})
    player.result(player.items[0])
    written = parse((tmp_path / "results.jsonl").read_text())[0]
    assert player.items[0].item in {each.item for each in written}
    player.stop()
    (tmp_path / "told.json").write_text(json.dumps({1: ["invalid"], 2: ["invalid"]}))
    again = night(tmp_path, {1: ["invalid"], 2: ["invalid"]})
    again.attempts = by_item(parse((tmp_path / "results.jsonl").read_text())[0])
    assert [each.verdict for each in played(again)[1]] == ["valid"]


def test_a_line_that_was_cut_off_is_no_result_and_harms_none_behind_it(tmp_path: Path) -> None:
    directory = NightDirectory(tmp_path)
    first = RunAttempt("a", 1, "valid", 0, "", "2026-07-04T01:00:00+00:00", 1.0, "")
    directory.add(first)
    with directory.results.open("a") as file:
        file.write('{"item":"b","attempt":1,"ver')
    directory.add(first)
    assert directory.attempts() == [first, first]


def test_half_a_run_of_a_killed_session_is_removed_before_it_is_played_again(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["valid"]})
    half = tmp_path / "runs" / f"20260703T230000-{player.items[0].item}"
    other = tmp_path / "runs" / f"20260703T230000-{player.items[0].item}0"
    for each in (half, other):
        (each / "nodes").mkdir(parents=True)
    played(player)
    assert not half.exists()
    assert other.exists(), "of another item, whose seed begins with the same digits"


def test_a_budget_that_is_spent_leaves_the_rest_out_and_says_why(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["valid"], 2: ["valid"], 3: ["valid"]})
    player.limits.budget_s, player.spent_s = 60, 30.0
    assert played(player) == {1: [], 2: [], 3: []}
    assert {why.partition(":")[0] for why in player.left_out.values()} == {"no time"}
    assert outcome(player).exit == 2


def test_runs_stand_beside_each_other_as_far_as_cores_allow(tmp_path: Path) -> None:
    player = night(tmp_path, {seed: ["valid"] for seed in range(1, 7)})
    seen: list[int] = []
    player.on_ended = lambda item, attempt: seen.append(len(player.under_way()))
    played(player)
    assert len(seen) == 6
    assert max(seen) <= 1, "two slots: when one has ended, at most one other is under way"


def test_after_the_last_run_the_time_left_is_that_of_the_report(tmp_path: Path) -> None:
    player, said = night(tmp_path, {1: ["valid"], 2: ["valid"]}), io.StringIO()
    player.limits.slots = 1
    player.on_ended = lambda item, attempt: nightly._say_ended(Console(file=said, width=1000), player, item, attempt)
    played(player)
    first, last = said.getvalue().splitlines()
    assert first.endswith(" min left") and last.endswith(" min left, for the report")


def test_the_items_of_a_session_are_played_in_their_order(tmp_path: Path) -> None:
    player = night(tmp_path, {seed: ["valid"] for seed in range(1, 5)})
    player.limits.slots = 1
    order: list[PlannedRun] = []
    player.on_ended = lambda item, attempt: order.append(item)
    played(player)
    assert order == list(player.items)


def attempts_in_order(player: NightRunner) -> list[tuple[int, int]]:
    """Play a night: the seed and the number of each attempt, in the order in which they ended."""
    order: list[tuple[int, int]] = []
    player.on_ended = lambda item, attempt: order.append((item.seed, attempt.attempt))
    played(player)
    return order


def test_every_item_has_its_first_attempt_before_any_has_its_second(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["unknown", "valid"], 2: ["valid"], 3: ["unknown", "valid"], 4: ["valid"]})
    player.limits.slots = 1
    assert attempts_in_order(player) == [(1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (3, 2)]


def test_a_night_that_goes_on_tries_again_what_was_unknown_after_all_others(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["unknown", "valid"], 2: ["valid"], 3: ["valid"]})
    player.limits.slots = 1
    first = player.items[0]
    player.attempts = {first.item: [RunAttempt(first.item, 1, "unknown", 2, "", "2026-07-04T01:00:00+00:00", 1.0, "")]}
    assert attempts_in_order(player) == [(2, 1), (3, 1), (1, 2)]


def test_what_was_unknown_is_tried_again_with_fewer_runs_beside_it(tmp_path: Path) -> None:
    player = night(tmp_path, {seed: ["unknown", "unknown", "valid"] for seed in range(1, 5)}, retries=2)
    player.limits.slots = 4
    beside: dict[int, list[int]] = {1: [], 2: [], 3: []}
    player.on_ended = lambda item, attempt: beside[attempt.attempt].append(len(player.under_way()))
    played(player)
    assert [len(each) for each in beside.values()] == [4, 4, 4]
    assert max(beside[2]) <= 1, "two at a time: when one has ended, at most one is under way"
    assert max(beside[3]) == 0, "each alone"


def test_with_x_nothing_behind_a_run_that_is_not_valid_is_begun(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["unknown", "valid"], 2: ["invalid"], 3: ["valid"]})
    player.limits.slots, player.stop_at_first = 1, True
    player.items = player.items[:2]  # pytest stops at the second
    third = night(tmp_path, {1: ["unknown", "valid"], 2: ["invalid"], 3: ["valid"]}).items[2]
    order: list[tuple[int, int]] = []
    player.on_ended = lambda item, attempt: order.append((item.seed, attempt.attempt))
    first, second = player.items
    player.items = (first, second, third)
    assert [each.verdict for each in player.result(first) or ()] == ["unknown", "valid"]
    assert [each.verdict for each in player.result(second) or ()] == ["invalid"]
    assert order == [(1, 1), (2, 1), (1, 2)]


def test_a_run_that_leaves_no_time_for_the_report_is_left_out(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["valid"]})
    player.limits.budget_s = player.costs.of(player.items[0]).seconds + 60
    player.costs.report = True
    player.costs.learn_report(1, 3600)
    assert played(player) == {1: []}
    (why,) = player.left_out.values()
    assert why.endswith("s of the budget are left, of which the report takes about 3600 s")
    player.left_out, player.costs.report, player._next = {}, False, 0
    assert [each.verdict for each in played(player)[1]] == ["valid"]


def test_what_is_invalid_stays_invalid_however_its_process_ended(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["invalid"], 2: ["valid"]}, codes={1: 99, 2: 99}, retries=0)
    (found,), (doubtful,) = played(player).values()
    assert (found.verdict, found.why) == ("invalid", "for a reason; its exit code was 99")
    assert (doubtful.verdict, doubtful.why) == ("unknown", "exit code 99: it said nothing")
    assert outcome(player).exit == 1
    assert (tmp_path / found.run / "nodes").exists(), "a finding is kept whole"


@pytest.mark.parametrize(
    ("written", "code", "ended_by_us", "verdict"),
    [
        ("valid", 0, False, "valid"),
        ("valid", 1, False, "unknown"),
        ("valid", 0, True, "valid"),
        ("valid", 130, True, "no verdict"),
        ("unknown", 2, False, "unknown"),
        ("unknown", 130, True, "no verdict"),
        ("invalid", 1, False, "invalid"),
        ("invalid", 0, False, "invalid"),
        ("invalid", 130, True, "invalid"),
        ("no verdict", 1, False, "no verdict"),
        ("splendid", 0, False, "unknown"),
    ],
)
def test_only_what_is_invalid_needs_no_exit_code_of_its_own(
    written: str, code: int, ended_by_us: bool, verdict: str
) -> None:
    assert judged(written, code, ended_by_us=ended_by_us) == verdict


@pytest.mark.parametrize("how", ["hangs", "hangs and ignores"])
def test_a_run_that_hangs_is_ended_and_the_night_goes_on(how: str, tmp_path: Path) -> None:
    player = night(tmp_path, {1: [how, "valid"], 2: ["valid"]})
    player.limits.slots, player.limits.run_s, player.ending_s = 1, 0.5, 0.5
    cleared: list[list[PlannedRun]] = []
    player.clean_up = lambda: cleared.append(player.under_way())
    (hung,) = player.result(player.items[0]) or []
    player.limits.run_s = None
    assert (hung.verdict, hung.why) == ("no verdict", "ended because it took longer than 0.5 s (--run-limit)")
    assert [each.verdict for each in player.result(player.items[1]) or ()] == ["valid"]
    assert cleared == [[]], "once, when the run is gone"
    assert outcome(player).unproven == [(player.items[0], hung)]


def test_a_night_that_played_little_of_its_plan_says_so_and_proves_too_little(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["valid"], 2: ["valid"], 3: ["valid"]}, max_unplayed=0.5)
    player.left_out = {each.item: "no time" for each in player.items[1:]}
    played(player)
    assert outcome(player).exit == 2
    assert outcome(player).too_little == "Too little was played: this night proves too little."
    player.matrix = player.matrix.model_copy(update={"max_unplayed": 0.7})
    assert outcome(player).exit == 0


def test_what_allure_keeps_counts_as_what_runs_keep(tmp_path: Path) -> None:
    player = night(tmp_path, {1: ["valid"], 2: ["valid"]})
    player.limits.slots, player.limits.keep_bytes = 1, 40 << 20
    assert [each.verdict for each in player.result(player.items[0]) or ()] == ["valid"]
    assert player.kept_bytes() < 5 << 20
    player.directory.allure.mkdir()
    with (player.directory.allure / "attachment.html").open("wb") as page:
        page.truncate(60 << 20)
    assert player.kept_bytes() > 60 << 20
    assert player.result(player.items[1]) is None
    assert "no room" in player.left_out[player.items[1].item]
