"""What stands in the protocol's fields of broker ids where there is no broker."""

from __future__ import annotations

from typing import Final

NO_NODE: Final = -1
"""No broker: a partition without a leader, a vote that was not given, a controller that is not known."""
