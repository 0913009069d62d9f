"""Checks at which calls a request counts as taking effect."""

from __future__ import annotations

from contextvars import Context, copy_context

from squall.broker.protocol.apis import ApiKey
from squall.chaos.runtimes.sim.invariants.connections import ConnectionOrderWatch, RequestOrder
from squall.chaos.runtimes.sim.invariants.request_order import RequestEffect

INIT = int(ApiKey.INIT_PRODUCER_ID)


def test_what_a_task_does_that_a_request_has_started_is_not_its_effect() -> None:
    """A coordinator decides all waiting requests in the task that the first of them started (swarm seed 99336)."""
    watch, order, found = ConnectionOrderWatch(), RequestOrder(), list[RequestEffect]()
    watch.tell = lambda node, effect, last: found.append(effect)
    take = watch._effective(lambda: None)

    def dispatched(number: int) -> Context:
        """Dispatch a request that takes effect, and return the context of a task that it starts."""
        watch._now.set((1, order, RequestEffect(number, INIT)))
        started: Context = watch._effective(copy_context)()
        return started

    first, _ = copy_context().run(dispatched, 2), copy_context().run(dispatched, 3)
    first.run(take)
    assert (order.last.number, found) == (3, [])
    copy_context().run(lambda: (watch._now.set((1, order, RequestEffect(2, INIT))), take()))
    assert [effect.number for effect in found] == [2]
