"""A registry of container images on loopback. It serves only what an engine needs to pull one image."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class Image:
    """An image of one layer with one file. If `broken`, the registry serves bytes of the layer that differ from its
    digest.
    """

    def __init__(self, text: str, *, broken: bool = False) -> None:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            entry = tarfile.TarInfo("word")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
        layer = gzip.compress(out.getvalue(), mtime=0)
        layers = {"type": "layers", "diff_ids": [digest(out.getvalue())]}
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": layers}).encode()
        self.blobs = {digest(config): config, digest(layer): b"nothing" if broken else layer}
        told = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "size": len(config), "digest": digest(config)},
            "layers": [{"mediaType": LAYER, "size": len(layer), "digest": digest(layer)}],
        }
        self.manifest = json.dumps(told).encode()
        self.id = digest(config)
        """The image's id in an engine that has pulled it."""


def digest(data: bytes) -> str:
    """Return the sha256 digest in the form that registries use."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def registry(images: dict[str, Image]) -> Iterator[tuple[str, list[str]]]:
    """Serve images, given by "NAME:TAG". Yields ("127.0.0.1:PORT", the list of requested paths)."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Serve an image's manifest or blob, or 404."""
            asked.append(self.path)
            kind, body = found(images, self.path)
            self.send_response(200 if kind else 404)
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.send_header("Content-Type", kind or "application/json")
            self.send_header("Content-Length", str(len(body)))
            if kind == MANIFEST:
                self.send_header("Docker-Content-Digest", digest(body))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing: the list of requested paths has it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def found(images: dict[str, Image], path: str) -> tuple[str, bytes]:
    """Return (media type, body) of the resource at a path; the type is empty if there is none."""
    if path == "/v2/":
        return "application/json", b"{}"
    name, _, rest = path.removeprefix("/v2/").partition("/manifests/")
    for reference, image in images.items():
        known, _, tag = reference.partition(":")
        if name == known and rest in (tag, digest(image.manifest)):
            return MANIFEST, image.manifest
        _, _, wanted = path.partition(f"/v2/{known}/blobs/")
        if wanted in image.blobs:
            return "application/octet-stream", image.blobs[wanted]
    return "", b"{}"
