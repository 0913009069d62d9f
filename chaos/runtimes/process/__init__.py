"""Runs one OS process per broker on loopback, every link through a real Toxiproxy."""
