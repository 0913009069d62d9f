"""Handles the requests of the APIs that this broker serves. `routes` maps each API to its handler."""
