"""A link answers in a broker's stead: the error stands wherever the API's response has a place for it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.errors import ErrorCode
from broker.protocol.header import decode_response_header, encode_request
from broker.protocol.schema.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from broker.protocol.schema.end_txn import EndTxnRequest, EndTxnResponse
from broker.protocol.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.protocol.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from broker.protocol.wire import Message
from chaos.runtimes.wire.frames import SIZE, error_answer

ERROR = int(ErrorCode.NOT_COORDINATOR)


def answered(request: Message, response: type[Message], version: int) -> Any:
    """What a client reads of the link's answer."""
    frame = encode_request(request.API_KEY, version, 7, "test", request.encode(version))
    answer = error_answer(bytes(frame), ERROR)
    assert answer is not None
    view = memoryview(answer)[SIZE:]
    correlation_id, at = decode_response_header(view, request.API_KEY, version)
    assert correlation_id == 7
    return response.decode(view, at, version)[0]


@pytest.mark.parametrize("version", range(EndTxnRequest.MIN_VERSION, EndTxnRequest.MAX_VERSION + 1))
def test_end_txn(version: int) -> None:
    answer = answered(EndTxnRequest("squall-0", 4000, 3, True), EndTxnResponse, version)
    assert answer.error_code == ERROR


@pytest.mark.parametrize("version", range(InitProducerIdRequest.MIN_VERSION, InitProducerIdRequest.MAX_VERSION + 1))
def test_init_producer_id(version: int) -> None:
    assert answered(InitProducerIdRequest("squall-0", 4000), InitProducerIdResponse, version).error_code == ERROR


@pytest.mark.parametrize("version", range(4))
def test_add_partitions_of_clients_has_the_error_at_every_partition(version: int) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="squall-0",
        v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0, 2]), AddPartitionsToTxnTopic("u", [1])],
    )
    answer = answered(request, AddPartitionsToTxnResponse, version)
    told = [
        (topic.name, part.partition_index, part.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    ]
    assert told == [("t", 0, ERROR), ("t", 2, ERROR), ("u", 1, ERROR)]


@pytest.mark.parametrize("version", (4, 5))
def test_add_partitions_of_brokers_has_the_error_at_every_partition_of_every_transaction(version: int) -> None:
    one = AddPartitionsToTxnTransaction("squall-0", 4000, 3, topics=[AddPartitionsToTxnTopic("t", [0, 2])])
    answer = answered(AddPartitionsToTxnRequest(transactions=[one]), AddPartitionsToTxnResponse, version)
    (told,) = answer.results_by_transaction
    assert told.transactional_id == "squall-0"
    (topic,) = told.topic_results
    assert [(part.partition_index, part.partition_error_code) for part in topic.results_by_partition] == [
        (0, ERROR),
        (2, ERROR),
    ]


@pytest.mark.parametrize("version", (1, 2))
def test_markers_have_the_error_at_every_partition(version: int) -> None:
    marker = WritableTxnMarker(4000, 3, True, [WritableTxnMarkerTopic("t", [0, 2])], coordinator_epoch=1)
    answer = answered(WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse, version)
    (told,) = answer.markers
    assert told.producer_id == 4000
    (topic,) = told.topics
    assert (topic.name, [(part.partition_index, part.error_code) for part in topic.partitions]) == (
        "t",
        [(0, ERROR), (2, ERROR)],
    )
