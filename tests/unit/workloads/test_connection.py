"""One connection: answers go to what they answer, and everything outstanding learns of the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.api_versions import ApiVersionsResponse
from squall.broker.protocol.schema.metadata import MetadataRequest, MetadataResponse
from squall.workloads.client.connection import BrokerConnection, RequestFailed, UnsupportedApi
from squall.workloads.client.settings import ClientSettings
from tests.support.brokers.memory_env import FakeEnv
from tests.support.clusters.fake_cluster import Break, Delay, FakeCluster, Raw, Seen, Withhold, framed

SETTINGS = ClientSettings(request_timeout_ms=5000)
VERSION = 12


@asynccontextmanager
async def connected(
    cluster: FakeCluster, settings: ClientSettings = SETTINGS, *, negotiate: bool = True
) -> AsyncIterator[BrokerConnection]:
    env = FakeEnv(cluster)
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        link = await env.connect("node-1", 9092)
        connection = BrokerConnection(env, link, settings, 0, nursery.start_soon)
        nursery.start_soon(connection.run)
        if negotiate:
            await connection.negotiate(5)
        yield connection
        nursery.cancel_scope.cancel()


async def ask(connection: BrokerConnection, timeout_s: float = 5) -> MetadataResponse:
    return await connection.request(MetadataRequest(None), MetadataResponse, VERSION, timeout_s)


class Answers:
    """Collects the results of submitted requests."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self.got: list[tuple[int, str]] = []
        self.failures: list[RequestFailed] = []

    def submit(self, number: int) -> None:
        def answer(body: memoryview | None, failure: RequestFailed | None) -> None:
            if failure is not None:
                self.failures.append(failure)
            else:
                assert body is not None
                MetadataResponse.decode(body, 0, VERSION)
            self.got.append((number, "ok" if failure is None else failure.why))

        self.connection.submit(ApiKey.METADATA, VERSION, MetadataRequest(None).encode(VERSION), answer, 5)


async def until(condition: object) -> None:
    for _ in range(1000):
        if condition():  # type: ignore[operator]
            return
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(0.01)
    raise AssertionError("never came true")


async def test_requests_are_pipelined_and_answered_in_order(clock: MockClock) -> None:
    cluster = FakeCluster(1)
    cluster.script.append(lambda seen: Delay(1) if seen.api_key == ApiKey.METADATA else None)
    async with connected(cluster) as connection:
        answers = Answers(connection)
        for number in range(3):
            answers.submit(number)
        assert answers.got == []
        await until(lambda: len(answers.got) == 3)
        assert answers.got == [(0, "ok"), (1, "ok"), (2, "ok")]


async def test_an_answer_with_another_correlation_id_ends_the_connection_and_answers_nothing(
    clock: MockClock,
) -> None:
    cluster = FakeCluster(1)
    body = MetadataResponse().encode(VERSION)
    # Both answers, in the wrong order: 2 and 1 after the handshake's 0.
    swapped = framed((2).to_bytes(4, "big") + b"\0" + body) + framed((1).to_bytes(4, "big") + b"\0" + body)
    cluster.script.append(lambda seen: Raw(swapped) if seen.api_key == ApiKey.METADATA else None)
    async with connected(cluster) as connection:
        answers = Answers(connection)
        answers.submit(1)
        answers.submit(2)
        await until(lambda: len(answers.got) == 2)
        assert answers.got == [(1, "BAD_ANSWER"), (2, "BAD_ANSWER")]
        assert all(failure.sent for failure in answers.failures)
        assert connection.closed


async def test_an_answer_that_nothing_waits_for_ends_the_connection(clock: MockClock) -> None:
    cluster = FakeCluster(1)
    body = MetadataResponse().encode(VERSION)
    twice = framed((1).to_bytes(4, "big") + b"\0" + body) * 2
    cluster.script.append(lambda seen: Raw(twice) if seen.api_key == ApiKey.METADATA else None)
    async with connected(cluster) as connection:
        await ask(connection)
        await until(lambda: connection.closed)


@pytest.mark.parametrize("cut", [0, 3, 4, 7, 20])
async def test_a_frame_cut_short_fails_its_request_as_lost_after_sending(cut: int, clock: MockClock) -> None:
    cluster = FakeCluster(1)
    whole = framed((1).to_bytes(4, "big") + b"\0" + MetadataResponse().encode(VERSION))
    cluster.script.append(lambda seen: Break(whole[:cut]) if seen.api_key == ApiKey.METADATA else None)
    async with connected(cluster) as connection:
        with pytest.raises(RequestFailed) as caught:
            await ask(connection)
        assert caught.value.why == "CONNECTION_LOST" and caught.value.sent


@pytest.mark.parametrize("data", [framed(b""), b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", framed(b"\0\0\0\1\0\xff")])
async def test_bytes_that_are_no_answer_end_the_connection(data: bytes, clock: MockClock) -> None:
    cluster = FakeCluster(1)
    cluster.script.append(lambda seen: Raw(data) if seen.api_key == ApiKey.METADATA else None)
    async with connected(cluster) as connection:
        with pytest.raises(RequestFailed) as caught:
            await ask(connection)
        assert caught.value.why == "BAD_ANSWER"
        assert connection.closed


async def test_a_request_whose_time_is_up_ends_the_connection_and_all_behind_it(clock: MockClock) -> None:
    cluster = FakeCluster(1)
    cluster.script.append(lambda seen: Withhold() if seen.api_key == ApiKey.METADATA else None)
    async with connected(cluster) as connection:
        answers = Answers(connection)
        answers.submit(0)
        await trio.sleep(4)
        answers.submit(1)
        connection.expire(trio.current_time())
        assert not connection.closed
        await trio.sleep(1)
        connection.expire(trio.current_time())
        await until(lambda: len(answers.got) == 2)
        assert answers.got == [(0, "TIMED_OUT"), (1, "TIMED_OUT")]


async def test_what_never_went_to_the_link_is_told_to_be_unsent(clock: MockClock) -> None:
    cluster = FakeCluster(1, capacity=400)
    cluster.script.append(lambda seen: Withhold() if seen.api_key == ApiKey.METADATA else None)
    async with connected(cluster) as connection:
        answers = Answers(connection)
        for number in range(40):
            answers.submit(number)
        await trio.testing.wait_all_tasks_blocked()
        connection.close()
        await until(lambda: len(answers.got) == 40)
        sent = [failure.sent for failure in answers.failures]
        assert sent[0] and not sent[-1]
        assert sent == sorted(sent, reverse=True)


async def test_what_does_not_fit_goes_out_when_there_is_room(clock: MockClock) -> None:
    cluster = FakeCluster(1, capacity=400)
    async with connected(cluster) as connection:
        answers = Answers(connection)
        for number in range(100):
            answers.submit(number)
        assert connection.unsent_bytes > 0
        await until(lambda: len(answers.got) == 100)
        assert answers.got == [(number, "ok") for number in range(100)]
        assert connection.unsent_bytes == 0


@pytest.mark.parametrize(("size", "whole"), [(100, True), (1000, False)])
async def test_a_posted_request_is_done_when_the_link_has_all_of_it(size: int, whole: bool, clock: MockClock) -> None:
    cluster = FakeCluster(1, capacity=400)
    async with connected(cluster) as connection:
        cluster.frozen = True
        done: list[bool] = []
        connection.post(ApiKey.PRODUCE, 9, bytes(size), done.append)
        assert done == []
        await trio.testing.wait_all_tasks_blocked()
        assert done == [True] * whole
        connection.close()
        await until(lambda: done)
        assert done == [whole]
        with pytest.raises(RequestFailed):
            connection.post(ApiKey.PRODUCE, 9, bytes(size), done.append)


async def test_large_answers_grow_the_buffer_and_are_bounded(clock: MockClock) -> None:
    cluster = FakeCluster(1)
    for number in range(600):
        cluster.topic(f"topic-with-a-long-name-{number:05}", [1])
    async with connected(cluster) as connection:
        assert len((await ask(connection)).topics) == 600
        assert len((await ask(connection)).topics) == 600
    small = ClientSettings(max_response_bytes=20_000)
    async with connected(cluster, small) as connection:
        with pytest.raises(RequestFailed) as caught:
            await ask(connection)
        assert caught.value.why == "BAD_ANSWER"


async def test_versions_are_negotiated_down_to_what_both_speak(clock: MockClock) -> None:
    cluster = FakeCluster(1)
    cluster.max_versions = {int(ApiKey.API_VERSIONS): 2, int(ApiKey.METADATA): 9}
    async with connected(cluster) as connection:
        assert connection.version(ApiKey.METADATA, 13) == 9
        with pytest.raises(UnsupportedApi):
            connection.version(ApiKey.METADATA, 13, 10)
    older = ClientSettings(newest_versions={ApiKey.METADATA: 4})
    async with connected(cluster, older) as connection:
        assert connection.version(ApiKey.METADATA, 13) == 4
        assert connection.version(ApiKey.API_VERSIONS, 4) == 2


async def test_a_broker_that_refuses_the_handshake_is_no_broker(clock: MockClock) -> None:
    cluster = FakeCluster(1)

    def refuse(seen: Seen) -> ApiVersionsResponse:
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)

    cluster.script.append(refuse)
    async with connected(cluster, negotiate=False) as connection:
        with pytest.raises(RequestFailed, match="INVALID_REQUEST"):
            await connection.negotiate(5)
        assert connection.closed


async def test_a_closed_connection_takes_nothing(clock: MockClock) -> None:
    cluster = FakeCluster(1)
    async with connected(cluster) as connection:
        connection.close()
        with pytest.raises(RequestFailed) as caught:
            Answers(connection).submit(0)
        assert not caught.value.sent
