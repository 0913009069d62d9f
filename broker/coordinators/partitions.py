"""Maps a key to its partition of a coordinator's log: Kafka's `Utils.abs(key.hashCode()) % partitions`."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Return Java's String.hashCode of a text: a signed 32-bit hash of its UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    assert len(units) % 2 == 0
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    signed = found - (1 << 32) if found >= 1 << 31 else found
    assert -(1 << 31) <= signed < 1 << 31
    return signed


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a coordinator's log for a group id or a transactional id. A hash of -2^31 counts as 0, as
    in Kafka.
    """
    assert partitions > 0
    hashed = java_hash(key)
    # Java's abs of the smallest int is negative.
    found = (0 if hashed == -(1 << 31) else abs(hashed)) % partitions
    assert 0 <= found
    assert found < partitions
    return found
