"""The cluster image, and what builds it: replay, snapshots, the feed. The same for every control plane."""
