"""Segments, indexes, checkpoints, recovery, epoch cache and producer state of partition logs, over `Env.fs`."""
