"""One container per broker, every link through one Toxiproxy in a container of its own."""
