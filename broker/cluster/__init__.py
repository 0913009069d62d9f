"""The cluster image, and what fills it: replay, snapshots, the feed. Any control plane gives it."""
