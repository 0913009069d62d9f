"""Where a cluster runs: processes, containers, simulation, or somebody else's."""
