"""A site's policy file, the contract that it is held against, and who pays: files that are refused, digests, budgets, a yes."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.core.assumptions import QueryStatement
from quietmean.core.folders import configuration_folder, data_folder
from quietmean.ledger import Ledger
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import RelayAddress
from quietmean.studies import StudyTerms
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.party import Agreement, Consent, ConsentInAdvance, Contract, Policy
from quietmean.studies.party.accounts import AccountQuestion
from quietmean.studies.party.agreement import Signatory
from quietmean.studies.party.first_screen import FirstScreen
from quietmean.studies.party.policy import PolicyRules
from quietmean.studies.party.session_contract import SessionContract
from support.command_lines import fails
from support.kinds import SESSION, STUDY, Kind
from support.pages import blocks
from support.refusals import raised, refused, refused_rows
from support.site_policy import write_policy

WITH_RECORDS = STUDY.with_fields(epsilon=1.0, records=4000)
PARTIES = tuple(Signatory(name, Identity.generate().public_key, ("192.0.2.7", 7001 + n)) for n, name in enumerate("abc"))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())


def contract(
    kind: Kind, changed: dict[str, Any] | None = None, parties: tuple[Signatory, ...] = PARTIES, party: int = 0
) -> Contract | SessionContract:
    """Of a study or a session that asks for epsilon 1, but for what is ``changed``."""
    tables = kind.with_fields(**{"epsilon": 1.0, **(changed or {})}).tables
    if kind.name == "session":
        return SessionContract(SessionStudy.from_tables(tables, "the session"), parties, party)
    study = StudyTerms.from_tables(tables, "the study")
    return Contract(study, parties, party, choice=study.choice(len(parties)))


class Person:
    """At a terminal, with an answer."""

    def __init__(self, says: bool | None) -> None:
        self.says = says
        self.shown: list[FirstScreen] = []

    def can_ask(self) -> bool:
        return self.says is not None

    def show(self, screen: FirstScreen) -> None:
        self.shown.append(screen)

    def compared(self, others: Sequence[str]) -> list[str]:
        raise AssertionError("nothing is sealed here")

    def yes(self, contract: Agreement, screen: FirstScreen) -> bool:
        return bool(self.says)

    def account(self, question: AccountQuestion) -> str:
        raise AssertionError("nothing is charged here")


def agreed(
    asked: Agreement, policy: Policy | None = None, answer: ConsentInAdvance | None = None, says: bool | None = None, **more: Any
) -> Any:
    return Consent(policy or Policy(), answer or ConsentInAdvance(), Person(says), lambda sentence: None, **more).to(asked)


@refused_rows("a_file_with_a_mistake_is_no_policy")
def test_a_file_with_a_mistake_is_no_policy(text: str, said: str) -> None:
    """Not one with fewer rules than its owner believes."""
    path = write_policy()
    path.write_text(text)
    refused(re.escape(said), Policy.load)


def test_who_else_may_write_it() -> None:
    path = write_policy()
    Policy.load()
    path.chmod(0o620)
    refused("chmod go-w", Policy.load)


def test_a_policy_that_was_named_must_be_there() -> None:
    assert Policy.load().path is None
    refused("does not exist", Policy.load, Path("policy.toml"))
    write_policy(Path("policy.toml"), largest_epsilon=0.5)
    assert Policy.load(Path("policy.toml")).rules.largest_epsilon == 0.5


def test_its_digest_is_of_all_that_it_says() -> None:
    variants = [
        {},
        {"largest_epsilon": 1.0},
        {"never": ["age"]},
        {"budget": {"epsilon": 3.0}},
        {"audit": {"log": "a"}},
        {"columns": STUDY.tables["column"]},
    ]
    assert len({Policy.load(write_policy(**one)).digest for one in variants}) == len(variants)  # type: ignore[arg-type]


def test_without_a_file_limits_hold(kind: Kind) -> None:
    assert Policy().broken(contract(kind)) == []
    (broken,) = Policy().broken(contract(kind, {"epsilon": 11.0}))
    assert broken.startswith("largest_epsilon: the study asks for epsilon 11, at most 10")
    assert [one.split(":")[0] for one in Policy().broken(contract(kind, {"colluding": 0, "delta": 1e-3}))] == [
        "largest_delta",
        "least_colluding",
    ]


def test_a_contract_is_the_same_at_all_parties_and_another_for_anything_else(kind: Kind) -> None:
    """What a yes names: study, names, keys, order and plan; not where parties are."""
    asked = contract(kind)
    assert asked.digest == contract(kind, party=2).digest
    moved = (*PARTIES[:2], Signatory("c", PARTIES[2].key, ("192.0.2.9", 1)))
    assert asked.digest == contract(kind, parties=moved).digest
    others = [
        contract(kind, {"epsilon": 1.01}),
        contract(kind, {"name": "age"}),
        contract(kind.wider),
        contract(kind, parties=(PARTIES[1], PARTIES[0], PARTIES[2])),
        contract(kind, parties=(*PARTIES[:2], Signatory("d", PARTIES[2].key))),
        contract(kind, parties=(*PARTIES[:2], Signatory("c", Identity.generate().public_key))),
    ]
    assert len({asked.digest, *(other.digest for other in others)}) == 1 + len(others)


def test_what_it_says(kind: Kind) -> None:
    asked = contract(kind)
    document = asked.to_json()
    assert document["epsilon_a_priori"] <= 1.0
    # Its own noise alone protects whoever stands against all others.
    assert document["epsilon_if_all_others_collude"] == pytest.approx(1.0, rel=1e-3)
    lines = dict(asked.lines())
    assert "any 1 of the 3 parties" in lines["against"]
    assert lines["protects"].startswith("one record of one party" if kind is STUDY else "one party over all rounds together")
    assert "b at 192.0.2.7:7002; c at 192.0.2.7:7003" in lines["connects to"]
    assert asked.digest in lines["digest"]
    assert "through a relay" not in lines


def test_it_says_what_a_relay_learns(kind: Kind) -> None:
    relay = RelayAddress("relay.example", 443)
    asked = contract(kind, parties=tuple(Signatory(party.name, party.key, relay) for party in PARTIES))
    assert asked.to_json()["relays"] == ["relay.example:443"]
    assert dict(asked.lines())["through a relay"].startswith("relay.example:443 learns who takes part")
    assert asked.digest == contract(kind).digest
    # A site's rules hold for whom it dials: the relay.
    allowed = Policy.load(write_policy(hosts=["relay.example"], ports=[443]))
    allowed.refuse(asked)
    refused(r"allowed are: other\.example", Policy.load(write_policy(hosts=["other.example"])).refuse, asked)


def test_whose_yes_counts(kind: Kind) -> None:
    asked, own = contract(kind), Policy.load(write_policy(largest_epsilon=2.0))
    # One that is not sealed, beside a roster of one's own, where nobody watches and nobody wrote a policy.
    assert agreed(asked)["approval"]["contract"] == asked.digest
    refused("nobody said yes", agreed, asked, own)
    refused("you did not say yes", agreed, asked, own, says=False)
    assert agreed(asked, own, says=True)["approval"] == {"contract": asked.digest, "policy": own.digest}
    refused("unattended = true", agreed, asked, own, ConsentInAdvance(yes=True))
    agreed(asked, Policy.load(write_policy(unattended=True)), ConsentInAdvance(yes=True))
    agreed(asked, own, ConsentInAdvance(accept=asked.accept_digest[:32]))
    agreed(asked, own, begun=True)
    others = contract(kind, {"epsilon": 1.01}), contract(kind, party=1)
    for accept in (asked.accept_digest[:31], asked.digest, *(other.accept_digest for other in others), ""):
        refused("is not the digest of this", agreed, asked, own, ConsentInAdvance(accept=accept), says=True)
    # No yes lifts a rule.
    beyond = contract(kind, {"epsilon": 2.5})
    refused("largest_epsilon", agreed, beyond, own, ConsentInAdvance(accept=beyond.accept_digest), says=True, begun=True)


def site(**changed: Any) -> list[str]:
    """A study of three parties in files, of which this is one; the options of join and check."""
    WITH_RECORDS.with_fields(**{"records": 40, "epsilon": 5.0, **changed}).write()
    if not Path("a.key").exists():
        Identity.generate().save(Path("a.key"))
    identity = Identity.load(Path("a.key"))
    keys = [identity.public_key, *(one.key for one in PARTIES[1:])]
    entries = [RosterEntry(one.name, one.address or ("", 0), key) for one, key in zip(PARTIES, keys, strict=True)]
    Path("roster.toml").write_text(Roster(tuple(entries)).to_toml())
    return ["study.toml", "--roster", "roster.toml", "--key", "a.key"]


@pytest.mark.parametrize("kind", [STUDY, SESSION], ids=str)
def test_what_promises_more_than_its_target_needs_a_yes_to_that(kind: Kind) -> None:
    asked = {"protocol": "consensus", "dropouts": 0.0}
    above = contract(kind, {**asked, "options": {"open_edges": "each"}})
    said = (
        "guaranteed .*, more than the target .*. Choose another protocol, or options of it .*= all.* a_priori_above_target=True"
    )
    refused(said, agreed, above)
    refused(said, agreed, above, answer=ConsentInAdvance(accept=above.accept_digest), says=True)
    # A person types it.
    agreed(above, says=True)
    assert FirstScreen.of(above).answer == "yes without promise"
    agreed(above, answer=ConsentInAdvance(accept=above.accept_digest, a_priori_above_target=True))
    agreed(above, answer=ConsentInAdvance(a_priori_above_target=True))
    # Who has begun continues.
    agreed(above, begun=True)
    agreed(contract(kind, asked))


def test_the_contract_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    asked = site()
    main(["site", "contract", *asked, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["policy"]["broken"] == []
    main(["site", "contract", *asked])
    shown = capsys.readouterr().out
    assert document["accept"][:32] in shown
    assert all(one in shown for one in ("mean(age)", "epsilon 5.00", "Allowed by the limits of a site without a policy"))
    main(["site", "contract", *asked, "--details"])
    shown = capsys.readouterr().out
    assert document["digest"] in shown.replace("\n", "").replace(" ", "")
    assert all(one in shown for one in ("mean(age)", "epsilon 5", "local-dp", "Allowed by the limits of a site without a policy"))
    write_policy(largest_epsilon=2.0, smallest_parties=4)
    errors = fails(["site", "contract", *asked], capsys, warned=True)
    assert "largest_epsilon" in errors
    assert "smallest_parties" in errors
    # What was agreed to on one machine, and changed on another.
    write_policy()
    site(epsilon=5.5)
    fails(["join", *asked, "--data", "wards.csv", "--accept", document["digest"]], capsys, "is not the digest of this study")
    assert not list(Path().glob("*.store"))


def checked(asked: list[str], capsys: pytest.CaptureFixture[str], *more: str, data: str = "wards.csv") -> str:
    """What ``check`` finds about the ledger."""
    raised(SystemExit, "", main, ["check", *asked, "--data", data, "--wait", "0", "--json", *more])
    output = capsys.readouterr()
    if not output.out.startswith('{\n  "ready"'):
        return output.err
    findings = json.loads(output.out)["here"]
    return next((one["text"] for one in findings if one["name"] == "ledger"), "")


def join(asked: list[str], capsys: pytest.CaptureFixture[str], *more: str, data: str = "wards.csv") -> str:
    """Until its address, which no machine has, stops it."""
    raised(SystemExit, "", main, ["join", *asked, "--data", data, *more])
    return capsys.readouterr().err


@pytest.mark.slow
def test_studies_are_charged_unless_somebody_says_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    asked, ledger = site(), data_folder() / "ledger"
    assert "account 'wards' with a budget of epsilon 10 at delta 0.0001 for one record will be made" in checked(asked, capsys)
    assert not ledger.exists()
    assert checked(asked, capsys, "--no-ledger") == ""
    join(asked, capsys, "--no-ledger", "--store", "rehearsal.store")
    assert not ledger.exists()
    assert "account 'wards' with a budget of epsilon 10" in join(asked, capsys)
    with Ledger.open(ledger) as book:
        (account,) = book.accounts()
    assert account.entries[0].mu == StudyTerms.load(Path("study.toml")).plan(3).charge.mu
    # The same data under another name are the same data.
    Path("copy.csv").write_text(Path("wards.csv").read_text())
    for said in (checked(asked, capsys, data="copy.csv"), join(asked, capsys, data="copy.csv")):
        assert "--account wards" in said
    with Ledger.open(ledger) as book:
        assert [one.name for one in book.accounts()] == ["wards"]
    # Each of two more would be allowed alone.
    join(site(name="second", epsilon=10.0), capsys, "--store", "second.store")
    assert "'wards' has epsilon" in join(site(name="third", epsilon=10.0), capsys, "--store", "third.store")


def test_a_budget_of_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    asked = site()
    write_policy(unattended=True, budget={"epsilon": 3.0, "delta": 1e-5})
    assert "Leave --no-ledger out" in join(asked, capsys, "--no-ledger", "--yes")
    assert "is more than account 'wards' with a budget of epsilon 3 at delta 1e-05 for one record allows" in checked(
        asked, capsys
    )
    assert "asks for epsilon" in join(asked, capsys, "--yes")
    write_policy(unattended=True, budget={"epsilon": 8.0, "ledger": str(Path("own.ledger").resolve())})
    join(asked, capsys, "--yes", "--store", "third.store")
    with Ledger.open(Path("own.ledger")) as book:
        assert book.account("wards").budget.epsilon == 8.0
    assert configuration_folder().is_dir()


def test_the_page() -> None:
    """Its example is a policy, and its table names all rules with what holds without a policy."""
    path = write_policy()
    path.write_text("\n".join(blocks("answer/policy.md", "toml")))
    policy = Policy.load()
    assert policy.budget is not None
    assert policy.audit_log.path == policy.audit.log
    assert policy.columns
    fields = type(policy.rules).model_fields
    assert all(
        getattr(policy.rules, name) != field.default for name, field in fields.items() if name not in ("unattended", "approvals")
    )
    page = (Path(__file__).parents[2] / "docs/answer/policy.md").read_text()
    rows = [line.split("|")[1:3] for line in page.partition("| rule |")[2].splitlines() if line.startswith("| `")]
    said = dict(pair for names, defaults in rows for pair in _pairs(names, defaults))
    assert set(fields) == set(said) - {"[[column]]"}
    for name, field in fields.items():
        assert said[name] == _in_words(field.default), name


def _pairs(names: str, defaults: str) -> list[tuple[str, str]]:
    """Several rules in a row have one default, or one each."""
    rules, said = names.split(","), defaults.split(",")
    return [
        (rule.strip(" `"), one.strip()) for rule, one in zip(rules, said if len(said) > 1 else said * len(rules), strict=True)
    ]


def _in_words(default: Any) -> str:
    if default is None:
        return "all"
    if isinstance(default, bool | tuple):
        return str(default).lower() if isinstance(default, bool) else "none"
    return default if isinstance(default, str) else f"{default:.10g}"


def test_a_policy_forbids_queries_that_mix_rows_unless_it_allows_them() -> None:
    asked = contract(STUDY)
    assert isinstance(asked, Contract)
    mixed = replace(asked, query=QueryStatement(mixes_rows=True, codes=("ab",)))
    assert Policy().broken(asked) == []
    (broken,) = Policy().broken(mixed)
    assert broken.startswith("query_mixes_rows: the query over these data mixes rows")
    assert Policy(PolicyRules(query_mixes_rows=True)).broken(mixed) == []
    assert Policy(PolicyRules(query_mixes_rows=True)).digest != Policy().digest
    assert "the query mixes rows" in str(mixed)
    assert "digests: ab" in str(mixed)
    assert mixed.to_json()["query"] == {"mixes_rows": True, "codes": ["ab"]}
    assert [one["key"] for one in mixed.to_json()["assumptions"]][-2:] == ["query", "codes"]
