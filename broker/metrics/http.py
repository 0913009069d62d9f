"""Implements as much of HTTP/1.1 (RFC 9112) as a scrape needs: one request, one response, then the connection ends.
Works on bytes, without I/O.
"""

from __future__ import annotations

import re

PATH = b"/metrics"
END = b"\r\n\r\n"
OK, BAD_REQUEST, NOT_FOUND, NOT_ALLOWED, TIMED_OUT, TOO_LARGE = 200, 400, 404, 405, 408, 431
_REASONS = {
    OK: "OK",
    BAD_REQUEST: "Bad Request",
    NOT_FOUND: "Not Found",
    NOT_ALLOWED: "Method Not Allowed",
    TIMED_OUT: "Request Timeout",
    TOO_LARGE: "Request Header Fields Too Large",
}
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S+) HTTP/1\.([01])")
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\0\r\n]*")


def status_of(head: bytes) -> tuple[int, bool]:
    """Return the HTTP status for a request's head (all before the empty line), and whether the response has a body: the
    response to a HEAD request has none.
    """
    first, *fields = head.split(b"\r\n")
    asked = _REQUEST_LINE.fullmatch(first)
    if asked is None or any(_FIELD.fullmatch(each) is None for each in fields):
        return BAD_REQUEST, True
    method, target, minor = asked.groups()
    hosts = sum(each[:5].lower() == b"host:" for each in fields)
    if hosts > 1 or (minor == b"1" and hosts == 0):
        return BAD_REQUEST, True
    if method not in (b"GET", b"HEAD"):
        return NOT_ALLOWED, True
    has_body = method == b"GET"
    return (OK if target.partition(b"?")[0] == PATH else NOT_FOUND), has_body


def response(status: int, body: bytes, content_type: str, *, has_body: bool = True) -> bytes:
    """Encode a response, after which the connection ends."""
    head = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(["Allow: GET, HEAD"] if status == NOT_ALLOWED else []),
    ]
    return "\r\n".join(head).encode() + END + (body if has_body else b"")


def refusal(status: int, *, has_body: bool = True) -> bytes:
    """Encode a response without metrics. Its status, such as 404, gives the reason."""
    return response(status, f"{_REASONS[status]}\n".encode(), "text/plain; charset=utf-8", has_body=has_body)
