"""Groups whose records are as large as a batch may be: nobody is kept from progress by what others have said."""

from __future__ import annotations

from broker.coordinators.groups.consumer.facts import Targeted
from tests.unit.coordinators.consumer_room import A, Consumer, ConsumerRoom, places


def test_a_log_that_ends_among_the_targets_is_gone_on_from() -> None:
    """They may be written in several batches, of which the next coordinator has the first ones."""
    room = ConsumerRoom()
    one, other = Consumer("m1"), Consumer("m2")
    room.together(one)
    room.enter(other)
    targets = [at for at, (written, _) in enumerate(room.log) if isinstance(written, Targeted)]
    del room.log[targets[-2] + 1 :]
    room.fail_over()
    assert room.consumers.epoch > room.consumers.target_epoch
    room.enter(other)  # it has had no answer
    room.settle_down(one, other)
    assert sorted(one.owned + other.owned) == sorted(places(A, 0, 1, 2, 3))
