"""Processes that cannot outlive the harness, their ports, and the Toxiproxy that is one of them."""
