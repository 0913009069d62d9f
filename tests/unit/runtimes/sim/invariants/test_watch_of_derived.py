"""The watch sees what is derived go wrong in real logs and images; and it says nothing of what may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from squall.broker.cluster import replay
from squall.broker.cluster.image import ClusterImage
from squall.broker.cluster.unserved_records import KEEP
from squall.broker.log.segment import INDEX, TIME_INDEX
from squall.broker.protocol.schema import metadata_records as records
from squall.chaos.runtimes.sim.invariants import inspection
from squall.chaos.runtimes.sim.invariants.decision_log import REPLAY, MetadataReplay
from tests.support.clusters.watched_world import WatchedWorld


def replicated(records: int = 5, **settings: object) -> WatchedWorld:
    """Return a world in which all records are committed and on every node."""
    world = WatchedWorld(**settings)  # type: ignore[arg-type]
    for _ in range(records):
        world.nodes[1].write()
        world.look()
        world.replicate()
    assert world.names == []
    return world


def with_starts(at: int) -> WatchedWorld:
    """Replicate as `replicated` does, and let node 3 start at an offset."""
    world = replicated()
    hosted = world.nodes[3].hosted
    hosted.log.increment_log_start(at)
    hosted.state.log_start_moved(at)
    world.look()
    assert world.names == []
    return world


def test_a_log_that_starts_earlier_again_is_seen() -> None:
    world = with_starts(4)
    world.nodes[3].hosted.log.log_start_offset = 2
    world.look()
    assert "log-start-goes-on" in world.names
    assert "starts at 2, and started at 4" in "\n".join(map(str, world.violations))


def test_a_log_that_starts_earlier_again_in_the_moment_that_its_node_dies_is_seen() -> None:
    for back in (False, True):
        world = with_starts(4)
        if back:
            world.nodes[3].hosted.log.log_start_offset = 2
        world.nodes[3].kill()
        world.look()
        assert ("log-start-goes-on" in world.names) is back, world.names


@pytest.mark.parametrize("dies", [False, True])
def test_a_metadata_log_that_starts_earlier_again_is_seen(dies: bool) -> None:
    world = replicated()
    node = world.nodes[3]
    inspection.metadata_log(node.node).log_start_offset -= 1
    if dies:
        node.kill()
    else:
        node.node.control.quorum.is_leader = True  # Its seat has changed: it is looked at.
    world.look()
    assert "log-start-goes-on" in world.names


def test_a_replica_that_takes_its_log_to_start_earlier_again_is_seen() -> None:
    world = with_starts(4)
    world.nodes[3].hosted.state.log_start_offset = 2
    world.nodes[3].hosted.log.increment_log_start(5)
    world.look()
    assert "log-start-goes-on" in world.names


def test_the_start_may_go_back_with_the_end() -> None:
    world = with_starts(4)
    hosted = world.nodes[3].hosted
    hosted.log.truncate_to(3)
    hosted.state.truncated(3)
    world.look()
    assert "log-start-goes-on" not in world.names


@pytest.mark.parametrize(("suffix", "name"), [(INDEX, "offset-index-is-dense"), (TIME_INDEX, "time-index-is-dense")])
def test_an_index_that_was_emptied_and_is_believed_at_a_load_is_seen(suffix: str, name: str) -> None:
    """The first segment lies below the recovery point: it is not scanned."""
    for harmed in (False, True):
        world = replicated(30, segment_bytes=600, index_interval=150)
        node = world.nodes[3]
        assert len(node.hosted.log.segments) > 3
        node.hosted.log.flush(0)
        node.node.logs.checkpoint_recovery_points()
        node.kill()
        world.look()
        files = node.disk.files()
        first = min(each for each in files if each.startswith("data/t-0/") and each.endswith(suffix))
        assert files[first]
        node.disk.restore({**files, first: b""} if harmed else files)
        node.start()
        world.look()
        assert (name in world.names) is harmed, world.names


@pytest.mark.parametrize("rotten", [False, True])
def test_an_image_that_comes_from_no_records_is_seen_but_where_bits_rot(rotten: bool) -> None:
    world = replicated()
    if rotten:
        world.watch.damaged(1, rotten=True)
    inspection.metadata_log(world.nodes[1].node).truncate_fully_and_start_at(0)
    world.decide(isr=(1, 2))
    world.nodes[1].learn()
    world.look()
    assert world.names == ([] if rotten else ["records-can-be-replayed"])


def test_a_topic_that_cannot_be_found_by_its_name_is_seen() -> None:
    world = replicated()
    world.decide()
    world.nodes[1].learn()
    world.look()
    del world.image.topic_ids["t"]
    world.nodes[2].learn()
    world.look()
    assert world.names == ["image-is-a-replay"]
    assert "topic that is found by the name t is missing" in str(world.violations[0])


def test_a_registration_before_the_epoch_that_it_gave_is_seen() -> None:
    world = replicated()
    broker = world.image.brokers[3]
    for node, offset in ((1, 900), (2, 901), (3, 5)):
        world.image.brokers[3] = replace(broker, registered_at=offset)
        world.image.offset += node == 1
        world.nodes[node].learn()
        world.look()
        assert world.names == ([] if node < 3 else ["registration-is-a-replay"])


UNSERVED = (
    records.AccessControlEntryRecord(id=b"1" * 16, host="a"),
    records.AccessControlEntryRecord(id=b"2" * 16, host="b"),
    records.AccessControlEntryRecord(id=b"1" * 16, host="c"),
    records.RemoveAccessControlEntryRecord(id=b"2" * 16),
    records.UserScramCredentialRecord(name="u", mechanism=1),
    records.UserScramCredentialRecord(name="u", mechanism=2),
    records.RemoveUserScramCredentialRecord(name="u", mechanism=1),
    records.DelegationTokenRecord(token_id="1"),
    records.DelegationTokenRecord(token_id="2"),
    records.RemoveDelegationTokenRecord(token_id="1"),
    records.RegisterControllerRecord(controller_id=1),
    records.RegisterControllerRecord(controller_id=2),
    records.UnregisterControllerRecord(controller_id=1),
    records.ZkMigrationStateRecord(zk_migration_state=1),
    records.ZkMigrationStateRecord(zk_migration_state=2),
    records.ClientQuotaRecord(entity=[records.EntityData("user", None)], key="k", value=1.0),
    records.ClientQuotaRecord(entity=[records.EntityData("user", "")], key="k", value=2.0),
    records.ClientQuotaRecord(entity=[records.EntityData("user", None)], key="k", remove=True),
)


@pytest.mark.parametrize("mistaken", [None, *KEEP], ids=lambda kind: kind.__name__ if kind else "none")
def test_what_an_image_keeps_is_compared_with_the_records(
    mistaken: type | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No simulated node writes such records: here they are replayed by the broker, and by the books."""
    if mistaken is not None:
        monkeypatch.delitem(replay.APPLY, mistaken)
    image, log = ClusterImage(), MetadataReplay()
    for offset, record in enumerate(UNSERVED):
        replay.replay(image, record, offset, 1)
        log.take(offset + 1, 1, [(offset, record)])
    alike = inspection.canonical(image) == inspection.canonical(log)
    assert alike is (mistaken is None)


def test_the_books_know_each_kind_of_record_that_images_do() -> None:
    assert REPLAY.keys() == replay.APPLY.keys()
