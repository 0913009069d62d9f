"""Exit code 0 if the broker in this container serves clients. It asks the broker's metrics, at their default port."""

import sys
from urllib.request import urlopen

try:
    with urlopen("http://127.0.0.1:9404/metrics", timeout=4) as answer:
        sys.exit(b"\nkafka_server_kafkaserver_brokerstate 3\n" not in answer.read())
except OSError as error:
    sys.exit(str(error))
