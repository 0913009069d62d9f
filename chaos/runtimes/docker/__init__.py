"""Runs brokers in containers, one per broker; every link leads through one Toxiproxy in a container of its own."""
