"""One partition's life as a state machine: leader, follower, ISR, high watermark, fencing. Pure."""
