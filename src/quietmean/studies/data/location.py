"""Where a site's data are, and how they are written: ``FILE`` or ``FILE#NAME=VALUE,NAME=VALUE``, and ``NAME.format.toml`` beside.

What stands behind the # is about this site's file, so it belongs to the data and not to the study: ``visits.csv#decimal=comma``,
``visits.xlsx#sheet=2024``, ``clinic.sqlite#table=visits``, ``clinic.duckdb#query=visits.sql``. What is set each time
stands in ``visits.format.toml`` in the same folder; settings behind the # come first. How a file is read is fixed before any
of its rows is looked at: by these, else by its kind and its header.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quietmean.core.codec import decode_toml
from quietmean.core.errors import InputError
from quietmean.core.schema import nearest

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
# The most bytes of a query, or of the settings of a file.
_LONGEST_TEXT = 2**20
# The settings of a file, and the values of those that have a choice.
_CHOICES: dict[str, tuple[str, ...]] = {
    "decimal": ("comma", "point"),
    "thousands": ("comma", "point", "none"),
    "delimiter": tuple(DELIMITERS),
    "dates": ("day-first", "month-first"),
    "encoding": (),
    "multiline": ("true", "false"),
    "rownames": ("true", "false"),
    "skip": (),
    "sheet": (),
    "table": (),
    "query": (),
}


@dataclass(frozen=True)
class Location:
    """A file and the settings of how it is read. Raises :class:`InputError` for impossible ones."""

    path: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Path | str) -> Location:
        """From ``FILE#NAME=VALUE,...``; a file whose own name has a # is taken as it is."""
        text = str(source)
        if "#" not in text or Path(text).exists():
            return cls(Path(text), _in_format_file(Path(text)))
        parts = text.split("#")
        heads = ["#".join(parts[:count]) for count in range(1, len(parts))]
        head = next((candidate for candidate in heads if Path(candidate).exists()), heads[0])
        return cls(Path(head), _in_format_file(Path(head)) | _settings_of(text[len(head) + 1 :], Path(head).name))

    def __post_init__(self) -> None:
        for name, value in self.settings.items():
            choices = _CHOICES.get(name)
            if choices is None:
                raise InputError(
                    f"#{name}= is nothing that can be said of {self.path.name}{nearest(name, _CHOICES)}: there are "
                    f"{', '.join(f'#{one}=' for one in _CHOICES)}"
                )
            if choices and value not in choices:
                raise InputError(
                    f"#{name}={value} of {self.path.name} is not known{nearest(value, choices)}: use {' or '.join(choices)}"
                )
        if self.settings.get("thousands", "none") == self.settings.get("decimal", ""):
            raise InputError(f"the same mark is said of {self.path.name} for decimals and for thousands: choose two")
        skip = self.settings.get("skip", "0")
        if not skip.isdecimal():
            raise InputError(
                f"#skip={skip} of {self.path.name} is no number: say how many lines are above the names of the columns"
            )

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.path.name

    @property
    def skip(self) -> int:
        return int(self.settings.get("skip", "0"))

    def only(self, kind: str, allowed: Collection[str]) -> None:
        """Raises :class:`InputError` for a setting that has no meaning for this ``kind`` of source."""
        for name in self.settings:
            if name not in {*allowed, "decimal", "thousands", "dates"}:
                raise InputError(f"#{name}= has no meaning for {self.name}, which is {kind}: leave it out")


def is_plain(path: Path) -> bool:
    """Is it a file, and no pipe, socket or device, of which nobody knows when it ends? Raises :class:`OSError` for none."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    # The system refuses such a name, as with a null byte.
    except ValueError:
        raise FileNotFoundError from None


def short_bytes(path: Path) -> bytes:
    """The content of a short file that a person wrote. Raises :class:`OSError` for a longer one, and for no plain file."""
    if not is_plain(path):
        raise OSError
    with path.open("rb") as file:
        raw = file.read(_LONGEST_TEXT + 1)
    if len(raw) > _LONGEST_TEXT:
        raise OSError
    return raw


def format_file(path: Path) -> Path:
    """The file of settings of a data file: ``visits.format.toml`` beside ``visits.csv`` or ``visits.csv.gz``."""
    return path.with_name(f"{_stem(path)}.format.toml")


def account_name(source: Path | str) -> str:
    """The name of the file without its endings: what an account for these data is called."""
    return _stem(Location.of(source).path)


def _stem(path: Path) -> str:
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def _in_format_file(path: Path) -> dict[str, str]:
    """What the file beside says, nothing where there is none. Raises :class:`InputError` where it cannot be read."""
    if not path.name:
        return {}
    beside = format_file(path)
    unreadable = InputError(
        f'{beside.name} cannot be read: write lines such as decimal = "comma", as quietmean data proposes them'
    )
    try:
        raw = decode_toml(short_bytes(beside), lambda reason: unreadable)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError:
        raise unreadable from None
    wrong = [name for name, value in raw.items() if not isinstance(value, str | int)]
    if wrong:
        raise InputError(f"{wrong[0]} of {beside.name} is no text, number or truth value: write for example {wrong[0]} = 'comma'")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in raw.items()}


def _settings_of(text: str, name: str) -> dict[str, str]:
    settings = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not (equals and key.strip() and value.strip()):
            raise InputError(
                f"#{text} behind {name} cannot be read: write #NAME=VALUE, such as #decimal=comma, with commas between"
            )
        settings[key.strip()] = value.strip()
    return settings
