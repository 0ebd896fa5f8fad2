"""What a site rules, pays and keeps of its client's part in a Flower app: the same as of a study between machines."""

from __future__ import annotations

import doctest
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.flower import FlowerAgreement, Home, Relay, StarParty, leave
from quietmean.flower.agreement import FlowerContract
from quietmean.flower.sealing import AskHello, BeginRequest, ClientAnswer, read_answer, write
from quietmean.flower.site import AGREEMENT, IDENTITY, SITE
from quietmean.ledger import Account, Ledger
from quietmean.node import Identity
from quietmean.sessions.receipt import certified
from quietmean.studies.party import ChargedStudy
from quietmean.studies.party.audit import AuditLog, Event, verify
from support.flower_star import FIRST_NODE, Star, make_homes
from support.pages import DOCS
from support.site_policy import write_policy

PARTIES, DIMENSION, ROUNDS = 5, 3, 2
HELLO = write(AskHello())
NOT_IN = "the site of this client does not take part. See its own log, which says why."


@dataclass
class Site:
    """The clients of four sites, of which the first has a policy, a ledger and an audit log of its own."""

    root: Path
    agreement: FlowerAgreement

    @property
    def home(self) -> Path:
        return self.root / "0"

    def says(self, **options: object) -> None:
        """The first site's file."""
        stated = {
            "account": "wards",
            "policy": "policy.toml",
            "accept": FlowerContract.of(self.agreement, 0).accept_digest,
            **options,
        }
        given = {name: value for name, value in stated.items() if value is not None}
        (self.home / SITE).write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))

    def rules(self, epsilon: float = 10.0, **rules: Any) -> Path:
        """The first site's policy; the budget of its account."""
        budget = {"epsilon": epsilon, "delta": 1e-4, "ledger": str(self.root / "ledger")}
        audit = {"log": str(self.root / "audit.jsonl")}
        return write_policy(self.home / "policy.toml", budget=budget, audit=audit, **{"largest_epsilon": 10.0, **rules})

    def ask(self, raw: bytes = HELLO) -> ClientAnswer:
        """As Flower does: the client is made anew for each message."""
        return read_answer(StarParty(Home(self.home)).answer(raw, lambda: np.full(DIMENSION, 0.1)))

    def relay(self) -> Relay:
        return Star(self.root, np.full((PARTIES, DIMENSION), 0.1)).relay(self.agreement)

    def account(self) -> Account:
        with Ledger.open(self.root / "ledger") as book:
            return book.account("wards")

    @property
    def log(self) -> AuditLog:
        return AuditLog(self.root / "audit.jsonl")

    def events(self) -> list[Event]:
        return [entry.event for entry in verify(self.log, {}).entries]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path, make_homes(tmp_path, PARTIES, ROUNDS, DIMENSION, dropouts=0.2))
    made.says()
    made.rules()
    return made


def test_all_rounds_are_charged_before_anything_leaves_and_a_receipt_says_what_they_cost(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    terms = site.agreement.terms
    assert site.ask().hello
    (reserved,) = site.account().entries
    assert (reserved.name, reserved.charged) == ("flower", terms.charge(ROUNDS))
    relay = site.relay()
    for number in range(1, ROUNDS + 1):
        relay.mean(number)
        assert len(site.account().entries) == 1
    entries = verify(site.log, {}).entries
    assert [entry.event for entry in entries] == [Event.YES, Event.CHARGED, Event.STARTED, Event.STARTED, Event.ENDED]
    assert not verify(site.log, {}).faults
    assert {(entry.study, entry.contract, entry.party) for entry in entries} == {("flower", site.agreement.digest, "client 0")}
    receipt = json.loads((site.home / "receipt.json").read_bytes())
    assert certified(receipt)["epsilon"] == terms.spent_epsilon(ROUNDS)
    assert receipt["rounds"]["counted"] == {f"client {party}": ROUNDS for party in range(PARTIES)}
    assert receipt["origin"]["approval"]["contract"] == site.agreement.digest
    capsys.readouterr()
    main(["verify", "receipt", str(site.home / "receipt.json")])
    assert "2 rounds" in capsys.readouterr().out
    # Of the others, who charge nothing, the receipt is there all the same.
    assert certified(json.loads((site.root / "1" / "receipt.json").read_bytes()))["rounds"]["begun"] == ROUNDS


def test_the_page_writes_a_site_file_that_says_yes(capsys: pytest.CaptureFixture[str]) -> None:
    page = doctest.DocTestParser().get_doctest((DOCS / "models" / "flower.md").read_text("utf-8"), {}, "flower.md", None, None)
    assert not doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(page, clear_globs=False).failed
    client = StarParty(Home(page.globs["homes"][0]))
    assert read_answer(client.answer(HELLO, lambda: np.zeros(100))).hello, capsys.readouterr().err


REFUSED: dict[str, tuple[Callable[[Site], object], str]] = {
    "policy": (
        lambda site: site.rules(largest_epsilon=1.0),
        "largest_epsilon: the study asks for epsilon 4, at most 1 is allowed",
    ),
    "budget": (lambda site: site.rules(epsilon=1.0), "account 'wards' has epsilon 1.0000 left of 1"),
    "no yes": (lambda site: site.says(accept=None), "nobody said yes"),
    "another yes": (lambda site: site.says(accept="0" * 64), "is not the digest of this study"),
    "no account": (lambda site: site.says(account=None), "which data set they are of"),
    "a wrong name": (lambda site: site.says(acount="wards"), "account"),
    "a receipt in the way": (lambda site: site.says(receipt=IDENTITY), "receipt"),
    "an approver": (lambda site: site.rules(approvers=[Identity.generate().public_key]), "Give --approval FILE"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("change", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_client_that_may_not_take_part_says_so_and_nothing_else(
    site: Site, capsys: pytest.CaptureFixture[str], change: Callable[[Site], object], sentence: str
) -> None:
    change(site)
    begin = write(BeginRequest(1, ()))
    for _ in range(3):
        # To the server nothing of files and rules.
        assert site.ask() == site.ask(begin) == ClientAnswer(refused=NOT_IN)
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said
    assert not (site.home / "account.json").exists()
    # However often a server asks: no entry is written twice.
    events = site.events() if site.log.path.exists() else []
    assert len(events) == len(set(events))
    assert not {Event.STARTED, Event.CHARGED} & set(events)
    # The others' mean says who is not in, and goes on once the site allows it.
    relay = site.relay()
    assert NOT_IN in relay.reasons
    site.says(account=None, new_account="others")
    site.rules()
    relay.meet([FIRST_NODE])
    assert relay.mean(1).weight == PARTIES


def test_a_site_that_changes_its_mind_is_in_no_other_round(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    relay = site.relay()
    relay.mean(1)
    site.rules(largest_epsilon=1.0)
    later = relay.mean(2)
    assert later.missing == (0,)
    assert set(later.refusals) == {NOT_IN}
    assert site.events()[-1] == Event.REFUSED
    # What was reserved for the other round is given back once its person says so.
    assert site.account().entries[0].charged == site.agreement.terms.charge(ROUNDS)
    account = leave(site.home)
    assert account is not None
    assert account.entries[0].charged == site.agreement.terms.charge(1)
    assert certified(json.loads((site.home / "receipt.json").read_bytes()))["rounds"]["begun"] == 1


def test_who_left_is_in_no_other_round_and_gets_back_what_was_not_begun(site: Site) -> None:
    with pytest.raises(InputError, match="taken part in nothing"):
        leave(site.home)
    relay = site.relay()
    relay.mean(1)
    for _ in range(2):
        account = leave(site.home)
        assert account is not None
        assert account.entries[0].charged == site.agreement.terms.charge(1)
    site.rules()
    assert relay.mean(2).missing == (0,)
    receipt = json.loads((site.home / "receipt.json").read_bytes())
    assert (receipt["rounds"]["begun"], receipt["rounds"]["with_mean"]) == (1, 1)


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("moment", ["after the charge", "before the round", "before the ledger", "after the ledger"])
def test_a_client_that_was_killed_pays_once_and_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Moments around each change of ledger and log: what is on disk then is gone on with by the next process."""

    def dies(*given: object, **named: object) -> None:
        raise Killed

    def settles(self: ChargedStudy, *given: object) -> None:
        settle(self, *given)  # type: ignore[arg-type]
        raise Killed

    settle = ChargedStudy.settle
    where: dict[str, tuple[type, str, Callable[..., None]]] = {
        "after the charge": (StarParty, "_write", dies),
        "before the round": (StarParty, "_keep", dies),
        "before the ledger": (ChargedStudy, "settle", dies),
        "after the ledger": (ChargedStudy, "settle", settles),
    }

    def dying(act: Callable[[Any], object], given: object) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(*where[moment])
            with pytest.raises(Killed):
                act(given)

    if moment == "after the charge":
        StarParty(Home(site.home))
        dying(site.ask, HELLO)
        assert len(site.account().entries) == 1
    relay = site.relay()
    begin = write(BeginRequest(1, ()))
    if moment == "before the round":
        dying(site.ask, begin)
    relay.mean(1)
    if "ledger" in moment:
        dying(relay.mean, 2)
    else:
        relay.mean(2)
    again = leave(site.home)
    assert again is not None
    # A round that was paid for and lost before its first step counts as begun.
    begun = ROUNDS + (moment == "before the round")
    assert [entry.charged for entry in again.entries] == [site.agreement.terms.charge(min(begun, ROUNDS))]
    assert site.events().count(Event.CHARGED) >= 1


def test_an_owner_who_is_somebody_else_approves_an_agreement(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site.root)
    owner = Identity.generate()
    owner.save(Path("owner.key"))
    policy = site.rules(approvers=[owner.public_key])
    until = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    line = ["site", "approve", str(site.home / AGREEMENT), "--party", "client 0", "--account", "wards", "--until", until]
    main(
        [
            *line,
            "--policy",
            str(policy),
            "--accept",
            FlowerContract.of(site.agreement, 0).accept_digest,
            "--out",
            "0/study.approval",
        ]
    )
    site.says(accept=None, approval=["study.approval"])
    assert site.ask().hello
    # Another client's folder has another noise: the approval was for one.
    assert site.events()[:2] == [Event.YES, Event.USED]


def test_the_contract_of_a_client_is_shown_by_the_command_of_all_studies(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    line = [
        "site",
        "contract",
        str(site.home / AGREEMENT),
        "--key",
        str(site.home / IDENTITY),
        "--policy",
        str(site.home / "policy.toml"),
    ]
    main([*line, "--details"])
    shown = capsys.readouterr().out
    assert site.agreement.digest in "".join(shown.split())
    assert "at most 2 means of vectors of 3 coordinates" in shown
    assert "goes through" in shown
    assert "Allowed by" in shown
    main([*line, "--json"])
    assert json.loads(capsys.readouterr().out)["through"] == "flower"
    site.rules(largest_epsilon=1.0)
    with pytest.raises(SystemExit) as refused:
        main(line)
    assert refused.value.code == InputError.exit_code


def test_a_round_without_clients_says_what_they_said(site: Site) -> None:
    for party in range(PARTIES):
        (site.root / str(party) / SITE).write_text("")
    with pytest.raises(ProtocolFailure, match=NOT_IN):
        site.relay().mean(1)
