"""A workload's own section of the report, drawn on the page and on the terminal."""
