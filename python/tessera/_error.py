"""The one exception of the package."""

from __future__ import annotations


class Error(Exception):
    """What Tessera refuses or fails at; ``str()`` is one line.

    ``kind`` is "general", "usage", "model", "memory" or "storage"; ``code`` is a stable name, for
    instance "E_SETTING_VALUE". The others are empty where they say nothing. ``index`` is the place of
    the input that failed, of requests that were given as a list.
    """

    def __init__(
        self,
        message: str,
        kind: str = "general",
        code: str = "",
        file: str = "",
        where: str = "",
        expected: str = "",
        found: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, kind, code, file, where, expected, found, hint)
        self.kind = kind
        self.code = code
        self.file = file
        self.where = where
        self.expected = expected
        self.found = found
        self.hint = hint
        self.index = 0

    def __str__(self) -> str:
        return str(self.args[0])


def usage(code: str, where: str, expected: str, found: str, hint: str = "") -> Error:
    """An error of the package's own, worded as the library's."""
    line = f"{where}: expected {expected}, found {found}" + (f" ({hint})" if hint else "")
    return Error(line, "usage", code, "", where, expected, found, hint)
