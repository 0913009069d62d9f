"""Implements a consumer's membership in a group: assignment, offsets, and both group protocols."""
