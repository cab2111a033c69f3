"""A local chat server over real HTTP that does as it is told, a clock of its own, and small clips with rows."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.data.film import film
from vtgrl.core.jsonl import to_line
from vtgrl.core.registry import Component, get
from vtgrl.core.schema import VideoConfig
from vtgrl.data.caption.chat import ServerConfig
from vtgrl.data.caption.cost import Prices
from vtgrl.data.caption.pace import Stopped
from vtgrl.data.caption.remote import ServerCaptioner, server_mark
from vtgrl.data.caption.run import CaptionOptions, caption_rows

VIDEO = VideoConfig(fps=1.0, max_frames=8, max_pixels=56 * 56, total_pixels=8 * 56 * 56)
GOOD = [{"start": 0.5, "end": 2, "event": "a bar moves."}, {"start": 2, "end": 3.25, "event": "it stops."}]
KEY = "sk-local-0123456789"


@dataclass(frozen=True)
class Request:
    """One POST that came in. `seconds`: length of the clip as the prompt states it, which tells the clips apart."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    time: float

    @property
    def parts(self) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = self.body["messages"][0]["content"]
        return parts

    @property
    def text(self) -> str:
        return "\n".join(part.get("text", "") for part in self.parts)

    @property
    def images(self) -> list[str]:
        return [part["image_url"]["url"] for part in self.parts if part["type"] == "image_url"]

    @property
    def seconds(self) -> float:
        return float(re.search(r"video is ([0-9.]+) seconds", self.text)[1])  # type: ignore[index]


Act = Callable[[BaseHTTPRequestHandler, Request], None]


@dataclass
class Stub:
    """A running server. `acts`: what to do with the first requests, one each; `act`: with all others."""

    url: str
    acts: list[Act]
    act: Act
    requests: list[Request] = field(default_factory=list)
    clock: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_act(self, request: Request) -> Act:
        with self.lock:
            self.requests.append(request)
            return self.acts.pop(0) if self.acts else self.act

    def asked(self) -> list[float]:
        """Length of the clip of each request, in order."""
        return [request.seconds for request in self.requests]


@contextmanager
def serving(*acts: Act, act: Act | None = None, clock: Any = None) -> Iterator[Stub]:
    """A server on this machine, for as long as the block lasts."""
    stub = Stub("", list(acts), act or says(GOOD), clock=clock)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            now = stub.clock.now() if stub.clock else 0.0
            request = Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body, now)
            self.close_connection = True
            stub.next_act(request)(self, request)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()


def reply(handler: BaseHTTPRequestHandler, status: int, data: bytes, headers: dict[str, str] | None = None, *, length: int = -1) -> None:
    """Send an answer; `length`: the one that is stated, when it is not the true one."""
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(data) if length < 0 else length))
    handler.end_headers()
    handler.wfile.write(data)


def completion(content: Any, *, finish: str = "stop", usage: bool = True, **message: Any) -> dict[str, Any]:
    """A chat completion document."""
    document: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}]}
    return {**document, "usage": {"prompt_tokens": 100, "completion_tokens": 10}} if usage else document


def says(events: Any, *, raw: bool = False, finish: str = "stop", usage: bool = True, **message: Any) -> Act:
    """Answer with these events (`raw`: with this text)."""
    text = events if raw else json.dumps({"events": events})

    def act(handler: BaseHTTPRequestHandler, request: Request) -> None:
        reply(handler, 200, json.dumps(completion(text, finish=finish, usage=usage, **message)).encode())

    return act


def status(number: int, /, message: str = "no", headers: dict[str, str] | None = None, **error: Any) -> Act:
    """Answer with an error."""

    def act(handler: BaseHTTPRequestHandler, request: Request) -> None:
        reply(handler, number, json.dumps({"error": {"message": message, **error}}).encode(), headers)

    return act


def sends(data: bytes, *, length: int = -1) -> Act:
    """Status 200 with these bytes."""
    return lambda handler, request: reply(handler, 200, data, length=length)


def resets(handler: BaseHTTPRequestHandler, request: Request) -> None:
    """Break the connection off in the hard way."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.wfile = handler.rfile = open("/dev/null", "w+b", buffering=0)  # type: ignore[assignment]  # noqa: SIM115


def waits_for(gate: threading.Event) -> Act:
    """Say nothing until the gate opens (30 s at most), then hang up."""

    def act(handler: BaseHTTPRequestHandler, request: Request) -> None:
        gate.wait(30)

    return act


class FakeClock:
    """Time that passes only while someone waits. `waits`: how long each wait was."""

    def __init__(self) -> None:
        self.time, self.waits, self.stopped = 1000.0, list[float](), False
        self._lock = threading.Lock()

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        with self._lock:
            if self.stopped:
                raise Stopped
            self.waits.append(seconds)
            self.time += seconds

    def stop(self) -> None:
        self.stopped = True


def rows_file(folder: Path, lengths: dict[str, int], rows: list[dict[str, Any]] | None = None) -> Path:
    """Clips `NAME.mp4` of so many seconds, and rows.jsonl; without `rows` one a clip, whose id is the name."""
    for name, seconds in lengths.items():
        film(folder / f"{name}.mp4", frames=10 * seconds, fps=10)
    rows = rows or [row(name) for name in lengths]
    path = folder / "rows.jsonl"
    path.write_text("".join(map(to_line, rows)))
    return path


def row(name: str, *, id: str = "", **keys: Any) -> dict[str, Any]:
    """A canonical row about NAME.mp4; `video` adds to its video."""
    video = {"path": f"{name}.mp4", **keys.pop("video", {})}
    return {"id": id or name, "task": "vtg", "video": video, "query": "the bar moves", "windows": [[0.5, 2.0]], **keys}


def run(
    path: Path,
    url: str,
    *,
    clock: Any = None,
    prices: Prices | None = None,
    max_cost: float = 0.0,
    server: dict[str, Any] | None = None,
    captioner: dict[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Caption the rows into captioned.jsonl beside them."""
    config = ServerConfig(url=url, model="m", **(server or {}))
    source = Component("source", "jsonl", get("source", "jsonl").config())
    chosen = CaptionOptions(
        path=path, source=source, out=path.parent / "captioned.jsonl", videos=None, video=VIDEO, prices=prices, max_cost=max_cost, **options
    )
    settings = {"concurrency": 1, "clock": clock or FakeClock(), **(captioner or {})}
    return caption_rows(chosen, mark=server_mark("m"), make=lambda: ServerCaptioner(config, video=VIDEO, **settings))


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]
