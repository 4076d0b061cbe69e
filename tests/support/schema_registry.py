"""A schema registry in this process: the questions of a registry's REST interface that clients ask, and no more."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

LOGIN = "me:hunter2"


class StubRegistry:
    """Schemas by id, and ids by subject and schema.

    - `answer`: what every question is answered with instead, as status and body; None: what is asked for
    - `login`: the user and the password that are needed
    - `asked`: the questions so far
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.ids: dict[tuple[str, str], int] = {}
        self.answer: tuple[int, Any] | None = None
        self.login, self.asked = "", list[str]()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, schema: object, **more: object) -> int:
        """Keep a schema, and return its id."""
        self.schemas[number := 100 + len(self.schemas)] = {"schema": json.dumps(schema), **more}
        return number

    def _answered(self, path: list[str], body: dict[str, Any] | None) -> tuple[int, Any]:
        if self.answer is not None:
            return self.answer
        if body is None:
            unknown = 404, {"error_code": 40403, "message": "Schema not found"}
            return (200, self.schemas[int(path[2])]) if int(path[2]) in self.schemas else unknown
        key = path[1], body["schema"]
        if path[2:] == ["versions"] and key not in self.ids:
            self.ids[key] = self.add(json.loads(body["schema"]))
        if key not in self.ids:
            return 404, {"error_code": 40401, "message": f"Subject '{path[1]}' not found."}
        return 200, {"subject": path[1], "id": self.ids[key], "version": 1, "schema": body["schema"]}

    def _handler(registry) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if self.command == "POST" else None
                path = self.path.partition("?")[0]
                registry.asked.append(f"{self.command} {path}")
                basic = "Basic " + base64.b64encode(registry.login.encode()).decode()
                if registry.login and self.headers.get("Authorization") != basic:
                    status, answer = 401, {"error_code": 40101, "message": "Unauthorized"}
                else:
                    status, answer = registry._answered(path.strip("/").split("/"), body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_GET  # noqa: N815

        return Handler


@pytest.fixture
def stub_registry() -> Iterator[StubRegistry]:
    registry = StubRegistry()
    yield registry
    registry.close()
