"""Handlers of the APIs that this broker serves, and the table that says which handler answers which API."""
