"""A TCP proxy on the loopback device that counts, and whose link can be slow, or cut."""

import asyncio
import threading
from collections import Counter

CHUNK = 16 * 1024


class SlowLink:
    """Forwards connections from a port to another; a context manager."""

    def __init__(self, port, target):
        self.rate = None  # bytes a second to each client
        self.is_cut = False  # connections are closed, new ones after their first bytes
        self.passed = Counter()  # bytes "up" (from clients) and "down", and "connections"
        self._port, self._target = port, target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", self._port)
        asyncio.run_coroutine_threadsafe(start, self._loop).result(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _serve(self, client, to_client):
        self.passed["connections"] += 1
        if self.is_cut:
            await client.read(CHUNK)
            to_client.close()
            return
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # nothing listens
            to_client.close()
            return
        ways = self._copy(client, to_server, "up"), self._copy(server, to_client, "down")
        await asyncio.gather(*ways)

    async def _copy(self, source, sink, way):
        try:
            while not self.is_cut and (data := await source.read(CHUNK)):
                self.passed[way] += len(data)
                sink.write(data)
                await sink.drain()
                if way == "down" and self.rate:
                    await asyncio.sleep(len(data) / self.rate)
        except OSError:
            pass
        finally:
            sink.close()
