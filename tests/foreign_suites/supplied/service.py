"""The module `test.service` that kafka-python's integration tests import and its source distribution leaves out.

It is written anew, with what the tests ask of a broker that is there already.
"""

from __future__ import annotations


class ExternalService:
    """A broker that somebody else started."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def dump_logs(self) -> None:
        """Its log is where it was started."""

    def stop(self) -> None:
        """It continues."""


class SpawnedService:
    """A broker that the tests start. Those that insist on one fail here: each has its row."""

    def __init__(self, arguments: object, environment: object) -> None:
        raise RuntimeError("this test starts a broker of its own")
