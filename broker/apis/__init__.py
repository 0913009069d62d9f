"""The trio part of the broker: connections, dispatch, handlers, purgatories, fetchers, peers."""
