"""Handles Fetch: read bounds, fencing, divergence, long poll (mechanisms R4, R5, R8, E3 in docs/mechanisms.md).

A follower's Fetch is also its acknowledgement: its fetch offsets move the high watermark before anything is read.
Records leave as slices of the log's files; no code here reads a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from squall.broker.apis.fetch_session import LOOK_EVERY_MS, FetchSessions, PartitionRequest, SessionError
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.hot import FetchResponsePartition, decode_fetch, encode_fetch_response
from squall.broker.replication.rules import READ_COMMITTED
from squall.broker.replication.values import NO_EPOCH
from squall.broker.work import DONE

if TYPE_CHECKING:
    from squall.broker.apis.fetch_session import FetchSession
    from squall.broker.env import Env
    from squall.broker.log.slices import FileSlice
    from squall.broker.net.connection import Connection, PendingResponse
    from squall.broker.net.deadlines import ParkedRequestTimers
    from squall.broker.protocol.hot import FetchIn, FetchRequestPartition
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager

_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_FENCED = int(ErrorCode.FENCED_LEADER_EPOCH)
_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
_CONSUMER = -1
_TOPIC_IDS_FROM = 13
_LEADER_HINTS_FROM = 16
FEW_WANTS = 10
"""Limits the partitions of a small Fetch. A small parked Fetch checks all of its partitions whenever one of them
changes; a larger Fetch checks only the changed partition.
"""
Find = Callable[[bytes], "dict[int, HostedPartition] | None"]


class DelayedFetch:
    """Represents a Fetch, which may be parked until one of its partitions (`wants`) changes or its max wait is over."""

    __slots__ = (
        "api",
        "available",
        "bucket",
        "done",
        "found",
        "isolation",
        "look",
        "max_bytes",
        "min_bytes",
        "refused",
        "replica_id",
        "session",
        "slot",
        "wants",
        "watches",
    )

    def __init__(
        self,
        api: FetchApi,
        slot: PendingResponse,
        request: FetchIn,
        wants: list[PartitionRequest],
        session: FetchSession | None,
        look: list[tuple[int, PartitionRequest]],
    ) -> None:
        self.api, self.slot, self.wants, self.session = api, slot, wants, session
        self.replica_id, self.max_bytes = request.replica_id, min(request.max_bytes, api.max_bytes)
        # A fetch never gets more than its max bytes, so a larger min bytes would always wait to the end.
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.isolation = request.isolation
        self.look = look
        """Lists the partitions to check next for data or an error to send, as (index in `wants`, partition)."""
        self.refused: dict[int, int] = {}
        """Maps an index in `wants` to the error with which that partition rejected the follower's fetch offset."""
        self.available = 0
        """Counts readable bytes, as of the latest check of each partition. It stays 0 if `min_bytes` is at most 1."""
        self.found: dict[int, int] | None = None
        """Maps an index in `wants` to the readable bytes of that partition. None until bytes are counted."""
        self.watches: list[FetchPartitionWaiter] | None = None
        """Holds one waiter per partition of `wants`. If it is None, a change of any partition wakes this fetch itself.
        """
        self.done = False
        self.bucket = -1

    def expire(self) -> None:
        """Respond with the data that is there, because the max wait is over."""
        self.api.answer(self)

    def wake(self) -> None:
        """Respond if the change of a watched partition brought an error or enough bytes (`min_bytes`), else wait on."""
        if self.done:
            return
        api = self.api
        if self.slot.conn.closed:
            api.forget(self)
            return
        if self.min_bytes > 1 or self.isolation == READ_COMMITTED:
            # A new high watermark may mean nothing for a reader of committed data. And partitions that had not changed
            # when the fetch was parked may have changed since. So check all of them.
            self.look = list(enumerate(self.wants))
            if not api.satisfied(self):
                return
        api.answer(self)

    def abandon(self) -> None:
        """Stop waiting, because the connection has ended."""
        self.api.forget(self)


class FetchPartitionWaiter:
    """Wakes a parked Fetch of many partitions when one partition changes, and makes it check only that partition.

    Otherwise each record of one partition would cost a check of all partitions of every Fetch that waits for it.
    """

    __slots__ = ("_fetch", "_look")

    def __init__(self, fetch: DelayedFetch, place: int) -> None:
        self._fetch, self._look = fetch, [(place, fetch.wants[place])]

    def wake(self) -> None:
        """Send the response if the partition's change brought an error or enough bytes (`min_bytes`), else wait on."""
        fetch = self._fetch
        if fetch.done:
            return
        api = fetch.api
        if fetch.slot.conn.closed:
            api.forget(fetch)
            return
        fetch.look = self._look
        DONE.entries += 1
        if api.satisfied(fetch):
            api.answer(fetch)


class FetchApi:
    """Handles Fetch requests."""

    def __init__(
        self,
        env: Env,
        replicas: ReplicaManager,
        timers: ParkedRequestTimers,
        sessions: FetchSessions,
        max_bytes: int,
        of_plane: Mapping[bytes, Callable[[PendingResponse, FetchIn], None]],
        max_parked: int = 10_000,
    ) -> None:
        """Create the handler of Fetch. `of_plane` maps the topic id of each log that the control plane stores (with
        KRaft, the metadata log) to the handler that serves it. `max_parked` is squall.connection.parked.max.partitions.
        """
        self._env, self._replicas, self._timers, self.max_bytes = env, replicas, timers, max_bytes
        self._of_plane, self._max_parked = of_plane, max_parked
        self._parked: dict[Connection, int] = {}
        """Counts, per connection, the partitions of its parked fetches of more than FEW_WANTS partitions."""
        self.sessions = sessions
        self.bytes_to_consumers = self.bytes_to_followers = 0
        """Count the bytes of batches sent to consumers and to followers since the start of the node."""

    def handle(self, slot: PendingResponse, view: memoryview, at: int) -> None:
        """Handle Fetch on a client listener. The request begins at byte `at` of `view`. Respond at once if there is
        data, an error or a max wait of 0; else park the fetch. May raise MalformedFrame.

        A request that names a replica is answered as a consumer's: any client can send a replica id, and a follower's
        fetch offsets count as acknowledgements.
        """
        request = decode_fetch(view, at, slot.version)
        if request.replica_id > _CONSUMER:
            request = request._replace(replica_id=_CONSUMER)
        self._serve(slot, request)

    def handle_between_nodes(self, slot: PendingResponse, view: memoryview, at: int) -> None:
        """Handle Fetch on the listener between brokers. Unlike `handle`, accept replica ids, and serve the control
        plane's logs, such as the metadata log. On client listeners a Fetch of such a log gets UNKNOWN_TOPIC_ID.
        """
        request = decode_fetch(view, at, slot.version)
        if request.topics and slot.version >= _TOPIC_IDS_FROM:
            ask = self._of_plane.get(request.topics[0][0])  # nodes fetch such a log alone
            if ask is not None:
                ask(slot, request)
                return
        self._serve(slot, request)

    def _serve(self, slot: PendingResponse, request: FetchIn) -> None:
        by_ids = slot.version >= _TOPIC_IDS_FROM
        now_ms = int(self._env.mono() * 1000)
        try:
            session, parts = self.sessions.open(request, now_ms, by_ids=by_ids)
        except SessionError as wrong:
            if slot.timer is not None:
                slot.timer.count_errors((wrong.error,))
            slot.reply(encode_fetch_response(slot.version, 0, wrong.error, 0, [], []))
            return
        find = self._replicas.by_id.get if by_ids else self._replicas.by_name.get
        if session is not None and request.replica_id >= 0:
            fetch = self._fetch_of_session(slot, request, session, find, now_ms)
        else:
            wants = [_partition_request(find, key, part) for key, part in parts]
            fetch = DelayedFetch(self, slot, request, wants, session, list(enumerate(wants)))
        if request.replica_id >= 0:
            self._acknowledge(fetch, request.replica_epoch, now_ms)
        if request.max_wait_ms <= 0 or not fetch.wants or self.satisfied(fetch):  # no wants: none could wake it
            self.answer(fetch)
        else:
            self._park(fetch, now_ms + request.max_wait_ms)

    def _fetch_of_session(
        self, slot: PendingResponse, request: FetchIn, session: FetchSession, find: Find, now_ms: int
    ) -> DelayedFetch:
        """Build a follower's fetch of all partitions in its session. Check the partitions that changed or that the
        request names. Every LOOK_EVERY_MS, and when a coordinator wakes followers, check all: only a check acknowledges
        records, and without one the follower would seem to lag. `find` maps a topic's id or name to local replicas.
        """
        known, sent = session.wants, session.sent
        called = request.replica_epoch, self._replicas.wake_round
        all_of_them = now_ms - session.looked_ms >= LOOK_EVERY_MS or called != session.called
        if all_of_them:
            session.looked_ms, session.called = now_ms, called
        wants: list[PartitionRequest] = []
        look: list[tuple[int, PartitionRequest]] = []
        for place, part in session.parts.items():
            found = known.get(place)
            if found is not None and found.part is part and _is_unchanged(found):
                want = found
                if all_of_them:
                    look.append((len(wants), want))
            else:
                want = known[place] = _partition_request(find, place[0], part)
                want.sent = sent.get(place)
                look.append((len(wants), want))
            wants.append(want)
        return DelayedFetch(self, slot, request, wants, session, look)

    def _acknowledge(self, fetch: DelayedFetch, broker_epoch: int, now_ms: int) -> None:
        """Count each fetch offset of a follower as acknowledging all earlier records (`Partition.follower_fetched`)."""
        replicas, replica_id, last_response_s = (
            self._replicas,
            fetch.replica_id,
            fetch.slot.conn.last_follower_response_s,
        )
        for place, want in fetch.look:
            part, h = want.part, want.hosted
            if h is None:
                continue
            state, log, offset = h.state, h.log, part.offset
            if state.check_leader_epoch(part.leader_epoch):
                continue
            if offset > state.log_end_offset or offset < log.log_start_offset:
                continue
            if state.divergence(log.epochs, part.last_fetched_epoch, offset) is not None:
                continue
            effects = state.follower_fetched(replica_id, offset, broker_epoch, now_ms, last_response_s)
            if effects:
                refused = replicas.apply_effects(h, effects)
                if refused:
                    # A request without an epoch cannot be ahead of the leader's epoch (measured with Kafka 4.3.1).
                    fetch.refused[place] = _NOT_LEADER if part.leader_epoch == NO_EPOCH else int(refused)
                    continue
            if h.deletions:
                state.set_follower_log_start(replica_id, part.log_start_offset)
                replicas.low_watermark_moved(h)

    def satisfied(self, fetch: DelayedFetch) -> bool:
        """Return whether the fetch must be answered now: because of an error, or because min bytes are there."""
        if fetch.refused:
            return True
        available = fetch.available
        replica = fetch.replica_id >= 0
        for place, want in fetch.look:
            part, h = want.part, want.hosted
            if h is None or h.state.check_leader_epoch(part.leader_epoch):
                return True
            state, log, offset = h.state, h.log, part.offset
            if replica:
                limit = state.log_end_offset
            elif fetch.isolation == READ_COMMITTED:
                limit = state.read_limit(READ_COMMITTED, h.first_unstable_offset())
            else:
                limit = state.high_watermark
            # The usual case: nothing to read, and, with the leader's own epoch, no divergence to look for.
            if offset == limit and part.last_fetched_epoch in (NO_EPOCH, state.leader_epoch):
                continue
            if offset < log.log_start_offset or offset > state.log_end_offset:
                return True
            if state.divergence(log.epochs, part.last_fetched_epoch, offset) is not None:
                return True
            if offset < limit:
                # A slice ends with its segment, so the rest of an older segment may never reach min bytes.
                if fetch.min_bytes <= 1 or offset < log.segments[-1].base_offset:
                    return True
                found = log.slice(offset, limit, part.max_bytes, True)
                length = found.length if found else 0
                if fetch.found is None:
                    fetch.found = {}
                available += length - fetch.found.get(place, 0)
                fetch.found[place] = length
        fetch.available = available
        return available >= fetch.min_bytes

    def _park(self, fetch: DelayedFetch, deadline_ms: int) -> None:
        if len(fetch.wants) > FEW_WANTS and not self._may_park(fetch):
            self.answer(fetch)
            return
        replica, wants = fetch.replica_id >= 0, fetch.wants
        if len(wants) > FEW_WANTS and not replica and (fetch.min_bytes > 1 or fetch.isolation == READ_COMMITTED):
            fetch.watches = [FetchPartitionWaiter(fetch, place) for place in range(len(wants))]
            for watch, want in zip(fetch.watches, wants, strict=True):
                assert want.hosted is not None
                want.hosted.consumers[watch] = None
        else:
            for want in wants:
                h = want.hosted
                assert h is not None
                (h.followers if replica else h.consumers)[fetch] = None
        fetch.slot.parked = fetch
        self._timers.add(fetch, deadline_ms)

    def _may_park(self, fetch: DelayedFetch) -> bool:
        """Return whether this fetch may wait for data, and count its partitions if so. `_max_parked` limits the count
        of a connection, but one fetch may always wait: otherwise its client would repeat it at once, without end.
        """
        conn = fetch.slot.conn
        held = self._parked.get(conn, 0)
        if held and held + len(fetch.wants) > self._max_parked:
            return False
        self._parked[conn] = held + len(fetch.wants)
        return True

    def _uncount_parked(self, fetch: DelayedFetch) -> None:
        conn = fetch.slot.conn
        left = self._parked[conn] - len(fetch.wants)
        if left:
            self._parked[conn] = left
        else:
            del self._parked[conn]

    def forget(self, fetch: DelayedFetch) -> None:
        """Remove a parked fetch from all partitions and timers. After that no partition can wake the fetch."""
        fetch.done = True
        if fetch.bucket >= 0:
            self._timers.remove(fetch)
            if len(fetch.wants) > FEW_WANTS:
                self._uncount_parked(fetch)
            if fetch.watches:
                for watch, want in zip(fetch.watches, fetch.wants, strict=True):
                    if want.hosted is not None:
                        want.hosted.consumers.pop(watch, None)
                return
            replica = fetch.replica_id >= 0
            for want in fetch.wants:
                h = want.hosted
                if h is not None:
                    (h.followers if replica else h.consumers).pop(fetch, None)

    def answer(self, fetch: DelayedFetch) -> None:
        """Read every partition within the limits of the request, and send the response."""
        if fetch.done:
            return
        self.forget(fetch)
        conn = fetch.slot.conn
        if conn.closed:
            return
        if fetch.replica_id >= 0:
            conn.last_follower_response_s = self._env.mono()
        left = fetch.max_bytes
        # The first batch leaves even if it exceeds the limits: otherwise no reader could get past it (KIP-74).
        first = True
        outs: list[tuple[bytes, FetchResponsePartition]] = []
        refused = fetch.refused
        is_session = fetch.session is not None and fetch.replica_id >= 0
        for place, want in enumerate(fetch.wants):
            error = refused.get(place) if refused else None
            if is_session and not error and _is_unchanged(want):
                continue
            out = _failed(want.part.index, error, None) if error else self._read(fetch, want, left, first)
            records = out.records
            if records:
                left -= records.length
                first = False
            outs.append((want.key, out))
        self._count(fetch, fetch.max_bytes - left, outs)
        slot, session_id = fetch.slot, 0
        if fetch.session is not None:
            session_id = fetch.session.session_id
            outs = fetch.session.changed(outs)
        topics: list[tuple[bytes, list[FetchResponsePartition]]] = []
        leaders: dict[int, None] = {}
        for key, out in outs:
            if topics and topics[-1][0] == key:
                topics[-1][1].append(out)
            else:
                topics.append((key, [out]))
            if out.error and out.current_leader is not None:
                leaders[out.current_leader[0]] = None
        hints = self._hints(leaders, slot) if leaders else []
        slot.reply(encode_fetch_response(slot.version, 0, 0, session_id, topics, hints))

    def _count(self, fetch: DelayedFetch, size: int, outs: list[tuple[bytes, FetchResponsePartition]]) -> None:
        if fetch.replica_id >= 0:
            self.bytes_to_followers += size
        else:
            self.bytes_to_consumers += size
        if fetch.slot.timer is not None:
            fetch.slot.timer.count_errors(out.error for _, out in outs)

    def _hints(self, leaders: Iterable[int], slot: PendingResponse) -> list[tuple[int, str, int, str | None]]:
        """Return the addresses of leaders that the response names, as (id, host, port, rack) (KIP-951)."""
        if slot.version < _LEADER_HINTS_FROM:
            return []
        return self._replicas.endpoints([i for i in leaders if i >= 0], slot.conn.listener)

    def _read(self, fetch: DelayedFetch, want: PartitionRequest, left: int, first: bool) -> FetchResponsePartition:
        """Read the partition of `want`: check leader epoch, divergence and bounds, then take at most `left` bytes.
        `first` is true while no records have been taken: then take one batch even if it is larger (KIP-74).
        """
        part, h = want.part, want.hosted
        if h is None:
            return self._unknown(want, fetch.slot.version)
        state, log, offset = h.state, h.log, part.offset
        error = state.check_leader_epoch(part.leader_epoch)
        if error:
            leader = (state.leader_id, state.leader_epoch) if error in (_NOT_LEADER, _FENCED) else None
            return _failed(part.index, int(error), leader)
        # The state machine's log end, not the log's own: nobody may read records that still wait for their fsync.
        start, end, hw = log.log_start_offset, state.log_end_offset, state.high_watermark
        # Taken once: what is appended, committed or decided meanwhile belongs to the next fetch (KAFKA-9807).
        undecided = h.first_unstable_offset()
        stable = state.last_stable_offset(undecided)
        diverging = state.divergence(log.epochs, part.last_fetched_epoch, offset)
        if diverging is not None:
            if diverging.is_undefined:
                return _failed(part.index, _OUT_OF_RANGE, None)
        elif offset > end or offset < start:
            return _failed(part.index, _OUT_OF_RANGE, None)
        records: FileSlice | None = None
        aborted: list[Any] | None = [] if fetch.isolation == READ_COMMITTED else None
        if diverging is None and (left > 0 or first):
            limit = end if fetch.replica_id >= 0 else state.read_limit(fetch.isolation, undecided)
            if offset < limit:
                records = log.slice(offset, limit, max(min(part.max_bytes, left), 0), first)
                if records is not None and fetch.slot.conn not in h.readers:
                    h.read_by(fetch.slot.conn)
                if records is not None and aborted is not None:
                    aborted = _aborted(h, offset, records)
        return FetchResponsePartition(
            part.index, 0, hw, stable, start, aborted, -1, records or _EMPTY, diverging, None, None
        )

    def _unknown(self, want: PartitionRequest, version: int) -> FetchResponsePartition:
        error, leader = self._replicas.absent(want.key, want.part.index, by_id=version >= _TOPIC_IDS_FROM)
        return _failed(want.part.index, int(error), leader, aborted=[])  # not null, as with Kafka 4.3.1


_EMPTY: Any = b""


def _partition_request(find: Find, key: bytes, part: FetchRequestPartition) -> PartitionRequest:
    hosted = find(key)
    return PartitionRequest(key, part, hosted.get(part.index) if hosted else None)


def _is_unchanged(want: PartitionRequest) -> bool:
    """Return whether a partition's follower needs no response: it has all records and was sent the current high
    watermark and log start. Its log ends in the leader's epoch or is empty (NO_EPOCH), so it cannot have diverged.
    """
    # Runs twice a fetch for every partition of a session, so it unpacks once and compares first what differs most.
    h, sent = want.hosted, want.sent
    if h is None or sent is None:
        return False
    _, leader_epoch, offset, last_fetched_epoch, _, _, _ = want.part
    state = h.state
    return (
        offset == state.log_end_offset
        and sent.high_watermark == state.high_watermark
        and leader_epoch == state.leader_epoch
        and last_fetched_epoch in (leader_epoch, NO_EPOCH)
        and sent.log_start_offset == h.log.log_start_offset
        and state.is_leader
        and not h.deletions
    )


def _aborted(h: HostedPartition, offset: int, records: FileSlice) -> list[tuple[int, int]]:
    """Return (producer id, first offset) of each aborted transaction with data in `records`. The consumer drops that
    data. `offset` is the fetch offset of `records`.
    """
    found = h.log.aborted_transactions(offset, h.log.bound_of(records, offset))
    return [(txn.producer_id, txn.first_offset) for txn in found]


def _failed(
    index: int, error: int, leader: tuple[int, int] | None, aborted: list[tuple[int, int]] | None = None
) -> FetchResponsePartition:
    return FetchResponsePartition(index, error, -1, -1, -1, aborted, -1, _EMPTY, None, leader, None)
