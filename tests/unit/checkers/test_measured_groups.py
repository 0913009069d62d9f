"""Rebalances by fault, time without an owner, and how evenly generations share partitions."""

from __future__ import annotations

from dataclasses import replace

from squall.checkers.history.tables import RecordedFault
from squall.checkers.measured_groups import measure_groups
from tests.support.histories.builder import MS, HistoryBuilder
from tests.support.histories.group_history import GroupHistory


def fault(number: int, began: int) -> RecordedFault:
    return RecordedFault(number, "kill", "P", (), "node:1", (1,), {}, 0, began, began + MS, {}, "")


def test_a_history_without_groups_has_no_figures() -> None:
    assert measure_groups(HistoryBuilder().history(), []) == {}


def test_a_rebalance_belongs_to_the_fault_that_began_last() -> None:
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.joined(one, [0, 1], 1)
    first = fault(1, h.tick())
    h.joined(one, [0], 2)
    h.joined(two, [1], 2)
    h.joined(one, [0, 1], 3)
    second = fault(2, h.tick())
    h.revoked(two, [1])
    never = replace(fault(3, 0), began=-1)
    found = measure_groups(h.history(), [second, first, never])["g"]
    assert found["generations"] == 3
    assert found["rebalances"] == [
        {"fault": None, "members": True, "count": 1},  # the second member came
        {"fault": None, "count": 0},
        {"fault": 1, "action": "kill", "count": 1},
        {"fault": 2, "action": "kill", "count": 0},
    ]


def test_time_without_an_owner_lies_between_two_owners() -> None:
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.assigned(one, {0: 0, 1: 0})
    h.revoked(one, [0])
    h.now = 10 * MS
    h.lost(one, [1])
    h.now = 14 * MS
    h.assigned(two, {0: 0}, 2)
    h.assigned(two, {1: 0}, 2)
    found = measure_groups(h.history(), [])["g"]["unowned"]
    assert found == {"longest_s": 0.013, "partition": "t-0", "from_s": 0.002, "total_s": 0.018}


def test_where_no_partition_changed_its_owner_none_was_without() -> None:
    h = GroupHistory()
    h.assigned(h.member(), {0: 0})
    assert measure_groups(h.history(), [])["g"]["unowned"] is None


def test_a_generation_that_gives_one_member_two_more_than_another_is_unfair() -> None:
    h = GroupHistory(4)
    one, two = h.member(), h.member()
    h.joined(one, [0, 1, 2], 1)
    h.joined(two, [3], 1)
    h.joined(one, [0, 1], 2)
    h.joined(two, [2, 3], 2)
    h.joined(one, [0, 1, 2, 3], 3)
    assert measure_groups(h.history(), [])["g"]["unfair"] == {"most": 2, "generations": 1}


def rebalances(h: GroupHistory, *faults: RecordedFault) -> dict[object, int]:
    """Count rebalances by cause: "members", None (before the first fault), or a fault's number."""
    found = measure_groups(h.history(), faults)["g"]["rebalances"]
    return {"members" if each.get("members") else each["fault"]: each["count"] for each in found}


def test_the_first_assignment_is_no_rebalance() -> None:
    h = GroupHistory()
    h.joined(h.member(), [0], 1)
    assert rebalances(h) == {"members": 0, None: 0}


def test_a_member_that_came_or_went_explains_a_rebalance_and_the_fault_before_it_does_not() -> None:
    h = GroupHistory(2)
    one, two = h.member(), h.member()
    h.joined(one, [0, 1], 1)
    kill = fault(1, h.tick())
    h.joined(one, [0], 2)
    h.joined(two, [1], 2)
    h.now += 10_000 * MS
    h.revoked(two, [1])
    h.joined(one, [0, 1], 3)
    h.now += 10_000 * MS
    h.joined(one, [0, 1], 4)
    assert rebalances(h, kill) == {"members": 2, None: 0, 1: 1}


def test_a_member_that_ended_without_a_word_explains_the_rebalance_after_its_session() -> None:
    h = GroupHistory(2)
    one, two = h.member(), h.member(session_timeout_ms=10_000)
    h.joined(one, [0], 1)
    h.joined(two, [1], 1)
    h.now += 5_000 * MS
    h.joined(one, [0], 2)  # the second one does not answer
    h.now += 6_000 * MS
    h.joined(one, [0, 1], 3)
    assert rebalances(h, fault(1, 4)) == {"members": 1, None: 0, 1: 1}


def test_what_a_fault_of_clients_ended_is_the_faults_doing() -> None:
    def run(target: str) -> dict[object, int]:
        h = GroupHistory(2)
        one, two = h.member(), h.member()
        h.joined(one, [0], 1)
        h.joined(two, [1], 1)
        began = h.now
        h.joined(one, [0, 1], 2)
        return rebalances(h, replace(fault(1, began), target=target))

    assert run("node:1") == {"members": 1, None: 0, 1: 0}
    assert run("producer:1") == run("member:1") == run("member") == {"members": 0, None: 0, 1: 1}


def test_who_follows_the_victim_of_a_fault_is_the_faults_doing_as_well() -> None:
    def run(target: str) -> dict[object, int]:
        h = GroupHistory(2)
        one, two, successor = h.member(), h.member(), h.member()
        h.joined(one, [0], 1)
        h.joined(two, [1], 1)
        began = h.now
        h.joined(one, [0, 1], 2)
        h.joined(one, [0], 3)
        h.joined(successor, [1], 3)
        return rebalances(h, replace(fault(1, began), target=target, ended=h.now))

    assert run("member:1") == {"members": 0, None: 0, 1: 2}
    assert run("node:1")["members"] == 2


def test_what_a_member_only_believed_to_hold_is_told_apart() -> None:
    """Another one was assigned it, or its session was over, before it learnt so."""
    h = GroupHistory(2)
    zombie, other = h.member(session_timeout_ms=10), h.member()
    h.assigned(zombie, {0: 0, 1: 0})
    beat = h.now
    h.now = 5 * MS
    h.assigned(other, {0: 0}, 2)
    h.now = 50 * MS
    h.lost(zombie, [0, 1], beat=beat)
    one, two = measure_groups(h.history(), [])["g"]["members"]
    begin = one["held"][0]["from_s"]
    assert [(each["from_s"], each["to_s"], each["partitions"]) for each in one["held"]] == [
        (begin, 0.006, ["t-0", "t-1"]),
        (0.006, begin + 0.01, ["t-1"]),
    ]
    assert one["believed"] == [
        {"from_s": 0.006, "to_s": 0.051, "partition": "t-0"},
        {"from_s": begin + 0.01, "to_s": 0.051, "partition": "t-1"},
    ]
    assert two["believed"] == []


def test_the_return_of_static_members_is_counted_with_the_rebalances_that_it_caused() -> None:
    def run(gen: int, *, away_ms: int = 1, twin: bool = False) -> dict[str, int]:
        h = GroupHistory(2)
        about = {"instance": "i-1", "session_timeout_ms": 1000}
        first, other = h.member(**about), h.member()
        h.joined(first, [0], 1)
        h.joined(other, [1], 1)
        h.now += away_ms * MS
        second = h.member(**about)
        h.joined(second, [0], gen)
        h.commit(other, {1: 1})
        if twin:
            h.commit(first, {0: 1})
        return measure_groups(h.history(), [])["g"]["static"]

    assert run(1) == {"returns": 1, "rebalanced": 0, "unclear": 0}
    assert run(2) == {"returns": 1, "rebalanced": 1, "unclear": 0}
    assert run(2, away_ms=2000) == {"returns": 0, "rebalanced": 0, "unclear": 0}, "its session was over"
    assert run(2, twin=True) == {"returns": 0, "rebalanced": 0, "unclear": 0}, "both were there"


ABOUT = {
    "group_protocol": "classic",
    "assignor": "cooperative-sticky",
    "session_timeout_ms": 1000,
    "max_poll_interval_ms": 2000,
}


def test_the_second_round_of_a_cooperative_rebalance_belongs_to_the_cause_of_the_first() -> None:
    """An arrival makes another member give a partition up, which joins once more for that."""

    def run(*faults: RecordedFault, **settings: str) -> dict[object, int]:
        h = GroupHistory(2)
        one, two = (h.member(**{**ABOUT, **settings}) for _ in range(2))
        h.joined(one, [0, 1], 1)
        h.assigned(one, {0: 0, 1: 0}, 1)
        h.now += 4_000 * MS
        h.joined(one, [0], 2)
        h.joined(two, [], 2)
        h.revoked(one, [1], gen=2)
        h.joined(one, [0], 3)
        h.joined(two, [1], 3)
        return rebalances(h, *faults)

    kill = fault(1, 100 * MS)
    assert run(kill) == {"members": 2, None: 0, 1: 0}
    assert run() == {"members": 2, None: 0}
    assert run(kill, assignor="range")[1] == 1, "an eager member gives everything up before it joins"
    assert run(kill, group_protocol="consumer")[1] == 1, "the coordinator assigns"


def test_the_second_round_after_a_fault_belongs_to_it_although_another_one_began_meanwhile() -> None:
    h = GroupHistory(2)
    one, two = h.member(**ABOUT), h.member(**ABOUT)
    h.joined(one, [0, 1], 1)
    h.assigned(one, {0: 0, 1: 0}, 1)
    h.joined(two, [], 1)
    first = fault(1, h.tick())
    h.joined(one, [0], 2)
    h.joined(two, [], 2)
    second = fault(2, h.tick())
    h.revoked(one, [1], gen=2)
    h.joined(two, [1], 3)
    h.joined(one, [0], 3)
    assert rebalances(h, first, second) == {"members": 0, None: 0, 1: 2, 2: 0}


def halted(what: str, for_ms: int, **settings: str) -> GroupHistory:
    """A member hangs; after 1.2 s the group continues without it; once it runs again it joins again."""
    h = GroupHistory(2)
    one, two = h.member(**ABOUT), h.member(**{**ABOUT, **settings})
    h.joined(one, [0], 1)
    h.joined(two, [1], 1)
    h.assigned(two, {1: 0}, 1)
    begun = h.now
    h.event("still", p=two, g="g", m=f"m{two}", gen=1, inst="", what=what, ms=for_ms)
    h.now = begun + 1_200 * MS
    h.joined(one, [0, 1], 2)
    h.now = max(h.now, begun + for_ms * MS)
    h.lost(two, [1])
    h.joined(two, [1], 3)
    h.joined(one, [0], 3)
    return h


def test_who_stands_still_beyond_its_session_is_given_up_and_joins_again_as_the_load_has_it() -> None:
    crash = replace(fault(1, 3 * MS), action="member_crash", target="member:0", evidence={"process": 7})
    assert rebalances(halted("halt", 3_000), crash) == {"members": 2, None: 0, 1: 0}
    assert rebalances(halted("halt", 200), crash)["members"] == 0, "too short to be given up"
    assert rebalances(halted("pause", 3_000), crash)["members"] == 1, "its heartbeats went on for that long"


def test_a_fault_of_a_member_is_blamed_for_that_member_alone() -> None:
    """While one is gone another one goes by itself, and the victim's successor comes."""
    h = GroupHistory(3)
    one, victim, goes, follows = (h.member(**ABOUT) for _ in range(4))
    for number, proc in enumerate((one, victim, goes)):
        h.joined(proc, [number], 1)
    began = h.now
    h.now += 1_500 * MS
    h.joined(one, [0, 1], 2)
    h.joined(goes, [2], 2)
    h.now += 2_500 * MS
    h.joined(one, [0, 1, 2], 3)
    h.now += 500 * MS
    ended = h.now
    h.joined(one, [0], 4)
    h.joined(follows, [1, 2], 4)
    crash = replace(
        fault(1, began), action="member_crash", target="member", ended=ended,
        evidence={"process": victim, "followed_by": follows},
    )  # fmt: skip
    later = fault(2, began + 10 * MS)
    assert rebalances(h, crash, later) == {"members": 1, None: 0, 1: 2, 2: 0}


def returns(h: GroupHistory, *faults: RecordedFault) -> dict[str, int]:
    found: dict[str, int] = measure_groups(h.history(), faults)["g"]["static"]
    return found


def named(*, twin: bool = False, fenced: bool = False, for_another: bool = False, away_ms: int = 900) -> GroupHistory:
    """A static member leaves and is back after `away_ms`; its JoinGroup is answered 600 ms later."""
    h = GroupHistory(2)
    about = {**ABOUT, "instance": "i-1"}
    first, other, second, double, third = (
        h.member(**about), h.member(**ABOUT), h.member(**about),
        h.member(**about, **({"twin": True} if twin or fenced else {})), h.member(**ABOUT),
    )  # fmt: skip
    h.joined(first, [0], 1)
    h.joined(other, [1], 1)
    if twin:
        h.joined(double, [0], 1)
        h.lost(first, [0], "FENCED_INSTANCE_ID")
    h.now += away_ms * MS
    h.event("rejoining", p=second, g="g", m="", gen=-1, inst="i-1", why="start")
    if for_another:
        h.event("rejoining", p=third, g="g", m="", gen=-1, inst="", why="start")
    h.now += 600 * MS
    h.joined(second, [0], 2 if for_another else 1)
    if for_another:
        h.joined(third, [1], 2)
    if twin:
        h.lost(double, [0], "FENCED_INSTANCE_ID")
    if fenced:
        h.joined(double, [0], 1)
        h.lost(second, [0], "FENCED_INSTANCE_ID")
    return h


def test_a_static_member_is_back_when_its_process_begins_and_not_when_it_has_joined() -> None:
    assert returns(named()) == {"returns": 1, "rebalanced": 0, "unclear": 0}
    assert returns(named(away_ms=1100)) == {"returns": 0, "rebalanced": 0, "unclear": 0}


def test_a_second_process_with_an_instance_id_is_no_return() -> None:
    assert returns(named(twin=True))["returns"] == 0
    assert returns(named(fenced=True))["returns"] == 1, "it was fenced later only"


def test_a_return_while_the_group_moved_for_another_member_or_a_fault_is_told_apart() -> None:
    assert returns(named(for_another=True)) == {"returns": 1, "rebalanced": 0, "unclear": 1}
    h = named()
    h.joined(1, [1], 2)
    assert returns(h, fault(1, 5)) == {"returns": 1, "rebalanced": 0, "unclear": 0}


def test_who_comes_back_into_a_generation_explains_none() -> None:
    h = named()
    assert rebalances(h, fault(1, 0)) == {"members": 0, None: 0, 1: 0}
