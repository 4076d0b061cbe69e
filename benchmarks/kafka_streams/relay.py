"""Relays TCP connections, and cuts the network of chosen processes: nothing of theirs passes until it is healed.

    python -m kafka_streams.relay '[[["127.0.0.2", 5000], ["127.0.0.1", 5000]], ...]'    # listens at, passes on to

**Idea.** The other end has the relay's address for its own (`advertised.listeners`, `spark.driver.host`). So all
connections to it go through here. A line of JSON on the standard input, `{"cut": pid}`, stops those of a process and
its descendants; `{"heal": true}` lets them go on. Each answer is a line of JSON with the time and the number of
connections. The program ends with its input.

It is like a cut cable: connections stay open, and what is sent waits in the sender's buffers. After a heal it arrives,
as with retransmissions. One difference: a new connection of a process that is cut off is established, and then silent.

A process is found by the port of its end of a connection: this is for one machine with Linux.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from dataclasses import dataclass, field

import psutil

from kafka_streams.programs import family

PIECE = 1 << 16  # bytes

#: Host and port.
Address = tuple[str, int]


@dataclass(eq=False, slots=True)
class Link:
    """One relayed connection: the port of the client's end, and whether anything passes."""

    port: int
    passes: asyncio.Event = field(default_factory=asyncio.Event)


class Relay:
    """Passes connections on. `listen` begins; `cut` and `heal` may be called at any time after it."""

    def __init__(self) -> None:
        self._links: set[Link] = set()
        self._cut: set[int] = set()  # process ids
        self._servers: list[asyncio.Server] = []
        self._running: set[asyncio.Task[None]] = set()

    async def listen(self, at: Address, to: Address) -> None:
        """Pass connections to one address on to another one."""

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            await self._take(reader, writer, to)

        self._servers.append(await asyncio.start_server(take, *at))

    async def close(self) -> None:
        """End all connections."""
        for server in self._servers:
            server.close()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def cut(self, pid: int) -> int:
        """Stop the connections of a process and its descendants. Return how many there are."""
        processes = family(pid)
        self._cut |= {process.pid for process in processes}
        ports = set().union(*(ports_of(process) for process in processes))
        found = [link for link in self._links if link.port in ports]
        for link in found:
            link.passes.clear()
        return len(found)

    def heal(self) -> int:
        """Let everything go on. Return how many connections were stopped."""
        self._cut.clear()
        found = [link for link in self._links if not link.passes.is_set()]
        for link in found:
            link.passes.set()
        return len(found)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: Address) -> None:
        link = Link(writer.get_extra_info("peername")[1])
        self._links.add(link)
        if not self._is_cut(link.port):
            link.passes.set()
        try:
            await link.passes.wait()  # nobody hears of a connection of one that is cut off
            with contextlib.suppress(OSError):  # refused or reset: the client sees an end
                there_reader, there_writer = await asyncio.open_connection(*to)
                try:
                    await asyncio.gather(
                        pump(reader, there_writer, link.passes), pump(there_reader, writer, link.passes)
                    )
                finally:
                    there_writer.close()
        finally:
            writer.close()
            self._links.discard(link)

    def _is_cut(self, port: int) -> bool:
        """Return whether a new connection is of a process that is cut off, or of a later child of it."""
        if not self._cut:
            return False
        for pid in list(self._cut):
            with contextlib.suppress(psutil.NoSuchProcess):
                processes = family(pid)
                self._cut |= {process.pid for process in processes}
                if any(port in ports_of(process) for process in processes):
                    return True
        return False


def ports_of(process: psutil.Process) -> set[int]:
    """Return the local ports of a process' connections; none if it has ended."""
    try:
        return {each.laddr.port for each in process.net_connections("tcp") if each.raddr}
    except psutil.Error:
        return set()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
    """Pass on what comes in one direction, its end too; while nothing passes, what was read waits."""
    while True:
        try:
            piece = await reader.read(PIECE)
        finally:  # nor does a reset pass
            await passes.wait()
        if not piece:
            break
        writer.write(piece)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def answer(relay: Relay, line: bytes) -> str:
    """Carry out an order; return the line that says so."""
    order = json.loads(line)
    found = relay.cut(order["cut"]) if "cut" in order else relay.heal()
    return json.dumps({"at": time.time(), **order, "connections": found})


async def main(routes: list[tuple[Address, Address]]) -> None:
    """Relay until the standard input ends."""
    relay = Relay()
    for at, to in routes:
        await relay.listen((at[0], at[1]), (to[0], to[1]))
    print(json.dumps({"at": time.time(), "listens": len(routes)}), flush=True)
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        print(answer(relay, line), flush=True)
    await relay.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
