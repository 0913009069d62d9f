"""The API table, headers and error codes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map

from squall.broker.protocol import apis, errors, header
from squall.broker.protocol.apis import APIS, ApiKey
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from tests.property.protocol.kio_messages import kio_classes


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_table_agrees_with_kio(api: apis.Api) -> None:
    assert api_key_map[api.key] == api.module
    requests = kio_classes(api.module, "request")
    versions = range(api.first_decodable, api.max_version + 1)
    assert set(versions) <= set(requests)
    assert {version for version in versions if requests[version].__flexible__} == {
        version for version in versions if version >= api.flexible_from
    }
    for version in versions:
        assert requests[version].__header_schema__.__version__ == apis.request_header_version(api.key, version)
        response = kio_classes(api.module, "response")[version]
        assert response.__header_schema__.__version__ == apis.response_header_version(api.key, version)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_table_agrees_with_the_generated_classes(api: apis.Api) -> None:
    for cls in (apis.request_class(api.key), apis.response_class(api.key)):
        assert cls.API_KEY == api.key
        assert cls.FLEXIBLE_FROM == max(api.flexible_from, api.first_decodable)
        assert cls.MIN_VERSION == api.first_decodable
        assert cls.MAX_VERSION >= api.max_version


def test_what_no_client_may_see_is_not_in_the_table() -> None:
    assert not {71, 72, *range(76, 93)} & set(APIS)
    assert {int(key) for key in ApiKey} == set(APIS)


def test_produce_is_listed_from_version_0_and_served_from_3() -> None:
    # KAFKA-18659: old librdkafka silently drops snappy where the listed minimum is 3.
    assert (APIS[0].min_version, APIS[0].first_decodable) == (0, 3)


def test_importing_the_table_imports_no_message_class() -> None:
    code = (
        "import sys; from squall.broker.protocol import apis, header, hot, records;"
        "loaded = [m for m in sys.modules if m.startswith('squall.broker.protocol.schema') or m in ('kio', 'cramjam')];"
        "sys.exit(str(loaded) if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_keys_have_no_classes() -> None:
    with pytest.raises(KeyError):
        apis.request_class(4)
    with pytest.raises(KeyError):
        apis.response_class(99)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@pytest.mark.parametrize("client_id", (None, "", "client-é", "x" * 300))
def test_request_headers_are_read_as_they_are_written(api: apis.Api, client_id: str | None) -> None:
    for version in range(api.first_decodable, api.max_version + 1):
        frame = header.encode_request(api.key, version, -7, client_id, b"body")
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        found = header.decode_request_header(memoryview(frame)[4:])
        assert found[:4] == (api.key, version, -7, client_id)
        assert frame[4 + found.body :] == b"body"


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_response_headers_are_read_as_they_are_written(api: apis.Api) -> None:
    for version in range(api.first_decodable, api.max_version + 1):
        raw = header.encode_response_header(api.key, version, 0x01020304)
        assert header.decode_response_header(memoryview(raw + b"body"), api.key, version) == (0x01020304, len(raw))
        assert len(raw) == 4 + apis.response_header_version(api.key, version)


def test_a_request_header_looks_as_kafka_says() -> None:
    frame = header.encode_request(18, 4, 3, "ab", b"\x01\x01\0")
    assert frame == bytes.fromhex("00000010 0012 0004 00000003 0002 6162 00 010100")


def test_apiversions_answers_have_no_tags_in_their_header() -> None:
    # KIP-511: the client reads this header before it knows which versions the broker speaks.
    assert header.encode_response_header(18, 4, 1) == b"\0\0\0\x01"
    assert header.encode_response_header(3, 12, 1) == b"\0\0\0\x01\0"


def test_unknown_tags_of_a_header_are_passed_over() -> None:
    frame = bytes.fromhex("0003 000c 00000001 ffff 02 00 01aa 8001 02bbcc") + b"body"
    assert frame[header.decode_request_header(memoryview(frame)).body :] == b"body"
    answer = bytes.fromhex("00000009 01 05 03aabbcc") + b"body"
    assert header.decode_response_header(memoryview(answer), 3, 12) == (9, len(answer) - 4)


def test_headers_of_unknown_apis_are_read_up_to_the_client_id() -> None:
    frame = bytes.fromhex("03e7 0001 00000005 0001 61")
    assert header.decode_request_header(memoryview(frame)) == (999, 1, 5, "a", 11)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes(9),
        bytes.fromhex("0003 000c 00000001 7fff 61"),
        bytes.fromhex("0003 000c 00000001 fffe 61"),
        bytes.fromhex("0003 000c 00000001 0001 ff 00"),
        bytes.fromhex("0003 000c 00000001 ffff"),
        bytes.fromhex("0003 000c 00000001 ffff ffffffff0f"),
        bytes.fromhex("0003 000c 00000001 ffff 01 00 05aa"),
        bytes.fromhex("0003 000c 00000001 ffff 808080808000"),
    ],
)
def test_request_headers_that_are_none_are_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedFrame):
        header.decode_request_header(memoryview(frame))


@pytest.mark.parametrize("frame", [b"", bytes(3), bytes(4), bytes.fromhex("00000001 01 00 05aa")])
def test_response_headers_that_are_none_are_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedFrame):
        header.decode_response_header(memoryview(frame), 3, 12)


def test_error_codes_are_kafkas() -> None:
    assert {(code.name, code.value) for code in ErrorCode} == {(c.name.upper(), int(c.value)) for c in KioErrorCode}


def test_codes_of_newer_peers_have_a_name_too() -> None:
    assert errors.name_of(6) == "NOT_LEADER_OR_FOLLOWER"
    assert errors.name_of(999) == "UNKNOWN_CODE_999"
