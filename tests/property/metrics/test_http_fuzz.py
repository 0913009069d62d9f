"""The metrics endpoint answers random bytes in place of a request's head with an HTTP status."""

from __future__ import annotations

import pytest

from squall.broker.metrics import http
from tests.property.protocol.hostile import mutations, noise, truncations
from tests.support.effort import examples

HEAD = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9404\r\nAccept: application/openmetrics-text"


@pytest.mark.parametrize("seed", range(3))
def test_every_head_has_a_status_and_every_status_a_response(seed: int) -> None:
    count = examples(5000)
    for head in (*mutations(HEAD, count, seed), *noise(count, seed), *truncations(HEAD)):
        status, has_body = http.status_of(head)
        answer = http.refusal(status, has_body=has_body)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert answer.count(http.END) == 1
        if status == http.OK:
            assert head.split(b" ")[1].partition(b"?")[0] == http.PATH
