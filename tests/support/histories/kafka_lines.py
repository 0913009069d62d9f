"""Log lines of Apache Kafka 4.3.1, copied from real runs and filled with other times and numbers: a log for each
broker.
"""

from __future__ import annotations

from pathlib import Path

_ROLES, _FETCHER = "state.change.logger", "kafka.server.ReplicaFetcherThread"
_ELECTIONS = "org.apache.kafka.controller.ReplicationControlManager"
_QUORUM = "org.apache.kafka.controller.QuorumController"
_LOADER = "org.apache.kafka.storage.internals.log.UnifiedLog"
_ID = "DXbrYbpCRpuFLuNp-NCoUg"

CHANGE = "isr: [1, 2, 3] -> [2, 3], leader: 1 -> 2, leaderEpoch: 0 -> 1, partitionEpoch: 0 -> 1"


def stamped(t: float, words: str, logger: str, level: str = "INFO") -> str:
    """Return a log line at `t` seconds after 1970 in UTC."""
    return f"[1970-01-01 00:00:{int(t):02},{round(t % 1 * 1000):03}] {level} {words} ({logger})"


def started(t: float) -> str:
    """The OS process of the broker starts."""
    return stamped(t, "Registered `kafka:type=kafka.Log4jController` MBean", "kafka.utils.Log4jControllerRegistration$")


def ready(t: float, node: int) -> str:
    """The broker serves."""
    return stamped(t, f"[KafkaRaftServer nodeId={node}] Kafka Server started", "kafka.server.KafkaRaftServer")


def leads(t: float, node: int, epoch: int, leo: int, hw: int, isr: str, before: str = "None") -> str:
    """A broker becomes the leader of appends-0-0."""
    words = (
        f"[Broker id={node}] Leader appends-0-0 with topic id Some({_ID}) starts at leader epoch {epoch} from "
        f"offset {leo} with partition epoch {epoch}, high watermark {hw}, ISR [{isr}], adding replicas [] and "
        f"removing replicas [] . Previous leader {before} and previous leader epoch was {epoch - 1}."
    )
    return stamped(t, words, _ROLES)


def follows(t: float, node: int, leader: int, epoch: int, leo: int, hw: int) -> str:
    """A broker becomes a follower of appends-0-0."""
    words = (
        f"[Broker id={node}] Follower appends-0-0 starts at leader epoch {epoch} from offset {leo} with partition "
        f"epoch {epoch} and high watermark {hw}. Current leader is {leader}. Previous leader None and previous leader "
        f"epoch was {epoch - 1}."
    )
    return stamped(t, words, _ROLES)


def truncates(t: float, node: int, leader: int, to: int, why: str) -> str:
    """A follower's fetcher truncates its log, or finds nothing to truncate."""
    words = (
        f"[ReplicaFetcher replicaId={node}, leaderId={leader}, fetcherId=0] Truncating partition appends-0-0 with "
        f"TruncationState(offset={to}, completed=true) due to {why}"
    )
    return stamped(t, words, _FETCHER)


def epoch_ends(epoch: int, end: int) -> str:
    """Return the reason of a truncation: the leader's answer to OffsetForLeaderEpoch."""
    return f"leader epoch and offset EpochEndOffset(errorCode=0, partition=0, leaderEpoch={epoch}, endOffset={end})"


def changes(t: float, node: int, diff: str, unclean: bool = False) -> str:
    """A controller decides or replays a change of appends-0-0; `diff` is Kafka's text of it."""
    how = "UNCLEAN partition change" if unclean else "partition change"
    words = f"[QuorumController id={node}] {how} for appends-0-0 with topic ID {_ID}: {diff}"
    return stamped(t, words, _ELECTIONS, "INFO" if unclean else "DEBUG")


def created(t: float, node: int) -> str:
    """The controller has created appends-0-0."""
    words = (
        f"[QuorumController id={node}] Replayed PartitionRecord for new partition appends-0-0 with topic ID {_ID} and "
        f"PartitionRegistration(replicas=[1, 2, 3], directories=[{_ID}, {_ID}, {_ID}], isr=[1, 2, 3], "
        "removingReplicas=[], addingReplicas=[], elr=[], lastKnownElr=[], leader=1, leaderRecoveryState=RECOVERED, "
        "leaderEpoch=0, partitionEpoch=0)."
    )
    return stamped(t, words, _ELECTIONS)


def active(t: float, node: int, epoch: int) -> str:
    """A node becomes the active controller."""
    words = f"[QuorumController id={node}] Becoming the active controller at epoch {epoch}, next write offset 47."
    return stamped(t, words, _QUORUM)


def renounces(t: float, node: int, epoch: int) -> str:
    """A controller learns that it is no longer the active one."""
    words = (
        f"[QuorumController id={node}] writeNoOpRecord: event failed with NotLeaderException (treated as "
        f"UnknownServerException) at epoch {epoch} in 250 microseconds. Renouncing leadership and reverting to the "
        "last committed offset 45. Exception message: Append failed because the replica is not the current leader."
    )
    return stamped(t, words, _QUORUM)


def fences(t: float, node: int, broker: int) -> str:
    """The controller fences a broker that sends no heartbeats."""
    words = f"[QuorumController id={node}] Fencing broker {broker} at epoch 10 because its session has timed out."
    return stamped(t, words, _ELECTIONS)


def loads(t: float, node: int, leo: int) -> str:
    """A restarted broker loads its log."""
    where = f"dir=/run/nodes/{node}/data"
    return stamped(t, f"[LogLoader partition=appends-0-0, {where}] Loading producer state till offset {leo}", _LOADER)


def shrinks(t: float, node: int, isr: str, to: str, hw: int, leo: int) -> str:
    """A leader proposes a smaller ISR."""
    words = (
        f"[Partition appends-0-0 broker={node}] Shrinking ISR from {isr} to {to}. Leader: (highWatermark: {hw}, "
        f"endOffset: {leo}). Out of sync replicas: (brokerId: 3, endOffset: {hw}, lastCaughtUpTimeMs: 1795392234733)."
    )
    return stamped(t, words, "kafka.cluster.Partition")


def isr_is(t: float, node: int, isr: str, version: int) -> str:
    """A leader learns that its ISR has changed."""
    words = f"[Partition appends-0-0 broker={node}] ISR updated to {isr}  and version updated to {version}"
    return stamped(t, words, "kafka.cluster.Partition")


LOSS: dict[int, list[str]] = {
    1: [
        *(started(0.1), ready(0.2, 1), active(0.3, 1, 1), created(0.35, 1), leads(0.5, 1, 0, 0, 0, "1,2,3")),
        *(started(7.0), loads(7.1, 1, 0), loads(7.2, 1, 90), changes(7.3, 1, CHANGE), follows(7.4, 1, 2, 1, 90, 61)),
        *(truncates(7.5, 1, 2, 50, epoch_ends(0, 50)), ready(8.0, 1)),
    ],
    2: [
        *(started(0.1), ready(0.2, 2), created(0.36, 2), follows(0.6, 2, 1, 0, 0, 0)),
        truncates(0.65, 2, 1, 0, "local high watermark 0"),
        *(active(5.5, 2, 2), fences(5.8, 2, 1), changes(5.9, 2, CHANGE), leads(6.0, 2, 1, 50, 48, "2,3", "Some(1)")),
        *(shrinks(6.2, 2, "2,3", "2", 50, 52), isr_is(8.5, 2, "1,2,3", 2)),
    ],
    3: [
        *(started(0.1), ready(0.2, 3), created(0.36, 3), follows(0.6, 3, 1, 0, 0, 0), changes(5.95, 3, CHANGE)),
        follows(6.1, 3, 2, 1, 50, 48),
    ],
}
"""Each broker's log of a run with acks=1 whose leader is killed: the run that `lost_dir` has, as Kafka would log it."""


def write_logs(run: Path, logs: dict[int, list[str]]) -> None:
    """Write the logs to nodes/N/broker.log of a run directory, without traces."""
    for node, lines in logs.items():
        folder = run / "nodes" / str(node)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "trace.jsonl").unlink(missing_ok=True)
        (folder / "broker.log").write_text("".join(f"{line}\n" for line in lines))
