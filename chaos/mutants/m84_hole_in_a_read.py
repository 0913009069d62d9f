"""Plants AutoMQ #2193: a block cache loses one of the blocks of a read, and the answer has a hole.

AutoMQ found the hole by a check, and failed the read. Here there is no such check.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from squall.broker.apis.fetch import DelayedFetch, FetchApi
from squall.broker.apis.fetch_session import PartitionRequest
from squall.broker.log.slices import FileSlice
from squall.broker.protocol.hot import FetchResponsePartition
from squall.broker.protocol.records import batches
from squall.chaos.mutants.hunt_plans import draw, hunt_plan, slow_links
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = FetchApi._read
FEWEST = 3
"""Is the smallest number of batches in a read from which this bug leaves one out."""


class _ReadBlocks(NamedTuple):
    """Offers bytes in memory by a file's method `pread`, because a response reads its records from a file."""

    data: bytes

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes of `data` from `position` on."""
        return self.data[position : position + length]


def _read(
    self: FetchApi, fetch: DelayedFetch, want: PartitionRequest, left: int, first: bool
) -> FetchResponsePartition:
    """Leave out the second batch of a consumer's read of three batches or more."""
    out = _SOUND(self, fetch, want, left, first)
    records: Any = out.records
    if fetch.replica_id >= 0 or not records:
        return out
    data = records.read()
    found = [(start, end) for _, start, end in batches(memoryview(data))]
    if len(found) < FEWEST:
        return out
    start, end = found[1]
    blocks: Any = _ReadBlocks(data[:start] + data[end:])
    return out._replace(records=FileSlice(blocks, 0, len(blocks.data)))


def plan(seed: int) -> Plan:
    """Return a plan in which followers acknowledge late, so that one read has several batches."""
    rng = draw(seed, "84")
    return hunt_plan(seed, [slow_links(rng, rng.uniform(0.1, 0.5), 2.0)], workload={"rate": 300, "partitions": 1})


MUTANT = Mutant(
    id="84",
    name="hole-in-a-read",
    title="leaves out a batch in the middle of an answer to a consumer",
    source="AutoMQ #564 (2023), #2193 (2024)",
    replaces=(ReplacedFunction(FetchApi, "_read", _read),),
    expected=("int-poll-skip",),
    faults=("latency",),
    plan=plan,
)
