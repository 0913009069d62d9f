"""Partition logs on disk, in Kafka's own file layouts: segments, indexes, epochs, producers, recovery, retention.

Everything here is synchronous and sees the world only through `squall.broker.env.Fs`. Appends go to the page cache;
what makes them durable is a `FlushJob`, whose `run` may be given to `env.cpu`.

- `log.Log`: one partition. `recovery` loads it, `manager.LogManager` keeps all of a broker's.
- `segment`, `indexes`, `scan`: one file of batches, its sparse indexes, and walking from batch to batch.
- `epochs`, `producers`, `checkpoints`: what is derived from the batches and kept beside them.

Order of effects is chosen so that a crash between any two of them leaves something that recovery understands; each
place says what it relies on.
"""
