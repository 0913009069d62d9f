"""The programs that Python packages cannot hold: found on PATH, else made once in the cache folder."""
