"""Runs processes that cannot outlive the harness, chooses their ports, and runs Toxiproxy as one of them."""
