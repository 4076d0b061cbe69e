"""Matches topic names against regular expressions that other members send.

RE2 compiles and matches them, because it never backtracks. For any pattern, matching takes time proportional to the
length of the name. Python's `re` can take exponential time for a short pattern.

Properties:
- the syntax is RE2's (https://github.com/google/re2/wiki/Syntax), as for Kafka's subscriptions by pattern (KIP-848);
- a pattern matches the whole name; `\\d`, `\\w` and `\\s` mean ASCII;
- a pattern has at most `MOST_LETTERS` letters, counted repetitions multiply to 1000 at most (RE2's own limit), and the
  compiled pattern takes at most `MOST_BYTES` of memory. RE2 keeps the last 128 compiled patterns of the process;
- bad patterns are reported as errors only: RE2 writes nothing to stderr.

Errors: `InputError` with RE2's reason.

Non-goals: look-around and references to groups, which cannot be matched in linear time.

Source: "Subscription" by regular expression in the client-side assignment proposal.
"""

from __future__ import annotations

import re2

from taskplace import validation
from taskplace.errors import InputError

MOST_LETTERS = 512
MOST_BYTES = 256 * 1024
_MOST_REASON = 80  # letters of RE2's reason, which repeats the pattern


class Pattern:
    """A compiled pattern.

    >>> dated = Pattern(r"(orders|users)-\\d{4}")
    >>> dated.matches("orders-2026"), dated.matches("orders-20261")
    (True, False)
    >>> Pattern("(a")
    Traceback (most recent call last):
    taskplace.errors.InputError: pattern: found '(a', expected a regular expression in RE2's syntax; missing ): (a
    """

    def __init__(self, pattern: str, path: str = "pattern") -> None:
        if pattern != "":  # an empty pattern is valid: it matches only the empty name
            validation.text(pattern, path)
        if len(pattern) > MOST_LETTERS:
            shortened = f"{pattern[:20]}... ({len(pattern)} letters)"
            raise InputError(path, found=shortened, expected=f"a pattern of at most {MOST_LETTERS} letters")
        try:
            self._regexp = re2.compile(pattern, _options())
        except re2.error as error:
            reason = error.args[0].decode(errors="replace")[:_MOST_REASON]
            raise InputError(
                path, found=pattern, expected="a regular expression in RE2's syntax", hint=reason
            ) from None

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        return self._regexp.fullmatch(name) is not None


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = MOST_BYTES
    options.log_errors = False
    options.never_capture = True  # faster, and groups are not needed
    return options
