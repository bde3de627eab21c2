"""Which line of source an instruction comes from (DWARF 4, section 6.2)."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from sweeper.emulation.dwarf import Cursor

__all__ = ["LineTable"]

_Row = tuple[int, int, int]  # address, number of the file, line


@dataclass(slots=True)
class LineTable:
    """One unit's table. `files` are as the compiler was given them, number 1 first."""

    files: list[str] = field(default_factory=list)
    _addresses: list[int] = field(default_factory=list)
    _rows: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def read(cls, section: bytes, offset: int) -> LineTable:
        """The table at `offset` of `.debug_line`; an empty one where its version is not 2 to 4."""
        cursor = Cursor(section, offset)
        end = cursor.number(4) + cursor.at
        version = cursor.number(2)
        if not 2 <= version <= 4:
            return cls()
        program = cursor.number(4) + cursor.at
        least = cursor.number(1)
        if version == 4:
            cursor.number(1)  # operations an instruction
        cursor.number(1)  # whether lines are statements
        base, line_range, first_special = cursor.number(1, signed=True), cursor.number(1), cursor.number(1)
        lengths = [cursor.number(1) for _ in range(first_special - 1)]
        table = cls(_files(cursor))
        state = _Program(Cursor(section, program), least, base, line_range, first_special, lengths)
        rows = sorted(state.run(end), key=lambda row: (row[0], row[1:] != _END))
        table._addresses = [row[0] for row in rows]
        table._rows = [(row[1], row[2]) for row in rows]
        return table

    def file(self, number: int) -> str:
        return self.files[number - 1] if 1 <= number <= len(self.files) else ""

    def find(self, address: int) -> tuple[str, int] | None:
        """File and line of the instruction that `address` lies in."""
        at = bisect.bisect_right(self._addresses, address) - 1
        # Line 0 is what comes of several lines: the last one before it is the best there is.
        while at > 0 and self._rows[at] != _END and not self._rows[at][1]:
            at -= 1
        if at < 0 or self._rows[at] == _END:
            return None
        number, line = self._rows[at]
        return self.file(number), line


_END = (0, 0)


def _files(cursor: Cursor) -> list[str]:
    folders = [""]
    while folder := cursor.text():
        folders.append(folder)
    files = []
    while name := cursor.text():
        number = cursor.uleb()
        cursor.uleb(), cursor.uleb()  # when it changed, and its size
        known = 0 < number < len(folders) and not name.startswith("/")
        files.append(f"{folders[number]}/{name}" if known else name)
    return files


class _Program:
    """The line number program: a table's rows, written as the steps from each to the next."""

    def __init__(
        self, cursor: Cursor, least: int, base: int, line_range: int, first_special: int, lengths: list[int]
    ) -> None:
        self.cursor, self.least, self.base, self.line_range = cursor, least, base, line_range
        self.first_special, self.lengths = first_special, lengths
        self.address, self.file, self.line = 0, 1, 1
        self.rows: list[_Row] = []

    def run(self, end: int) -> list[_Row]:
        while self.cursor.at < end:
            code = self.cursor.number(1)
            if code >= self.first_special:
                self._special(code)
            elif code == 0:
                self._extended()
            else:
                self._standard(code)
        return self.rows

    def _row(self) -> None:
        self.rows.append((self.address, self.file, self.line))

    def _special(self, code: int) -> None:
        step = code - self.first_special
        self.address += step // self.line_range * self.least
        self.line += self.base + step % self.line_range
        self._row()

    def _extended(self) -> None:
        size = self.cursor.uleb()
        end = self.cursor.at + size
        code = self.cursor.number(1)
        if code == 1:  # end of a sequence
            self.rows.append((self.address, *_END))
            self.address, self.file, self.line = 0, 1, 1
        elif code == 2:  # set address
            self.address = self.cursor.number(size - 1)
        self.cursor.at = end

    def _standard(self, code: int) -> None:
        cursor = self.cursor
        if code == 1:
            self._row()
        elif code == 2:
            self.address += cursor.uleb() * self.least
        elif code == 3:
            self.line += cursor.sleb()
        elif code == 4:
            self.file = cursor.uleb()
        elif code == 8:
            self.address += (255 - self.first_special) // self.line_range * self.least
        elif code == 9:
            self.address += cursor.number(2)
        else:
            for _ in range(self.lengths[code - 1]):
                cursor.uleb()
