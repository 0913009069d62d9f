"""Stores partition logs on disk in Kafka's file layouts: segments, indexes, epochs, producer state, recovery,
retention.

All code here is synchronous and accesses files only through `squall.broker.env.Fs`. Appends go to the page cache. A
`FlushJob`, whose `run` may be given to `env.cpu`, makes them durable.

- `log.Log` is the log of one partition. `recovery` loads it; `manager.LogManager` keeps all logs of a broker.
- `segment`, `indexes` and `scan` implement one file of batches, its sparse indexes, and iteration over batches.
- `epochs`, `producers` and `checkpoints` keep the state that is derived from the batches.

Changes of files are ordered so that recovery can load the log after a crash between any two of them. Comments in the
code say where recovery relies on this order.
"""
