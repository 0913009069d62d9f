"""Draws a workload's own section of the report on the page and on the terminal."""
