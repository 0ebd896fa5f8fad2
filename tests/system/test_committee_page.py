"""The page on committees: what it tells a registrar and who has a voucher to type, from the study to the contribution."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from quietmean.cli.main import main
from quietmean.node.net import Identity
from quietmean.protocols.committee.contribution import largest_file
from quietmean.studies.agreement.contribution import session_of
from quietmean.studies.agreement.sealed import Sealed
from support.committee_study import soon
from support.pages import commands

PAGE = "take-part/committee.md"


def typed(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a line of the page prints."""
    capsys.readouterr()
    main(shlex.split(line)[1:])
    return capsys.readouterr().out


@pytest.mark.slow
def test_a_survey_by_vouchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    lines = {" ".join(line.split()[1:3]): line for line in commands(PAGE) if "survey" in line and "drop" not in line}
    own_keys = next(line for line in commands(PAGE) if "--own-keys" in line)
    lines["study vouchers"] = next(
        line for line in commands(PAGE) if line.startswith("quietmean study vouchers") and line != own_keys
    )
    typed(next(line for line in commands(PAGE) if line.endswith("key new --key registrar.key")), capsys)
    registrar = Identity.load(Path("registrar.key")).public_key
    new = shlex.split(lines["study new"])
    new[new.index("--registrar") + 1] = registrar
    new[new.index("--contribute-by") + 1] = soon()
    # A hundred files are as good as five hundred.
    new[new.index("--vouchers") + 1] = "100"
    typed(shlex.join(new), capsys)
    for member in range(1, 6):
        Identity.generate().save(Path(f"m{member}.key"))
    typed(lines["study invite"], capsys)
    for member in range(1, 6):
        accept = (
            f"quietmean accept survey.invitation --key m{member}.key --name m{member} --member --address m{member}.example:7000"
        )
        typed(f"{accept} --out m{member}.entry", capsys)
    Identity.generate().save(Path("firm.key"))
    Path("keys.txt").write_text(f"{Identity.load(Path('firm.key')).public_key}\n")
    typed(own_keys, capsys)
    assert "99 vouchers of 100" in typed(lines["study vouchers"], capsys)
    told = typed(lines["study seal"], capsys)
    # All who are listed are members, so nobody else has a key of its own.
    assert "People    quietmean send survey.sealed --key NAME.voucher --data FILE" in told
    assert "Parties   quietmean" not in told
    shutil.copy("vouchers/017.voucher", "017.voucher")
    contract = json.loads(typed(f"{lines['site contract']} --json", capsys))
    assert registrar in contract["committee"]["admits"]
    Path("firm.csv").write_text("pay\n51000\n")
    typed(lines["send survey.sealed"].replace("DIGEST", contract["accept"]) + " --no-ledger", capsys)
    (own,) = Path("vouchers").glob("own-*")
    shutil.copy(own, "firm.voucher")
    of_firm = json.loads(typed(f"{lines['site contract'].replace('017.voucher', 'firm.key')} --json", capsys))
    # The digest may have these digits, too.
    by_key = lines["send survey.sealed"].replace("017.voucher", "firm.key").replace("017", "firm")
    typed(by_key.replace("DIGEST", of_firm["accept"]) + " --no-ledger", capsys)
    sealed = Sealed.load(Path("survey.sealed"))
    assert sealed.admitted == 105
    largest = largest_file(session_of(sealed, sealed.study.choice(sealed.admitted).plan))
    for name in ("017", "firm"):
        assert 0 < Path(f"box/{name}.contribution").stat().st_size <= largest
