"""The mutants (planted bugs) that clients notice have an effect in a unit of the broker."""

from __future__ import annotations

from types import SimpleNamespace as Fields
from typing import Any

import pytest

from squall.broker.apis import produce
from squall.broker.apis.produce import ProduceApi
from squall.broker.log import log as log_module
from squall.broker.log import scan
from squall.broker.log.durability import DurabilityTracker
from squall.broker.log.producer_rules import BatchMetadata, ProducerRules, ProducerStateEntry
from squall.broker.log.producers import ProducerStates
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.purgatory import DelayedProduce, ProducePurgatory, ProduceResult
from squall.chaos.mutants import find
from squall.workloads.client import consumer
from tests.support.disks.batches import batch
from tests.support.disks.memory_fs import MemoryFs
from tests.support.disks.small_log import open_log
from tests.support.replication.partitions import leader

PID = 7


def header(first: int, epoch: int = 0) -> Any:
    return Fields(base_sequence=first, last_offset_delta=0, producer_epoch=epoch)


def remembered() -> ProducerStateEntry:
    entry = ProducerStateEntry(0)
    entry.window = [BatchMetadata(at, at, at, at, 1000) for at in range(3)]
    entry.next_sequence, entry.timestamp = 3, 1000
    return entry


def test_20c_refuses_what_it_has_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def appended(*given: Any) -> tuple[ProduceResult, None]:
        asked.append(given[5])
        return ProduceResult(0, 0, 5), None

    h: Any = Fields(state=Fields(under_min_isr_before_append=lambda: True))
    mutant = find("20c")
    monkeypatch.setitem(mutant.replaces[0].by.__globals__, "SOUND_APPEND", appended)
    with mutant.planted():
        result, awaited = ProduceApi._append(Fields(), h, 0, memoryview(b""), 9, -1, 0, 0, None)  # type: ignore[arg-type]
    assert (result.error, awaited, asked) == (ErrorCode.NOT_ENOUGH_REPLICAS, None, [1])


def test_36_knows_the_newest_batch_only() -> None:
    rules, entry = ProducerRules(), remembered()
    assert rules.known_batch(entry, header(1)) is not None
    with find("36").planted():
        assert rules.known_batch(entry, header(1)) is None
        assert rules.known_batch(entry, header(2)) is not None
        assert rules.known_batch(entry, header(2, epoch=1)) is None


def test_53_knows_batches_that_were_truncated() -> None:
    for planted in (False, True):
        log = open_log(MemoryFs())
        log.append_as_leader(batch(1, pid=PID, seq=0), 1, 1000)
        log.append_as_leader(batch(1, pid=PID, seq=1), 1, 1000)
        if planted:
            with find("53").planted():
                log.truncate_to(1)
        else:
            log.truncate_to(1)
        assert log.log_end_offset == 1
        assert len(log.producers.entries[PID].window) == (2 if planted else 1)


def test_54_tells_offset_0_unless_there_is_an_error() -> None:
    assert produce._on_the_wire(ProduceResult(0, 0, 5))[2] == 5
    with find("54").planted():
        assert produce._on_the_wire(ProduceResult(0, 0, 5))[2] == 0
        assert produce._on_the_wire(ProduceResult(0, 3))[2] == -1


def test_57_nobody_waits_for_a_flush() -> None:
    durability = DurabilityTracker(open_log(MemoryFs()).config, 0)
    durability._flush_messages = 1
    assert durability.is_flush_required(5)
    with find("57").planted():
        assert not durability.is_flush_required(5)
        assert durability.is_due(5, 0)


def test_58_takes_any_checksum() -> None:
    data = memoryview(b"x" * 80)
    assert not scan.is_intact(Fields(crc=1), data)  # type: ignore[arg-type]
    with find("58").planted():
        assert scan.is_intact(Fields(crc=1), data)  # type: ignore[arg-type]


def test_62_takes_batches_of_any_epoch() -> None:
    log = open_log(MemoryFs())
    log.append_as_leader(batch(1), 9, 1000)
    (sent,) = log.read_batches(0, 1)
    data = memoryview(sent[1])
    assert not log_module.checked_batches(data, 0, 5, gaps=False)
    with find("62").planted():
        assert len(log_module.checked_batches(data, 0, 5, gaps=False)) == 1


def test_63_waits_go_on_when_leadership_ends() -> None:
    queue, told = ProducePurgatory(), []
    result = ProduceResult(0, 0, 5)
    queue.add(DelayedProduce(queue, 6, result), Fields(settled=lambda: told.append(result.error)))
    with find("63").planted():
        queue.answer_all(6, (2, 1))
    assert not told
    queue.answer_all(6, (2, 1))
    assert told == [6]


def test_64_leaves_open_transactions_out() -> None:
    states = ProducerStates()
    states.entries = {1: remembered(), 2: remembered()}
    states.entries[2].txn_first_offset = 2
    with find("64").planted():
        found = ProducerStates.decode(states.encode())
    assert found is not None
    assert list(found.entries) == [1]


def test_65_counts_a_flush_from_before_a_truncation() -> None:
    job: Any = Fields(names=1, generation=0, end_offset=9, inactive=())
    for planted, durable in ((False, 0), (True, 9)):
        durability = DurabilityTracker(open_log(MemoryFs()).config, 0)
        if planted:
            with find("65").planted():
                durability.done(job, 1, 0)
        else:
            durability.done(job, 1, 0)
        assert durability.recovery_point == durable


def test_66_forgets_early_and_never_during_a_transaction() -> None:
    rules, entry = ProducerRules(), remembered()
    assert not rules.may_forget(entry, 2000, 86_400_000)
    with find("66").planted():
        assert rules.may_forget(entry, 2000, 86_400_000)
        entry.txn_first_offset = 4
        assert not rules.may_forget(entry, 2000, 86_400_000)


def test_67_shifts_what_it_tells_by_each_truncation() -> None:
    log = open_log(MemoryFs())
    with find("67").planted():
        assert log.append_as_leader(batch(1), 1, 1000).base_offset == 0
        log.append_as_leader(batch(1), 1, 1000)
        log.truncate_to(1)
        assert log.append_as_leader(batch(1), 1, 1000).base_offset == 2


def test_68_a_lone_leader_commits_nothing() -> None:
    partition = leader(log_end=9)
    partition.followers.clear()
    partition.replicas = partition.isr = (1,)
    partition.high_watermark = 0
    sound = partition.next_high_watermark(0)
    with find("68").planted():
        assert partition.next_high_watermark(0) == 0 != sound


def test_71_writes_down_what_is_not_durable() -> None:
    from squall.broker.log.checkpoints import RECOVERY_POINTS
    from squall.broker.log.manager import LogManager

    log: Any = Fields(log_end_offset=9, recovery_point=2)
    fs = MemoryFs()
    fs.mkdirs("d")
    manager: Any = Fields(logs={("t", 0): log}, _fs=fs, _path=lambda name: f"d/{name}", _deleted_since_checkpoint={})
    manager.checkpoint_log_starts = lambda: None
    with find("71").planted():
        LogManager.checkpoint_recovery_points(manager)
    assert b"t 0 9" in fs.open(f"d/{RECOVERY_POINTS}").pread(999, 0)


def test_86_returns_small_batches_first() -> None:
    log = open_log(MemoryFs())
    for count in (3, 1):
        log.append_as_leader(batch(count), 1, 1000)
    sent = memoryview(b"".join(bytes(data) for _, data in log.read_batches(0, 4)))
    assert [record.offset for record in consumer.read_records(sent, 0, None, 0).records] == [0, 1, 2, 3]  # type: ignore[attr-defined]
    with find("86").planted():
        assert [record.offset for record in consumer.read_records(sent, 0, None, 0).records] == [3, 0, 1, 2]  # type: ignore[attr-defined]


def test_92_withholds_the_last_record_that_is_replicated() -> None:
    partition = leader(log_end=9)
    partition.high_watermark = 7
    assert partition.read_limit(0, None) == 7
    with find("92").planted():
        assert partition.read_limit(0, None) == 6
        assert partition.read_limit(1, 3) == 3


def test_93_writes_the_epoch_in_which_a_follower_fetches() -> None:
    source, copy = open_log(MemoryFs()), open_log(MemoryFs())
    source.append_as_leader(batch(1), 1, 1000)
    (sent,) = source.read_batches(0, 1)
    with find("93").planted():
        copy.append_as_follower(memoryview(bytes(sent[1])), 4)
    (kept,) = copy.read_batches(0, 1)
    assert (sent[0].leader_epoch, kept[0].leader_epoch) == (1, 4)
    assert sent[0].crc == kept[0].crc
