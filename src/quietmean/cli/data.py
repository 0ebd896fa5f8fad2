"""``quietmean data``: what a study finds in a file, for the eyes of the owner of the data."""

from __future__ import annotations

from pathlib import Path

from quietmean.cli.console import out, output, print_json, printable
from quietmean.cli.preview_view import proposal, show
from quietmean.core.errors import InputError


def data_command(
    data: str | Path,
    study: Path,
    *,
    write_format: bool = False,
    json: bool = False,
) -> None:
    """Look at a data file as a study reads it: for its owner only, for what is printed has cells of the file in it.

    Nothing is sent, charged or kept. For each column of the study: how many records, missing cells, values outside the bounds,
    and what is not understood, with the commonest spellings. Where another way to read the file would understand more, it is
    proposed; nothing but this command's --write-format, or a person, takes it up.

    Parameters
    ----------
    data
        This party's records, as for join.
    study
        The sealed study, or a study file.
    write_format
        Write what is proposed to NAME.format.toml beside the data, from where every command reads it.
    json
        One JSON document on standard output.
    """
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.agreement.signed import is_signed_document
    from quietmean.studies.agreement.study import StudyTerms
    from quietmean.studies.data import Location, Preview

    terms = Sealed.load(study).study if is_signed_document(study) else StudyTerms.load(study)
    preview = Preview.of(data, terms.workload.columns)
    location = Location.of(data)
    target = location.format_file
    written = None
    if write_format and preview.proposed:
        if target is None:
            raise InputError(
                f"nothing is beside {location.name}: write what is proposed to a file, and name it behind the address: #format="
            )
        settings = {**location.settings, **preview.proposed}
        lines = "".join(f'{name} = "{value}"\n' for name, value in settings.items() if name != "format")
        output_file = output(target, "the format of the data", "--write-format")
        output_file.write(lines.encode())
        written = target
    if json:
        print_json({**preview.to_json(), "written": None if written is None else str(written)})
        return
    show(preview)
    if written is not None:
        out.print(f"written to {printable(str(written))}: every command reads the file so from now on")
    elif preview.proposed:
        where = "in a file that #format= names" if target is None else f"by --write-format, or in {target.name}"
        out.print(f"{proposal(preview)}: if that is how the data were written, say so {where}")
