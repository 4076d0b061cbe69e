"""Copies and their snapshots."""

from __future__ import annotations

STORES = ["s", "t"]
