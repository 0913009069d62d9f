"""One partition's life: leader, follower, ISR, high watermark, fencing. Pure: (event, now) -> effects."""
