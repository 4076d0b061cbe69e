"""The keys of the example itself in `input` and `output`, read as strictly as taskplace reads its keys.

Errors: `ConfigError` with the path, the value found, and the values expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskplace.errors import ConfigError

#: The keys of `input` that say how the input is prepared.
PREPARED = ("dir", "files", "repeated", "seed")


class OwnKeys:
    """Reads the keys of one section."""

    def __init__(self, given: Mapping[str, Any], section: str, known: Sequence[str]) -> None:
        for key in given:
            if key not in known:
                raise ConfigError.unknown_key(section, key, known)
        self._given, self._section = given, section

    def __call__(
        self,
        key: str,
        default: Any,
        kind: Any,
        expected: str,
        *,
        least: float | None = None,
        most: float | None = None,
    ) -> Any:
        """Return the value of a key, or its default. `least`, `most`: the range of a number. Errors: `ConfigError`."""
        value = self._given.get(key, default)
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not fits or (least is not None and value < least) or (most is not None and value > most):
            raise ConfigError(f"{self._section}.{key}", found=value, expected=expected)
        return value


@dataclass(frozen=True)
class PreparedInput:
    """How the input is prepared: see `examples.flights.data`.

    >>> PreparedInput.of({"files": 3}, "var/in").files
    3
    """

    dir: Path
    files: int
    repeated: float
    seed: int

    @classmethod
    def of(cls, given: Mapping[str, Any], directory: str) -> PreparedInput:
        """Read the section `input`. `directory`: the default of `dir`."""
        read = OwnKeys(given, "input", PREPARED)
        return cls(
            Path(read("dir", directory, str, "a directory")),
            read("files", 0, int, "a number of files, 0 for all", least=0),
            read("repeated", 0.02, (int, float), "a share from 0 to 1", least=0, most=1),
            read("seed", 2013, int, "a number from 0", least=0),
        )

    def prepare(self) -> None:
        """Write the input files unless they exist; takes about a second."""
        from examples.flights.data import prepare

        prepare(self.dir, files=self.files, repeated=self.repeated, seed=self.seed)
