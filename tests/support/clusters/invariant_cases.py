"""Test cases for the invariants of partitions: each has a situation that breaks one, and the nearest that does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from squall.chaos.runtimes.sim.invariants import TopicGuarantees as Promise
from squall.chaos.runtimes.sim.invariants.batches import BatchIdentity, BatchInLog
from squall.chaos.runtimes.sim.invariants.models import FOLLOWER, LostTail, PartitionModel, ReplicaSnapshot
from squall.chaos.runtimes.sim.invariants.producers import ExpectedSequence as Expected
from squall.chaos.runtimes.sim.invariants.request_order import RequestEffect as Effect
from tests.support.clusters.client_cases import ACK, READ
from tests.support.clusters.derived_cases import DERIVED
from tests.support.clusters.group_cases import GROUPS
from tests.support.clusters.known_partitions import ALL, decision, known, one, run, sent, view
from tests.support.clusters.leader_cases import LEADERS
from tests.support.clusters.min_isr_cases import MIN_ISR_ALTERED
from tests.support.clusters.quorum_cases import QUORUM, Arguments, Case
from tests.support.clusters.session_cases import SESSIONS
from tests.support.clusters.txn_cases import TXNS

# -------------------------------------------------------------------------------------------------------- one replica

NOTHING = known()
STEP = view(hw=5, leo=8)


def replica(before: ReplicaSnapshot | None, now: ReplicaSnapshot, about: PartitionModel = NOTHING) -> Arguments:
    return before, now, about


PARTED = (*run(2), one(2, mark=7), *run(5, start=3))
"""A log of committed batches, but with another batch than the committed one at offset 2."""

REPLICA: dict[str, list[Case]] = {
    "offsets-in-order": [
        ("high watermark and end", replica(None, view(hw=9, leo=8)), replica(None, view(hw=8, leo=8))),
        (
            "start and high watermark",
            replica(None, view(start=6, hw=5, leo=8)),
            replica(None, view(start=5, hw=5, leo=8)),
        ),
        ("last stable offset", replica(None, view(hw=5, leo=8, lso=6)), replica(None, view(hw=5, leo=8, lso=2))),
        ("the log's own end", replica(None, view(hw=5, leo=8, log_end=7)), replica(None, view(hw=5, leo=8, log_end=9))),
    ],
    "hw-monotone": [
        ("within an epoch", replica(STEP, view(hw=4, leo=8)), replica(STEP, view(hw=5, leo=9))),
        ("a new leader's may lag", replica(STEP, view(hw=4, leo=8)), replica(STEP, view(hw=4, leo=8, epoch=2))),
        (
            "a follower's may go back",
            replica(STEP, view(hw=4, leo=8)),
            replica(view(hw=5, leo=8, role=FOLLOWER), view(hw=4, leo=4, role=FOLLOWER)),
        ),
    ],
    "leader-append-only": [
        ("it shrinks", replica(STEP, view(hw=5, leo=7)), replica(STEP, view(hw=5, leo=9))),
        (
            "and grows again",
            replica(STEP, view(hw=5, leo=9, generation=1)),
            replica(STEP, view(hw=5, leo=7, generation=1, role=FOLLOWER, epoch=2)),
        ),
    ],
    "epochs-monotone": [
        ("leader epoch", replica(view(epoch=2), view(epoch=1)), replica(view(epoch=2), view(epoch=2))),
        ("partition epoch", replica(STEP, view(partition_epoch=4)), replica(STEP, view(partition_epoch=6))),
        ("both rise", replica(STEP, view(epoch=2)), replica(STEP, view(epoch=2, partition_epoch=6))),
    ],
    "epoch-cache": [
        ("epochs", replica(None, view(leo=8, epochs=((1, 0), (1, 5)))), replica(None, view(leo=8))),
        (
            "offsets",
            replica(None, view(leo=8, epoch=2, epochs=((1, 5), (2, 5)))),
            replica(None, view(leo=8, epoch=2, epochs=((1, 5), (2, 8)))),
        ),
        (
            "beyond the end",
            replica(None, view(leo=8, epoch=2, epochs=((1, 0), (2, 9)))),
            replica(None, view(leo=8, epoch=2, epochs=((1, 0), (2, 8)))),
        ),
        (
            "unheard of",
            replica(None, view(leo=8, role=FOLLOWER, epochs=((1, 0), (2, 5)))),
            replica(None, view(leo=8, role=FOLLOWER, epoch=-1, epochs=((1, 0), (2, 5)))),
        ),
        (
            "a leader's own epoch",
            replica(None, view(leo=8, epoch=2)),
            replica(None, view(leo=8, epoch=2, role=FOLLOWER)),
        ),
    ],
    "isr-of-replicas": [
        ("a stranger", replica(None, view(isr=(1, 4))), replica(None, view(isr=(1, 3)))),
        ("twice", replica(None, view(isr=(1, 1))), replica(None, view(isr=(1,)))),
        (
            "the maximal one",
            replica(None, view(isr=(1, 2), maximal=(1, 3))),
            replica(None, view(isr=(1,), maximal=(1, 3))),
        ),
    ],
    "leader-in-isr": [
        ("it is not", replica(None, view(isr=(2, 3))), replica(None, view(isr=(2, 3), role=FOLLOWER))),
    ],
    "one-leader-per-epoch": [
        (
            "two",
            replica(None, view(2), known(leaders={1: 1})),
            replica(None, view(2, epoch=2), known(leaders={1: 1})),
        ),
        ("one again", replica(None, view(2), known(leaders={1: 1})), replica(None, view(1), known(leaders={1: 1}))),
    ],
    "one-fetcher": [
        (
            "two",
            replica(None, view(role=FOLLOWER)._replace(leader=2, fetching=((2, 1), (3, 1)))),
            replica(None, view(role=FOLLOWER)._replace(leader=2, fetching=((2, 1),))),
        ),
        (
            "of an epoch that is over",
            replica(None, view(role=FOLLOWER, epoch=2)._replace(leader=2, fetching=((2, 1),))),
            replica(None, view(role=FOLLOWER, epoch=2)._replace(leader=-1, fetching=())),
        ),
        ("a leader", replica(None, view()._replace(fetching=((2, 1),))), replica(None, view()._replace(fetching=()))),
    ],
    "isr-superset": [
        (
            "a decided member is not waited for",
            replica(None, view(isr=(1, 2)), known(truth=decision())),
            replica(None, view(isr=(1, 2), maximal=ALL), known(truth=decision())),
        ),
        (
            "a zombie does not matter",
            replica(None, view(isr=(1, 2)), known(truth=decision())),
            replica(None, view(isr=(1, 2)), known(truth=decision(2, epoch=2))),
        ),
    ],
    "committed-prefix": [
        (
            "another batch",
            replica(None, view(2, hw=5), known(5, copies={2: (*run(4), one(4, mark=7))})),
            replica(None, view(2, hw=4), known(5, copies={2: (*run(4), one(4, mark=7))})),
        ),
        (
            "what no leader committed",
            replica(None, view(2, hw=6), known(5, copies={2: 6})),
            replica(None, view(2, hw=5), known(5, copies={2: 6})),
        ),
        (
            "before it heard of a permitted loss",
            replica(None, view(2, hw=6), known(5, copies={2: 6})),
            replica(None, view(2, hw=6), known(5, copies={2: 6}, stale={2})),
        ),
        (
            "another batch that the leader has not deleted",
            replica(None, view(2, hw=5), known(5, copies={2: PARTED}, low=2)),
            replica(None, view(2, hw=5), known(5, copies={2: PARTED}, low=3)),
        ),
    ],
    "hw-held-by-min-isr": [
        (
            "alone",
            replica(view(hw=4), view(hw=5), known(5, copies={1: 5, 2: 4, 3: 4})),
            replica(view(hw=4), view(hw=5), known(5, copies={1: 5, 2: 5, 3: 4})),
        ),
        (
            "min ISR is 1",
            replica(view(hw=4), view(hw=5), known(5, copies={1: 5, 2: 4})),
            replica(view(hw=4), view(hw=5), known(5, copies={1: 5, 2: 4}, promise=Promise(min_isr=1))),
        ),
        *MIN_ISR_ALTERED,
        (
            "lost since it was told",
            replica(view(hw=4), view(hw=5), known(5, copies={1: 5, 2: 4})),
            replica(view(hw=4), view(hw=5), known(5, copies={1: 5, 2: 4}, lost={2: LostTail(5, 102)})),
        ),
    ],
    "weak-isr": [
        (
            "a member of its own ISR",
            replica(view(hw=4), view(hw=5), known(5, copies={1: 5, 2: 4, 3: 5}, truth=decision())),
            replica(view(hw=4), view(hw=5, isr=(1, 3)), known(5, copies={1: 5, 2: 4, 3: 5}, truth=decision())),
        ),
    ],
}

# -------------------------------------------------------------------------------------------------- what is committed

LACKING: dict[int, int | tuple[BatchIdentity, ...]] = {1: 5, 2: 4, 3: 5}
PARTITION: dict[str, list[Case]] = {
    "elr-superset": [
        (
            "a leader that can commit does not wait for an eligible one",
            (known(views=[view(isr=(1, 3))], truth=decision(isr=(1, 3), elr=(2,))),),
            (known(views=[view(isr=(1, 3), maximal=ALL)], truth=decision(isr=(1, 3), elr=(2,))),),
        ),
        (
            "it can commit nothing",
            (known(views=[view(isr=(1,))], truth=decision(isr=(1,), elr=(2,)), promise=Promise(1)),),
            (known(views=[view(isr=(1,))], truth=decision(isr=(1,), elr=(2,)), promise=Promise(2)),),
        ),
        (
            "it has not heard yet that two of three have left",
            (known(views=[view(isr=(1, 3))], truth=decision(partition_epoch=7, isr=(1,), elr=(2, 3))),),
            (known(views=[view(isr=(1, 3))], truth=decision(partition_epoch=7, isr=(1,), elr=(3,))),),
        ),
        (
            "a zombie does not matter",
            (known(views=[view(isr=(1, 3))], truth=decision(isr=(1, 3), elr=(2,))),),
            (known(views=[view(isr=(1, 3))], truth=decision(1, 2, isr=(1, 3), elr=(2,))),),
        ),
    ],
    "strong-isr": [
        (
            "a member lacks it",
            (known(5, copies=LACKING, truth=decision()),),
            (known(5, copies=LACKING, truth=decision(isr=(1, 3))),),
        ),
        (
            "an eligible one lacks it",
            (known(5, copies=LACKING, truth=decision(isr=(1,), elr=(2,))),),
            (known(5, copies=LACKING, truth=decision(isr=(1,), elr=(3,))),),
        ),
        (
            "lost with the power, and not registered again",
            (known(5, copies=LACKING, truth=decision(), lost={2: LostTail(5, 99)}),),
            (known(5, copies=LACKING, truth=decision(), lost={2: LostTail(5, 102)}),),
        ),
        (
            "lost by the last one",
            (
                known(5, copies={2: 4}, truth=decision(2, isr=(2,)), lost={2: LostTail(5, 99)},
                      promise=Promise(2, elr=True)),
            ),
            (known(5, copies={2: 4}, truth=decision(2, isr=(2,)), lost={2: LostTail(5, 99)}),),
        ),
        (
            "what everything is synced for",
            (known(5, copies=LACKING, truth=decision(), lost={2: LostTail(5, 102)}, promise=Promise(2, durable=True)),),
            (known(5, copies=LACKING, truth=decision(), damaged={2}, promise=Promise(2, durable=True)),),
        ),
        (
            "the leader deleted it",
            (known(5, copies=LACKING, truth=decision()),),
            (known(5, copies=LACKING, truth=decision(), low=5),),
        ),
    ],
    "valid-high-watermark": [
        (
            "a member ends before it",
            (known(5, copies=LACKING, views=[view(hw=5, leo=5)], truth=decision()),),
            (known(5, copies=LACKING, views=[view(hw=4, leo=5)], truth=decision()),),
        ),
        (
            "that of a zombie",
            (known(5, copies=LACKING, views=[view(hw=5, leo=5)], truth=decision()),),
            (known(5, copies=LACKING, views=[view(hw=5, leo=5)], truth=decision(epoch=2)),),
        ),
    ],
}


def written(
    batch: BatchIdentity,
    about: ReplicaSnapshot,
    *,
    after: BatchIdentity | None = None,
    first: BatchIdentity | None = None,
    low: int = 0,
    rotten: Iterable[int] = (),
) -> Arguments:
    """Return a batch behind `after`, first seen as `first` behind batch 2. The leader deleted records below `low`."""
    return (
        BatchInLog(batch, after or one(2)),
        BatchInLog(first or batch, one(2)),
        about,
        known(5, low=low, rotten=set(rotten)),
    )


NINE = view(leo=9, epoch=2, epochs=((1, 0), (2, 4)))
WRITTEN: dict[str, list[Case]] = {
    "log-matching": [
        ("another batch", written(one(3), NINE, first=one(3, mark=1)), written(one(3), NINE, first=one(3))),
        ("behind another batch", written(one(3), NINE, after=one(2, mark=1)), written(one(3), NINE, after=one(2))),
        (
            "behind another that the leader has not deleted",
            written(one(3), NINE, after=one(2, mark=1), low=2),
            written(one(3), NINE, after=one(2, mark=1), low=3),
        ),
        (
            "behind a hole on a sound disk",
            written(one(3), NINE, after=one(1), rotten={2}),
            written(one(3), NINE, after=one(1), rotten={1}),
        ),
        (
            "behind another on a rotten disk, without a hole",
            written(one(3), NINE, after=one(2, mark=1), rotten={1}),
            written(one(3), NINE, after=one(2), rotten={1}),
        ),
        (
            "another batch at the leader's log start",
            written(one(3), NINE, first=one(3, mark=1), low=3),
            written(one(3), NINE, low=3),
        ),
    ],
    "batches-in-epochs": [
        ("another epoch", written(one(3, epoch=2), NINE), written(one(3, epoch=1), NINE)),
    ],
}

CUT: list[Case] = [
    ("something is gone", (1, 5, 4, known(5)), (1, 6, 5, known(5))),
    ("it was deleted by the leader", (1, 5, 4, known(5)), (1, 5, 4, known(5, low=5))),
]
CUTS: dict[str, list[Case]] = {
    "truncation-keeps-committed": [
        *CUT,
        (
            "truncation to the high watermark",
            (1, 5, 4, known(5)),
            (1, 5, 4, known(5, promise=Promise(2, hw_truncation=True))),
        ),
    ],
    "recovery-keeps-committed": [
        *CUT,
        ("a damaged disk", (1, 5, 4, known(5, damaged={2})), (1, 5, 4, known(5, damaged={1}))),
    ],
}

FINAL: dict[str, list[Case]] = {
    "replicas-agree": [
        (
            "one ends early",
            (known(5, copies=LACKING, views=[view(n, hw=5, leo=5) for n in ALL], truth=decision()),),
            (known(5, copies={1: 5, 2: 5, 3: 5}, views=[view(n, hw=5, leo=5) for n in ALL], truth=decision()),),
        ),
        (
            "a rotten one reaches as far",
            (known(5, copies=LACKING, views=[view(n, leo=4 + n % 2) for n in ALL], truth=decision(), rotten={2}),),
            (known(5, copies=LACKING, views=[view(n, hw=5, leo=5) for n in ALL], truth=decision(), rotten={2}),),
        ),
        (
            "not all is committed",
            (known(5, copies={1: 6, 2: 6, 3: 6}, views=[view(n, hw=5, leo=6) for n in ALL], truth=decision()),),
            (known(6, copies={1: 6, 2: 6, 3: 6}, views=[view(n, hw=6, leo=6) for n in ALL], truth=decision()),),
        ),
        (
            "one does not run",
            (known(truth=decision(), copies={1: 0, 2: 0, 3: 0}, views=[view(n) for n in (1, 2)]),),
            (known(truth=decision(), copies={1: 0, 2: 0, 3: 0}, views=[view(n) for n in ALL]),),
        ),
    ],
}

# ---------------------------------------------------------------------------------------------------------- producers


BATCH: dict[str, list[Case]] = {
    "producer-sequences": [
        ("a gap", (sent(6), Expected(0, 5)), (sent(5), Expected(0, 5))),
        ("around the wrap", (sent(1), Expected.after(sent(2**31 - 1))), (sent(0), Expected.after(sent(2**31 - 1)))),
        ("whoever is new", (sent(6), Expected(0, 5)), (sent(6), None)),
        (
            "after a batch of three",
            (sent(6), Expected.after(sent(2, records=3))),
            (sent(5), Expected.after(sent(2, records=3))),
        ),
    ],
    "appended-once": [
        ("again", (sent(4), Expected(0, 5)), (sent(5), Expected(0, 5))),
        ("a new epoch begins at 0", (sent(0), Expected(0, 5)), (sent(0, epoch=1), Expected(0, 5))),
        ("of offsets in transactions", (sent(-1), Expected(0, 5)), (sent(-1, attributes=0x10), Expected(0, 5))),
    ],
    "producer-epochs": [
        ("a zombie", (sent(0, epoch=1), Expected(2, 5)), (sent(5, epoch=2), Expected(2, 5))),
        ("not from 0", (sent(5, epoch=3), Expected(2, 5)), (sent(0, epoch=3), Expected(2, 5))),
        (
            "a marker has no sequence",
            (sent(-1, epoch=3), Expected(2, 5)),
            (sent(-1, epoch=3, attributes=0x30), Expected(2, 5)),
        ),
        (
            "offsets that a group's coordinator writes in a transaction have none either",
            (sent(-1, epoch=3), Expected(2, 5)),
            (sent(-1, epoch=3, attributes=0x10), Expected(2, 5)),
        ),
    ],
}

# ---------------------------------------------------------------------------------------------------------- decisions


def decided(before: Any, now: Any, about: PartitionModel = NOTHING) -> Arguments:
    return before, now, about


HARMED = {"copies": LACKING, "lost": {2: LostTail(5, 99)}}
DECISION: dict[str, list[Case]] = {
    "leader-completeness": [
        (
            "who is elected lacks something",
            decided(decision(), decision(2, 2, 6), known(5, copies=LACKING)),
            decided(decision(), decision(3, 2, 6), known(5, copies=LACKING)),
        ),
        (
            "an unclean election",
            decided(decision(), decision(2, 2, 6, (2,)), known(5, copies=LACKING, promise=Promise(unclean=True))),
            decided(
                decision(),
                decision(2, 2, 6, (2,), leader_recovery_state=1),
                known(5, copies=LACKING, promise=Promise(unclean=True)),
            ),
        ),
        (
            "it lost that with the power, and was the last one",
            decided(decision(), decision(2, 2, 6), known(5, **HARMED)),
            decided(decision(), decision(2, 2, 6, (2,)), known(5, **HARMED)),
        ),
        (
            "nobody has noticed that it died",
            decided(decision(), decision(2, 2, 6), known(5, **HARMED)),
            decided(decision(), decision(2, 2, 6), known(5, copies=LACKING, lost={2: LostTail(5, 102)})),
        ),
        (
            "with eligible leader replicas only where none was left",
            decided(decision(), decision(2, 2, 6, (2,)), known(5, **HARMED, promise=Promise(2, elr=True))),
            decided(
                decision(),
                decision(2, 2, 6, (2,), leader_recovery_state=1),
                known(5, **HARMED, promise=Promise(2, elr=True)),
            ),
        ),
    ],
    "valid-decision": [
        ("leader", decided(None, decision(1, isr=(2, 3))), decided(None, decision(-1, isr=(2, 3)))),
        ("a stranger", decided(None, decision(isr=(1, 4))), decided(None, decision(isr=(1, 3)))),
        ("in both", decided(None, decision(isr=(1,), elr=(1, 2))), decided(None, decision(isr=(1,), elr=(2,)))),
        (
            "an empty ISR",
            decided(None, decision(-1, isr=())),
            decided(None, decision(-1, isr=(), elr=(1,)), known(promise=Promise(elr=True))),
        ),
    ],
    "decision-epochs": [
        ("partition epoch", decided(decision(), decision(isr=(1, 2))), decided(decision(), decision(1, 1, 6, (1, 2)))),
        ("leader epoch", decided(decision(), decision(2, 1, 6)), decided(decision(), decision(2, 2, 6))),
        ("back", decided(decision(1, 2, 6), decision(1, 1, 7)), decided(decision(1, 2, 6), decision(1, 2, 6))),
    ],
    "isr-joins-in-service": [
        (
            "a fenced one",
            decided(decision(isr=(1,)), decision(1, 1, 6, (1, 2)), known(fenced=[2])),
            decided(decision(isr=(1,)), decision(1, 1, 6, (1, 2)), known(fenced=[3])),
        ),
        (
            "the last one may be",
            decided(decision(), decision(1, 1, 6, (1, 2)), known(fenced=[2])),
            decided(decision(), decision(-1, 2, 6, (2,)), known(fenced=[2])),
        ),
    ],
    "clean-election": [
        (
            "from outside",
            decided(decision(isr=(1,)), decision(2, 2, 6, (1, 2))),
            decided(decision(isr=(1, 2)), decision(2, 2, 6, (1, 2))),
        ),
        (
            "from the eligible ones",
            decided(decision(isr=(1,)), decision(2, 2, 6, (2,))),
            decided(decision(isr=(1,), elr=(2,)), decision(2, 2, 6, (2,))),
        ),
        (
            "unclean",
            decided(decision(isr=(1,)), decision(2, 2, 6, (2,), leader_recovery_state=1)),
            decided(
                decision(isr=(1,)),
                decision(2, 2, 6, (2,), leader_recovery_state=1),
                known(promise=Promise(unclean=True)),
            ),
        ),
    ],
}

EPOCH: dict[str, list[Case]] = {"epoch-durable-before-append": [("one that is not", (3, (0, 2)), (2, (0, 2)))]}
LOADED: dict[str, list[Case]] = {
    "loaded-log-is-whole": [
        ("a torn body", (1, 7, 9, known()), (1, 9, 9, known())),
        ("a damaged disk", (1, 7, 9, known(damaged={2})), (1, 7, 9, known(damaged={1}))),
    ]
}

OF_ONE = REPLICA | PARTITION | WRITTEN | CUTS | EPOCH | LOADED | FINAL
ORDER: dict[str, list[Case]] = {
    "one-order-per-connection": [
        ("an append behind a later one", (Effect(3, 0), Effect(4, 0)), (Effect(4, 0), Effect(3, 0))),
        ("a setting altered behind a look at it", (Effect(1, 44), Effect(2, 32)), (Effect(2, 32), Effect(1, 44))),
    ],
}

CASES = ORDER | OF_ONE | BATCH | DECISION | DERIVED | QUORUM | ACK | READ | TXNS | GROUPS | LEADERS | SESSIONS
