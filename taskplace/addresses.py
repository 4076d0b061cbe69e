"""Checks addresses to listen on, before anything is started. Errors: `InputError` naming what asked for them."""

from __future__ import annotations

import os
import socket

from taskplace.errors import InputError

HIGHEST_PORT = 65_535


def check_address(path: str, *, port: object, host: object) -> None:
    """Refuse what cannot be a port or a host. `path`: what asks for it.

    >>> check_address("serve_ui", port=70_000, host="127.0.0.1")
    Traceback (most recent call last):
    taskplace.errors.InputError: serve_ui: port: found 70000, expected a port from 0 to 65535; 0 takes a free one
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= HIGHEST_PORT:
        expected = f"a port from 0 to {HIGHEST_PORT}; 0 takes a free one"
        raise InputError(f"{path}: port", found=port, expected=expected)
    if not isinstance(host, str) or not host:
        raise InputError(f"{path}: host", found=host, expected="an address of this host")


def listen(path: str, *, port: int, host: str) -> socket.socket:
    """Return a socket that listens on an address. `path`: what asks for it."""
    check_address(path, port=port, host=host)
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise _unusable(path, host, port, error) from error


def check_free(path: str, *, port: int, host: str) -> None:
    """Refuse an address that cannot be listened on now. `path`: the key that asks for it."""
    listen(path, port=port, host=host).close()


def _unusable(path: str, host: str, port: int, error: OSError) -> InputError:
    """Return the error for an address that cannot be listened on."""
    # The text of `create_server` names the address again; an unknown host has a negative number, and a text of its own.
    number = error.errno or 0
    text = os.strerror(number) if number > 0 else error.strerror or error
    return InputError(
        path,
        found=f"{host}:{port} ({text})",
        expected="an address of this host, and a port that no other process uses; port 0 takes a free one",
    )
