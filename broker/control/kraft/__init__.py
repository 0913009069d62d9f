"""The KRaft plane: the metadata quorum at its edge, the controller as a service, snapshots."""
