"""A TCP proxy on the loopback device whose link to its clients can be slowed down."""

import asyncio
import threading

CHUNK = 16 * 1024


class SlowLink:
    """Forwards connections to a port; a context manager.

    Args:
        port: Where it listens.
        target: The port that it forwards to.

    Attributes:
        rate: Bytes a second to each client; None for no limit.
    """

    def __init__(self, port, target):
        self.rate = None
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
        server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(
            self._copy(client, to_server, slow=False), self._copy(server, to_client, slow=True)
        )

    async def _copy(self, source, sink, *, slow):
        try:
            while data := await source.read(CHUNK):
                sink.write(data)
                await sink.drain()
                if slow and self.rate:
                    await asyncio.sleep(len(data) / self.rate)
        except OSError:
            pass
        finally:
            sink.close()
