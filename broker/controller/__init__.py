"""Implements the active controller's decisions as pure functions from commands to metadata records."""
