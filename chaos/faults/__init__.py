"""What can be done to a cluster, to whom and when; and the nemesis, which does it and proves that it landed."""
