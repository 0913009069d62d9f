"""Parses and checks the conditions of faults: a fault with `when` begins as soon as its condition is true, but not
before its `at_s`. The whole grammar:

    isr:TOPIC-N OP NUMBER       how many replicas of a partition are in sync
    leader:TOPIC-N OP NUMBER    the id of its leader, -1 for none
    controller OP NUMBER        the id of the active controller, -1 for none
    fsync:N OP NUMBER           how many fsyncs broker N has done since the run began; also write:N and send:N
    after fault N began         fault N of the plan, counted from 0, has begun
    after fault N ended         it has ended
    txn:ID == STATE             the state of a transactional id's transaction, as Kafka calls it; or != STATE
    group:ID == STATE           the state of a consumer group, likewise

OP is one of == != < <= > >=. The condition is checked every 50 ms, a state every 20 ms. If it is not true in time, the
fault did not land.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from squall.chaos.faults.kind import FaultError
from squall.chaos.faults.targets import CoordinatorKeys, no_such_group, no_such_id
from squall.chaos.runtimes.contract import CrashOp

POLL_S, SOON_S = 0.05, 0.02
WITHIN_S = 20.0
"""Gives how long a fault waits for its condition if the plan does not say, in s."""
OPERATORS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OF_PARTITIONS, OF_CALLS = ("isr", "leader"), ("fsync", "write", "send")
_COMPARED = re.compile(r"([a-z]+)(?::(\S+))?\s*(==|!=|<=|>=|<|>)\s*(-?\d+)")
OF_TRANSACTIONS, OF_GROUPS = "txn", "group"
STATES: Mapping[str, tuple[str, ...]] = {
    OF_TRANSACTIONS: ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
    OF_GROUPS: ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Assigning", "Reconciling"),
}
"""Lists the states that DescribeTransactions reports, and that ListGroups reports for classic groups and for groups of
KIP-848. (Dead, and a transaction's PrepareEpochFence, are left out: Kafka keeps them only for a moment.)
"""
EXAMPLES = {OF_TRANSACTIONS: "txn:squall-0 == PrepareCommit", OF_GROUPS: "group:squall-group == PreparingRebalance"}
_STATE = re.compile(r"(txn|group):(\S+)\s*(==|!=)\s*(\S+)")
_AFTER = re.compile(r"after fault (\d+) (began|ended)")
_AND = re.compile(r"\s+and\s+")


@dataclass(frozen=True, slots=True)
class NumericCondition:
    """Compares a number of the cluster with a constant, as in `isr:orders-0-0 == 1`."""

    subject: str
    of: str
    """Names what the number belongs to: a partition, or a broker id. Empty for the controller."""
    op: str
    number: int

    def holds(self, seen: int) -> bool:
        """Return whether the comparison is true for the observed number."""
        return OPERATORS[self.op](seen, self.number)


@dataclass(frozen=True, slots=True)
class AfterFaultCondition:
    """Is true once another fault has begun, or ended."""

    fault: int
    ended: bool


@dataclass(frozen=True, slots=True)
class StateCondition:
    """Is true while a transaction, or a group, is in the state `state`; if `is_not` is True, while it is in another
    known state.
    """

    id: str
    """Names the transactional id, or the group."""
    state: str
    is_not: bool
    of: str = OF_TRANSACTIONS
    """Says whether `id` is a transactional id (OF_TRANSACTIONS) or a group (OF_GROUPS)."""

    @property
    def name(self) -> str:
        """Returns the subject as a condition spells it, such as "txn:squall-0"."""
        return f"{self.of}:{self.id}"

    def holds(self, seen: str | None) -> bool:
        """Return whether the condition is true for the observed state. None, the unknown state, makes no condition
        true.
        """
        return seen is not None and (seen == self.state) != self.is_not


Condition = NumericCondition | AfterFaultCondition | StateCondition


def parse(here: str, when: str) -> tuple[Condition, ...]:
    """Return the parts of a fault's condition (its `when`), which must all be true at once. Raise FaultError if the
    text is no condition. here: how messages name the fault, such as "fault 3 (kill)".
    """
    parts = [_part(here, when, each) for each in _AND.split(when.strip())]
    if why := _never(parts):
        raise FaultError(f"{here}: when = {when!r}: {why}")
    return tuple(parts)


def _part(here: str, when: str, text: str) -> Condition:
    if after := _AFTER.fullmatch(text):
        return AfterFaultCondition(int(after[1]), after[2] == "ended")
    if state := _STATE.fullmatch(text):
        of, named, op, wanted = state.groups()
        if wanted not in STATES[of]:
            raise FaultError(f"{here}: when = {when!r}: there is no state {wanted}: one of {', '.join(STATES[of])}")
        return StateCondition(named, wanted, op == "!=", of)
    found = _COMPARED.fullmatch(text)
    if found is None:
        if example := EXAMPLES.get(text.partition(":")[0]):
            raise FaultError(f"{here}: when = {when!r}: such as {example!r}, or with !=")
        for wrong, instead in (("&&", "and"), (",", "and"), (" or ", "two faults, one `when` each")):
            if wrong in text:
                raise FaultError(f"{here}: when = {when!r}: {wrong.strip()!r} is not known: write {instead}")
        what = f"{text!r} of when = {when!r}" if text != when.strip() else f"when = {when!r}"
        raise FaultError(f"{here}: {what}: such as 'isr:orders-0-0 == 1' or 'after fault 0 ended'; join them by 'and'")
    subject, of, op, number = found[1], found[2] or "", found[3], int(found[4])
    if subject in OF_PARTITIONS and not re.fullmatch(r".+-\d+", of):
        raise FaultError(f"{here}: when = {when!r}: {subject} needs a partition, as in {subject}:orders-0-0")
    if subject in OF_CALLS and not of.isdigit():
        raise FaultError(f"{here}: when = {when!r}: {subject} needs a broker, as in {subject}:2")
    if subject not in (*OF_PARTITIONS, *OF_CALLS, "controller") or (subject == "controller" and of):
        raise FaultError(f"{here}: when = {when!r}: of isr, leader, controller, fsync, write, send, txn or group")
    return NumericCondition(subject, of, op, number)


@dataclass(frozen=True, slots=True)
class ConditionScope:
    """Holds what the conditions of a plan may refer to: its faults, partitions, nodes, transactional ids and groups."""

    faults: int
    places: Sequence[str]
    """Lists the workload's partitions, as TOPIC-N."""
    nodes: Sequence[int]
    uncounted: str = ""
    """Says why the plan's brokers do not count their writes, fsyncs and sends; empty if they do."""
    names: CoordinatorKeys = field(default_factory=CoordinatorKeys)
    """Lists the workload's transactional ids and groups."""


def uncounted(runtime: str, target: str) -> str:
    """Return why the writes, fsyncs and sends of this cluster's brokers cannot be counted; "" if they can, because the
    brokers are Squall's own. runtime, target: as in the plan, such as "process" and "squall".
    """
    if runtime == "external":
        return "somebody else's brokers do not count their calls"
    return "" if target == "squall" else "only Squall's own broker counts its calls"


def counts_calls(when: str) -> bool:
    """Return whether a fault's condition, already checked, needs brokers that count their writes, fsyncs and sends.
    False for an empty text: the fault has no condition.
    """
    parts = parse("when", when) if when else ()
    return any(isinstance(part, NumericCondition) and part.subject in OF_CALLS for part in parts)


def check(here: str, when: str, itself: int, scope: ConditionScope) -> None:
    """Raise FaultError if the condition can never be true in this plan. The message lists all that is wrong, a line
    each. here: how it names the fault, such as "fault 3 (kill)". itself: the number of the waiting fault.
    """
    parts: list[Condition] = []
    wrong: list[str] = []
    for text in _AND.split(when.strip()):
        try:
            parts.append(_part(here, when, text))
        except FaultError as error:
            wrong += str(error).splitlines()
    never = [why for part in parts if (why := _impossible(part, itself, scope))]
    never += [why] if (why := _never(parts)) else _beyond(parts, scope)
    if wrong or never:
        raise FaultError("\n".join(dict.fromkeys([*wrong, *(f"{here}: when = {when!r}: {each}" for each in never)])))


def _impossible(condition: Condition, itself: int, scope: ConditionScope) -> str:
    """Return why one part of a condition can never be true; "" if it can. itself: the number of the fault that waits
    for the condition.
    """
    if isinstance(condition, AfterFaultCondition):
        missing = condition.fault >= scope.faults or condition.fault == itself
        return f"there is no other fault {condition.fault}" if missing else ""
    if isinstance(condition, StateCondition):
        if condition.of == OF_GROUPS:
            return no_such_group(condition.id, scope.names.groups)
        return no_such_id(condition.id, scope.names.ids)
    if condition.subject in OF_PARTITIONS and condition.of not in scope.places:
        return f"there is no partition {condition.of}"
    if condition.subject in OF_CALLS:
        return f"there is no node {condition.of}" if int(condition.of) not in scope.nodes else scope.uncounted
    return ""


def looks_at_cluster(condition: Condition) -> bool:
    """Return whether brokers must be asked to evaluate the condition: it needs a leader, an ISR, the controller, or the
    state of a transaction or group.
    """
    return isinstance(condition, StateCondition) or (
        isinstance(condition, NumericCondition) and condition.subject not in OF_CALLS
    )


def described_names(whens: Iterable[str]) -> tuple[str, ...]:
    """Return the transactional ids and groups whose states these conditions, already checked, refer to."""
    parts = [part for when in whens if when for part in parse("when", when)]
    return tuple(dict.fromkeys(part.id for part in parts if isinstance(part, StateCondition)))


def poll_s(parts: Sequence[Condition]) -> float:
    """Return the seconds between two evaluations of these conditions."""
    return SOON_S if any(isinstance(part, StateCondition) for part in parts) else POLL_S


def _never(parts: Sequence[Condition]) -> str:
    """Return why the parts of a condition contradict each other, so that they can never all be true at once (`isr:t-0 <
    1 and isr:t-0 > 2`). Empty: they can.
    """
    compared = [part for part in parts if isinstance(part, NumericCondition)]
    for subject in dict.fromkeys((part.subject, part.of) for part in compared):
        alike = [part for part in compared if (part.subject, part.of) == subject]
        # All whole numbers between two neighbouring constants compare alike, so these stand for every number.
        tried = {part.number + step for part in alike for step in (-1, 0, 1)}
        if not any(all(part.holds(number) for part in alike) for number in sorted(tried)):
            return f"no number of {':'.join(filter(None, subject))} makes this true"
    of_states = [part for part in parts if isinstance(part, StateCondition)]
    for of, name in dict.fromkeys((part.of, part.name) for part in of_states):
        if not any(all(part.holds(state) for part in of_states if part.name == name) for state in STATES[of]):
            return f"no state of {name} makes this true"
    return ""


def _beyond(parts: Sequence[Condition], scope: ConditionScope) -> list[str]:
    """Return a sentence for each number (such as the size of an ISR) that can never have a value that the conditions
    require: 5 in-sync replicas if there are 3 brokers. The sentence lists the possible values.
    """
    compared = [part for part in parts if isinstance(part, NumericCondition)]
    found = []
    for subject in dict.fromkeys((part.subject, part.of) for part in compared):
        alike = [part for part in compared if (part.subject, part.of) == subject]
        name = ":".join(filter(None, subject))
        if subject[0] == "isr":
            numbers, said = [*range(len(scope.nodes) + 1)], f"{name} is 0 to {len(scope.nodes)}"
        elif subject[0] in OF_CALLS:
            numbers, said = [0, *(part.number + step for part in alike for step in (-1, 0, 1))], f"{name} is 0 or more"
            numbers = [number for number in numbers if number >= 0]
        else:
            numbers, said = [-1, *scope.nodes], f"{name} is one of {', '.join(map(str, (-1, *scope.nodes)))}"
        if not any(all(part.holds(number) for part in alike) for number in numbers):
            found.append(f"never true: {said}")
    return found


def seen_of(condition: NumericCondition, view: Any, calls: Callable[[int, CrashOp], int] | None) -> int:
    """Return the number that the condition compares. It comes from the cluster's state `view` (a
    `squall.chaos.faults.targets.ClusterSnapshot`), or from `calls`, which returns a broker's count of writes, fsyncs or
    sends (None: the runtime does not count them).
    """
    match condition.subject:
        case "isr":
            return len(view.isr.get(condition.of, ()))
        case "leader":
            return int(view.leaders.get(condition.of, -1))
        case "controller":
            return int(view.controller)
        case "fsync" | "write" | "send" as op:
            assert calls is not None, "the plan's check lets it through where calls are counted"
            return calls(int(condition.of), op)
    raise AssertionError(f"nothing to see: {condition}")


def renumbered_faults(faults: Sequence[Mapping[str, Any]], which: Sequence[int]) -> list[dict[str, Any]]:
    """Return only those faults of a plan whose numbers are in `which`, renumbered from 0.

    If a fault waits for another fault, its condition gets the other's new number. If the other fault is left out, the
    condition is left out, too.
    """
    new = {old: at for at, old in enumerate(which)}
    found = []
    for old in which:
        fault = dict(faults[old])
        if fault.get("when"):
            parts = [_renamed(part, new) for part in _AND.split(fault["when"].strip())]
            fault["when"] = " and ".join(filter(None, parts)) or None
        found.append(fault)
    return found


def _renamed(part: str, new: Mapping[int, int]) -> str:
    """Return one part of a condition. If it waits for a fault ("after fault 2 ended"), replace the fault's number by
    the new one; return "" if that fault has no new number, because it is left out.
    """
    after = _AFTER.fullmatch(part)
    if after is None:
        return part
    now = new.get(int(after[1]))
    return "" if now is None else f"after fault {now} {after[2]}"
