"""Implements KRaft's control plane: the metadata quorum with disk and network, the controller, snapshots."""
