"""Small simulated runs of the workload `groups`: the history shows that members did what the test said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from squall.broker.coordinators.groups.classic import ClassicGroup
from squall.broker.coordinators.groups.consumer.reconciliation import Reconciliation
from squall.chaos.mutants.bugs.groups import expire
from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.result import FailureSignature
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import SimResult, simulate
from squall.chaos.runtimes.sim.invariants.group_watch import GroupWatch
from squall.workloads.groups import GroupsLoad
from squall.workloads.groups.acts import (
    CONVERT,
    CRASH,
    DELETE,
    HALT,
    LEAVE,
    PAUSE,
    RECESS,
    SEND,
    TWIN,
)

LOAD = {
    "name": "groups", "rate": 4, "members": 2, "partitions": 4, "poll_pause_ms": 200,
    "session_timeout_ms": 1500, "max_poll_interval_ms": 2000,
}  # fmt: skip


def records(until_s: float) -> list[list[Any]]:
    """Return one record a second for each partition, as operations of a load."""
    return [[at_s + part / 10, 0, SEND, part, 200] for at_s in range(int(until_s)) for part in range(4)]


def played(
    acts: Sequence[list[Any]], time_s: float = 9, broker: Mapping[str, str] | None = None, **load: Any
) -> SimResult:
    """Simulate a run without faults in which members take these actions. `broker` has settings that replace the default
    ones.
    """
    operations, table = sorted([*records(time_s - 1), *acts]), {**LOAD, **load}
    settings = {**GroupsLoad.BROKERS, **GroupsLoad.suited_brokers(table), **(broker or {})}
    return simulate(make_plan({
        "seed": 5, "runtime": "sim", "time_s": time_s, "faults": [], "workload": table,
        "operations": operations, "cluster": {"nodes": 3, "settings": settings},
    }), stop_at_first=False)  # fmt: skip


def told(acts: Sequence[list[Any]], folder: Path, **load: Any) -> list[dict[str, Any]]:
    """Return the lines of the history of such a run."""
    result = played(acts, **load)
    assert not result.violations, result.reasons
    directory = save(result, folder, "run")
    return [json.loads(line) for line in (directory.path / "history.jsonl").read_bytes().splitlines()]


def events(lines: Sequence[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["e"] == "x" and line["kind"] in kinds]


def processes(lines: Sequence[dict[str, Any]], member: int) -> list[int]:
    """Return the successive processes of a member."""
    return [line["p"] for line in lines if line["e"] == "p" and line["settings"].get("member") == member]


def generations(lines: Sequence[dict[str, Any]]) -> set[int]:
    return {line["gen"] for line in events(lines, "joined")}


def received(lines: Sequence[dict[str, Any]]) -> list[int]:
    """Return the values that members' polls returned, with repetitions."""
    members = {line["p"] for line in lines if line["e"] == "p" and "member" in line["settings"]}
    polls = {line["op"] for line in lines if line["e"] == "i" and line["f"] == "poll" and line["p"] in members}
    answers = [line for line in lines if line["e"] == "c" and line["op"] in polls]
    return [value for line in answers for got in line["got"] for _, value in got[5]]


def sent(lines: Sequence[dict[str, Any]]) -> set[int]:
    return {line["v"] for line in lines if line["e"] == "i" and line["f"] == "send"}


@pytest.mark.gate
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_a_member_that_goes_gives_up_what_it_had_and_the_group_goes_on_where_it_stood(
    assignor: str, tmp_path: Path
) -> None:
    lines = told([[3.0, 1, LEAVE, 2500, 0]], tmp_path, assignor=assignor)
    assert set(received(lines)) == sent(lines)
    assert len(received(lines)) == len(sent(lines)), "in good order nobody gets anything twice"
    first, second = processes(lines, 1)
    went = [line["kind"] for line in events(lines, "revoked", "left", "lost") if line["p"] == first]
    assert went == ["revoked", "left"]
    assert events(lines, "joined")[-1]["p"] in (second, *processes(lines, 0))
    last = [line for line in lines if line["e"] == "c" and "off" in line and isinstance(line["off"], dict)][-1]
    ends = {part: max(got[1] for line in lines if line["e"] == "c" for got in line.get("got", ()) if got[0] == part)
            for part in range(4)}  # fmt: skip
    assert {int(part): offset for part, offset in last["off"].items()} == ends, "all of it is committed at the end"


def test_what_a_crashed_member_had_goes_to_the_others_when_its_session_is_over(tmp_path: Path) -> None:
    lines = told([[3.0, 1, CRASH, 4000, 0]], tmp_path)
    first, _ = processes(lines, 1)
    (lost,) = [line for line in events(lines, "lost") if line["p"] == first]
    assert lost["why"] == "crash"
    taken = next(line for line in events(lines, "assigned") if line["t"] > lost["t"])
    assert lost["beat"] < lost["t"] < taken["t"]
    assert taken["t"] - lost["beat"] >= 1.5e9, "not before its session is over"
    assert set(received(lines)) == sent(lines)


def test_an_application_that_does_not_poll_leaves_by_itself(tmp_path: Path) -> None:
    lines = told([[3.0, 1, PAUSE, 3000, 0]], tmp_path)
    (process,) = processes(lines, 1)
    left = next(line for line in events(lines, "left") if line["p"] == process)
    lost = next(line for line in events(lines, "lost") if line["p"] == process)
    assert left["why"] == lost["why"] == "poll interval"
    assert left["t"] < lost["t"], "its application hears of it when it polls again"
    (still,) = events(lines, "still")
    assert (still["p"], still["what"], still["ms"]) == (process, PAUSE, 3000) and still["t"] < left["t"]
    assert set(received(lines)) == sent(lines)


def test_a_process_that_stood_still_for_too_long_learns_that_it_is_no_member_any_more(tmp_path: Path) -> None:
    lines = told([[3.0, 1, HALT, 3500, 0]], tmp_path)
    (process,) = processes(lines, 1)
    lost = next(line for line in events(lines, "lost") if line["p"] == process)
    assert lost["why"] == "UNKNOWN_MEMBER_ID"
    (still,) = events(lines, "still")
    assert (still["p"], still["what"], still["ms"]) == (process, HALT, 3500)
    joined = [line for line in events(lines, "joined") if line["p"] == process and line["t"] > lost["t"]]
    assert joined, "it joins anew"
    assert set(received(lines)) == sent(lines)


def test_a_static_member_that_is_back_within_its_session_causes_no_rebalance(tmp_path: Path) -> None:
    lines = told([[4.0, 1, LEAVE, 500, 0]], tmp_path, static_members=True)
    first, second = processes(lines, 1)
    before = [line for line in events(lines, "joined") if line["p"] == first][-1]
    after = next(line for line in events(lines, "joined") if line["p"] == second)
    assert (after["gen"], after["parts"]) == (before["gen"], before["parts"])
    assert after["m"] != before["m"]
    assert max(generations(lines)) == before["gen"]
    assert not [line for line in events(lines, "left") if line["p"] == first]


def test_of_two_with_one_instance_id_the_first_is_fenced(tmp_path: Path) -> None:
    lines = told([[4.0, 1, TWIN, 1000, 0]], tmp_path, static_members=True)
    twins = [line["p"] for line in lines if line["e"] == "p" and line["settings"].get("twin")]
    first, *_ = [process for process in processes(lines, 1) if process not in twins]
    (lost,) = [line for line in events(lines, "lost") if line["p"] == first]
    assert lost["why"] == "FENCED_INSTANCE_ID"
    assert [line["p"] for line in events(lines, "joined") if line["p"] in twins] == twins
    assert set(received(lines)) == sent(lines)


@pytest.mark.gate
def test_in_a_consumer_group_a_partition_has_one_owner_who_gives_it_up_first(tmp_path: Path) -> None:
    lines = told([[3.0, 1, LEAVE, 2500, 0]], tmp_path, group_protocol="consumer", server_assignor="range")
    assert set(received(lines)) == sent(lines)
    assert len(received(lines)) == len(sent(lines)), "in good order nobody gets anything twice"
    first, second = processes(lines, 1)
    assert [line["kind"] for line in events(lines, "revoked", "left", "lost") if line["p"] == first] == [
        "revoked", "left",
    ]  # fmt: skip
    assert events(lines, "joined")[-1]["p"] in (second, *processes(lines, 0))
    owner: dict[int, int] = {}
    for line in events(lines, "assigned", "revoked"):
        for part in map(int, line["at"]):
            if line["kind"] == "assigned":
                assert part not in owner
                owner[part] = line["p"]
            else:
                assert owner.pop(part) == line["p"]
    known = {line["settings"]["assignor"] for line in lines if line["e"] == "p" and "member" in line["settings"]}
    assert known == {"range"}


def test_a_member_of_a_consumer_group_that_stood_still_for_too_long_joins_once_it_knows_what_it_lost(
    tmp_path: Path,
) -> None:
    lines = told([[3.0, 1, HALT, 3500, 0]], tmp_path, group_protocol="consumer")
    (process,) = processes(lines, 1)
    (lost,) = [line for line in events(lines, "lost") if line["p"] == process]
    assert lost["why"] == "UNKNOWN_MEMBER_ID"
    taken = next(line for line in events(lines, "assigned") if line["p"] != process and line["t"] > lost["beat"])
    assert taken["t"] - lost["beat"] >= 1.5e9, "not before its session is over"
    again = [line for line in events(lines, "joined") if line["p"] == process and line["t"] > lost["t"]]
    assert {line["m"] for line in again} == {lost["m"]}, "it keeps its id"
    assert set(received(lines)) == sent(lines)


def test_a_static_member_of_a_consumer_group_comes_back_unnoticed_and_nobody_takes_its_instance_id(
    tmp_path: Path,
) -> None:
    acts = [[4.0, 1, LEAVE, 500, 0], [6.0, 1, TWIN, 1000, 0]]
    lines = told(acts, tmp_path, group_protocol="consumer", static_members=True)
    (twin,) = [line["p"] for line in lines if line["e"] == "p" and line["settings"].get("twin")]
    first, second = [process for process in processes(lines, 1) if process != twin]
    before = [line for line in events(lines, "joined") if line["p"] == first][-1]
    after = [line for line in events(lines, "joined") if line["p"] == second]
    assert {(line["gen"], tuple(line["parts"])) for line in after} == {(before["gen"], tuple(before["parts"]))}
    assert max(generations(lines)) == before["gen"], "no rebalance"
    assert [line["kind"] for line in events(lines, "rejoining", "joined", "assigned") if line["p"] == twin] == [
        "rejoining",
    ]  # fmt: skip
    assert not events(lines, "lost")
    assert set(received(lines)) == sent(lines)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_over_to_the_other_protocol_and_goes_on_where_it_stood(protocol: str, tmp_path: Path) -> None:
    lines = told([[3.0, 0, CONVERT, 300, 0]], tmp_path, group_protocol=protocol, conversions=1)
    spoken = [line["settings"]["group_protocol"] for line in lines if line["e"] == "p" and "member" in line["settings"]]
    assert spoken[:2] == [protocol] * 2
    assert set(spoken[2:]) == {"classic", "consumer"} - {protocol}
    assert len(received(lines)) == len(sent(lines)), "in good order nobody gets anything twice"
    joined = events(lines, "joined")
    assert {line["p"] for line in joined if line["t"] > joined[0]["t"] + 4e9} - set(range(3))


def test_a_group_that_was_deleted_stands_nowhere(tmp_path: Path) -> None:
    lines = told([[4.0, 0, DELETE, 1500, 0]], tmp_path)
    asked = [line for line in lines if line["e"] == "i" and line["f"] == "admin"][-1]
    assert (asked["what"], asked["group"]) == ("delete_group", "squall-group")
    deleted = next(line for line in lines if line["e"] == "c" and line["op"] == asked["op"])
    assert deleted["st"] == 0
    again = [line for line in events(lines, "assigned") if line["t"] > deleted["t"]]
    assert {start for line in again[:2] for start in line["from"].values()} == {"reset"}
    assert set(received(lines)) == sent(lines)
    assert len(received(lines)) > len(sent(lines)), "members begin anew"


def test_a_group_is_not_deleted_while_a_static_member_may_come_back(tmp_path: Path) -> None:
    lines = told([[4.0, 0, DELETE, 3000, 0]], tmp_path, static_members=True)
    asked = {line["op"] for line in lines if line["e"] == "i" and line["f"] == "admin"}
    ended = [line for line in lines if line["e"] == "c" and line["op"] in asked]
    assert [line.get("err", "") for line in ended] == ["NON_EMPTY_GROUP"] * (len(ended) - 1) + [""]
    assert ended[-1]["t"] - ended[0]["t"] > 1e9, "its session has to be over"


def test_all_members_are_away_for_a_while(tmp_path: Path) -> None:
    lines = told([[3.0, 1, RECESS, 2500, 0]], tmp_path)
    gone = sorted(line["t"] for line in events(lines, "left"))[:2]
    back = min(line["t"] for line in events(lines, "joined") if line["t"] > gone[0])
    assert gone[1] - gone[0] < 1e9, "all go"
    assert 2.3e9 < back - gone[0] < 4e9
    assert len(received(lines)) == len(sent(lines))


@pytest.mark.parametrize("waits", [True, False])
def test_a_consumer_group_that_does_not_wait_for_the_owner_of_a_partition_has_two(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Member 0 does not poll when member 1 comes back: so it keeps its partitions, while its heartbeats continue."""
    if not waits:
        monkeypatch.setattr(Reconciliation, "may_get", lambda *_: True)
    result = played([[3.0, 1, LEAVE, 300, 0], [3.3, 0, PAUSE, 1700, 0]], group_protocol="consumer")
    assert result.judgement is not None
    assert bool(result.violations) is not waits, "the simulator sees it in the broker"
    assert {found.anomaly for found in result.judgement.findings} == (set() if waits else {"dual-ownership"})


def test_brokers_without_consumer_groups_are_no_place_for_their_members() -> None:
    broker = {"group.coordinator.rebalance.protocols": "classic"}
    result = played([], group_protocol="consumer", broker=broker)
    assert result.verdict == "unknown"
    assert "no member can join the group: UNSUPPORTED_VERSION" in (result.trouble or "")


def test_a_group_that_commits_by_the_clock_commits_what_polls_returned_and_never_more(tmp_path: Path) -> None:
    lines = told([[3.0, 1, LEAVE, 1000, 0]], tmp_path, auto_commit=True, commit_every_ms=5000)
    commits = [line for line in lines if line["e"] == "i" and line["f"] == "commit"]
    assert {line["why"] for line in commits} >= {"auto", "revoke"}
    at: dict[tuple[int, int], int] = {}
    polls = {line["op"]: line["p"] for line in lines if line["e"] == "i" and line["f"] == "poll"}
    for line in lines:
        if line["e"] == "x" and line["kind"] == "assigned":
            at |= {(line["p"], int(part)): position for part, position in line["at"].items()}
        elif line["e"] == "c" and line["op"] in polls:
            at |= {(polls[line["op"]], got[0]): got[1] for got in line["got"]}
        elif line["e"] == "i" and line["f"] == "commit":
            assert all(offset <= at[line["p"], int(part)] for part, offset in line["at"].items())


def test_each_process_of_a_mixed_group_draws_its_protocol(tmp_path: Path) -> None:
    acts = [[3.0 + 0.8 * number, number % 2, LEAVE, 300, 0] for number in range(8)]
    lines = told(acts, tmp_path, group_protocol="mixed")
    spoken = [line["settings"]["group_protocol"] for line in lines if line["e"] == "p" and "member" in line["settings"]]
    assert set(spoken) == {"classic", "consumer"}
    assert set(received(lines)) == sent(lines)


LONG = {"session_timeout_ms": 20_000, "max_poll_interval_ms": 20_000}
GONE = [[7.2, 0, CRASH, 500, 0], [7.8, 1, LEAVE, 200, 0]]
"""Actions: a member disappears for the rest of its session, and the rebalance that another member starts waits for it.
"""


def silences(result: SimResult) -> list[float]:
    """Return the seconds for which each reader with a lag got no record after healing."""
    return [each["idle_s"] for each in json.loads(result.files["run.json"])["reads_after_healing"]["behind"]]


def test_a_member_that_is_gone_may_hold_its_partitions_for_a_long_session() -> None:
    result = played(GONE, **LONG)
    assert result.verdict == "valid", result.reasons
    after = json.loads(result.files["run.json"])["reads_after_healing"]
    assert 15 < after["took_s"] < after["limit_s"] == 80, "it ends as soon as everybody has read on"


def test_a_group_that_waits_for_ever_is_found_whatever_its_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicGroup, "expire", expire)
    monkeypatch.setattr(GroupWatch, "look", lambda *_, **__: None)  # An invariant of time-outs sees it much earlier.
    result = played(GONE, **LONG)
    assert result.verdict == "invalid", result.reasons
    assert silences(result)
    assert min(silences(result)) >= 80
    assert result.failure == FailureSignature("liveness", "stuck-consumer")
