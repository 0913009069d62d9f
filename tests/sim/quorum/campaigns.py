"""Random tests of Raft: a seed decides how bad network and disks are ("weather"). After a time of faults all nodes must
agree.
"""

from __future__ import annotations

import random

from tests.sim.quorum.world import Violation, Weather, World

FAULTS = ("kill", "power_loss", "all_power_loss", "cut", "isolate", "pause")
CRASH_POINTS = ("vote", "candidate", "leader", "follower", "truncated")


def weather_of(seed: int) -> Weather:
    """Return the weather of a seed. Seeds differ in which faults occur: some bugs show only while other faults are
    absent.
    """
    rng = random.Random(repr((seed, "weather")))
    return Weather(
        delay_ms=(1, rng.choice((2, 10, 60))),
        slow=rng.choice((0, 0, 0.02)),
        loss=rng.choice((0, 0, 0.05, 0.2)),
        repeat=rng.choice((0, 0, 0.1)),
        sync_ms=(1, rng.choice((2, 10, 60))),
        fault_every_ms=rng.choice((300, 1000, 3000)),
        faults=tuple(rng.sample(FAULTS, rng.randint(1, len(FAULTS)))),
        crash_at=tuple(rng.sample(CRASH_POINTS, rng.choice((0, 0, 1, len(CRASH_POINTS))))),
        jitter_ms=rng.choice((10, 50, 150)),
        most_records=rng.choice((1, 3, 20)),
        hurry=rng.random() < 0.5,
        snapshot=rng.choice((0, 0.05, 0.5)),
    )


def campaign(seed: int, voters: int, weather: Weather | None = None, calm_ms: int = 15_000) -> World:
    """Run ten seconds of faults, and then wait without faults until all nodes agree. Raises Violation."""
    trouble_ms = 10_000
    world = World(seed, voters, observers=1, weather=weather or weather_of(seed))
    world.start()
    world.propose(trouble_ms, every_ms=100)
    world.cause_faults(trouble_ms)
    try:
        world.run(trouble_ms)
        world.check_logs()
        world.heal()
        if not world.run(calm_ms, until=world.converged):
            raise Violation(f"Liveness: no agreement {calm_ms} ms after everything was healed")
        world.check_logs()
    except AssertionError as error:
        tail = "\n".join(world.story[-40:])
        raise Violation(f"{error}\ncampaign({seed}, {voters}), the end of the story:\n{tail}") from error
    return world
