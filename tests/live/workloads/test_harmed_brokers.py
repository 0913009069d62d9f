"""Real brokers that are upgraded to a version with one small bug: `squall run --upgrade-to` gives each its verdict.

They are the bugs that `tests/sim` plays in the simulator, here in code that is really started.
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.second_version import broker_with
from tests.support.squall import ended, start

pytestmark = pytest.mark.night("whole runs on real brokers")

LIMIT_S = 600
PLAN = """
seed = 5
time_s = {time_s}
upgrade_to = "{folder}"

[[faults]]
at_s = 0.5
duration_s = 60
action = "upgrade"
target = "all"
"""


@dataclass(frozen=True, slots=True)
class Harm:
    """A bug: lines to append to a module of the broker. `anomaly` is the finding that shows it; empty if the run is
    valid. `also` has findings that may come with it.
    """

    module: str
    code: str
    anomaly: str
    words: tuple[str, ...] = ()
    time_s: int = 30
    also: frozenset[str] = frozenset()


HARMS = {
    "nothing": Harm("log/log.py", "UNUSED = 1", ""),
    "timestamps a day early": Harm(
        "log/log.py",
        """
        from squall.broker.protocol.records import decode_records, encode_batch, read_header
        _append = Log.append_as_leader
        def _early(self, records, *args, client=True, **named):
            if client and self.topic.startswith("appends"):
                header = read_header(records, 0)
                records = memoryview(bytearray(encode_batch(
                    [each._replace(timestamp=each.timestamp - 86_400_000) for each in decode_records(records)],
                    producer_id=header.producer_id, producer_epoch=header.producer_epoch,
                    base_sequence=header.base_sequence)))
                named["checked"] = None
            return _append(self, records, *args, client=client, **named)
        Log.append_as_leader = _early
        """,
        "corrupt",
    ),
    "look-ups by time answer the end": Harm(
        "log/log.py",
        """
        from squall.broker.log.lookups import TimestampAndOffset
        _look_up = Log.offset_for_timestamp
        def _at_the_end(self, timestamp, limit):
            lookup = _look_up(self, timestamp, limit)
            lookup.found = TimestampAndOffset(timestamp or 0, limit, self.epochs.latest or 0)
            return lookup
        Log.offset_for_timestamp = _at_the_end
        """,
        "wrong-lookup",
        ("--lookups",),
    ),
    "a transactional id without a producer id": Harm(
        "coordinators/transactions/shard.py",
        """
        from squall.broker.coordinators.transactions.values import InitProducer
        from squall.broker.protocol.errors import ErrorCode
        _decide = TransactionCoordinatorShard.decide
        def _refused(self, request, *more):
            if isinstance(request, InitProducer) and request.transactional_id.endswith("-1"):
                return TxnCoordinatorResult(TxnResponse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            return _decide(self, request, *more)
        TransactionCoordinatorShard.decide = _refused
        """,
        "stuck-producer",
        ("--workload", "transactions"),
        time_s=60,
    ),
    "an hour of retention over after 3.6 s": Harm(
        "log/log.py",
        """
        from dataclasses import replace as _replace
        _useless = useless
        def useless(segments, config, *more):
            return _useless(segments, _replace(config, retention_ms=config.retention_ms // 1000), *more)
        """,
        "lost-write",
        ("--topic-set", "retention.ms=3600000", "--topic-set", "segment.bytes=65536",
         "--set", "log.retention.check.interval.ms=500"),
        also=frozenset({"replica-divergence"}),  # each replica removes by itself
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMS)
def test_a_version_with_a_harm_in_it_gets_the_verdict_of_the_harm(name: str, tmp_path: Path) -> None:
    harm = HARMS[name]
    folder = broker_with(tmp_path / "harmed", harm.module, lambda text: text + textwrap.dedent(harm.code))
    plan, out = tmp_path / "plan.toml", tmp_path / "runs"
    plan.write_text(PLAN.format(time_s=harm.time_s, folder=folder))
    code, printed, errors = ended(start("run", "--plan", plan, "--out", out, *harm.words), LIMIT_S)
    verdict = json.loads((out / "latest/verdict.json").read_text())
    found = {each["name"] for each in verdict["anomalies"] if not each["permitted"]}
    wanted = ("invalid", {harm.anomaly}) if harm.anomaly else ("valid", set())
    assert (verdict["verdict"], found - harm.also) == wanted, (code, printed, errors)
