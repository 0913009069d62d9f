"""The coordinators' shards that this broker hosts: one on each replica of a coordinator's log that it leads."""
