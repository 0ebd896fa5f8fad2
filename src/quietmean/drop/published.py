"""What members publish at the end, which a drop hands out as it is: pages of a survey check every signature themselves."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from quietmean.core.portability import open_strange, read_at
from quietmean.studies.agreement.contribution import RESULT_PAGE

# Sums and logs of a million contributions have 80 MB.
_LARGEST = 1 << 28
# Of each member three, and twice as many.
_MANY = 400
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,199}}(\.sums|\.dropped|{re.escape(RESULT_PAGE)})")


@dataclass(frozen=True)
class PublishedFiles:
    """The members' files in ``folder``, by names that nothing else has; there may be no folder yet."""

    folder: Path

    def names(self) -> list[str]:
        """Which of them are there, in the order of their names."""
        try:
            with os.scandir(self.folder) as entries:
                found = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        except OSError:
            return []
        return [name for name in found if _NAME.fullmatch(name)][:_MANY]

    def content(self, name: str) -> bytes | None:
        """What a file holds; None for a name or a file that is none of these."""
        if not _NAME.fullmatch(name):
            return None
        try:
            handle = open_strange(self.folder / name)
        except OSError:
            return None
        try:
            about = os.fstat(handle)
            whole = stat.S_ISREG(about.st_mode) and about.st_size <= _LARGEST
            return read_at(handle, about.st_size, 0) if whole else None
        finally:
            os.close(handle)
