"""Runs real client libraries as group members: reports their assignments, positions and commits."""
