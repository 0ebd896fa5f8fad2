"""The keys of a committee: identity keys that sign, mailbox keys to which parts are sealed; and sessions in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Message, NoiseSource, Step, Vector
from quietmean.core.statement import StatedValue
from quietmean.node.mailbox import Mailbox, mailbox_bytes, open_with, seal_to
from quietmean.node.net import Identity, Purpose, is_signed
from quietmean.protocols.committee.contribution import make_contribution
from quietmean.protocols.committee.design import encode
from quietmean.protocols.committee.keys import Kind, raw_key
from quietmean.protocols.committee.lists import HeldInMemory
from quietmean.protocols.committee.member import CommitteeMachine, warnings
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.committee.result import CheckedResult, check_result, read_result
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.committee.voting import CommitteeState
from quietmean.randomness import SecureNoise, Seed


@dataclass(frozen=True)
class IdentitySigner:
    """Signs with an identity key."""

    identity: Identity

    @property
    def public_key(self) -> str:
        return self.identity.public_key

    def sign(self, kind: Kind, content: bytes) -> bytes:
        """The signature, 64 bytes, over the label of the kind and ``content``."""
        return self.identity.sign(Purpose(kind.value), content)


class PublicKeys:
    """Checks what identity keys signed."""

    def is_signed(self, public_key: str, kind: Kind, content: bytes, signature: bytes) -> bool:
        """Whether the owner of a key signed this; never for an impossible key."""
        try:
            return is_signed(public_key, Purpose(kind.value), content, signature)
        except InputError:
            return False


class MailboxSealer:
    """Seals to public mailbox keys."""

    def seal(self, mailbox: bytes, info: bytes, content: bytes) -> bytes:
        return seal_to(mailbox, info, content)


@dataclass(frozen=True)
class MailboxOpener:
    """Opens what was sealed to one mailbox."""

    mailbox: Mailbox = field(repr=False)

    def open(self, info: bytes, ciphertext: bytes) -> bytes:
        """Open what was sealed for this mailbox. Raises ValueError for anything else."""
        return open_with(self.mailbox, info, ciphertext)


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A study with a committee that was rehearsed on this machine.

    ``checked``: the result, as anybody checks it; ``result``: its file. ``counted``: the numbers of the contributors in it;
    ``left_out``: (contributor's number, why).

    ``contribution_bytes``: of the largest file; ``member_bytes``: what the busiest member sent; ``messages`` and ``bytes_sent``:
    of all, contributions and what members said to each other. ``seconds`` of this process, in all: contributing, taking what was
    contributed, and the members' session.
    """

    checked: CheckedResult
    result: bytes = field(repr=False)
    counted: tuple[int, ...]
    left_out: tuple[tuple[int, str], ...]
    contribution_bytes: int
    member_bytes: int
    messages: int
    bytes_sent: int
    seconds: tuple[float, float, float]


@dataclass
class Sent:
    """What one member sent to the others."""

    messages: int = 0
    bytes: int = 0


def rehearse(
    parameters: CommitteeParameters,
    values: Vector,
    weights: Sequence[float],
    absent_members: frozenset[int] = frozenset(),
    noise: Callable[[Seed], NoiseSource] = SecureNoise,
    statement: StatedValue | None = None,
) -> Rehearsal:
    """A session with the ``values``, shape (contributions, d), of so many of the contributors that are admitted.

    ``weights``: their public weights; ``absent_members``: numbers of members that never come; ``noise``: makes that of a member
    from a secret that is new; ``statement``: what is verified of a value of weight 1, by default the plan's ranges. All keys are
    made for it and forgotten. Raises :class:`InputError` for a weight or a value that does not fit the parameters,
    :class:`ProtocolFailure` where it ends without a result.
    """
    members = [Identity.generate() for _ in range(parameters.members)]
    mailboxes = [(MLKEM768PrivateKey.generate(), X25519PrivateKey.generate()) for _ in members]
    contributors = [Identity.generate() for _ in range(parameters.contributors)]
    session = CommitteeSession(
        Seed.from_os().secret,
        parameters,
        tuple(member.public_key for member in members),
        tuple(map(mailbox_bytes, mailboxes)),
        {contributor.public_key: parameters.largest_weight for contributor in contributors},
        PublicKeys(),
        statement,
    )
    sealer, began = MailboxSealer(), time.perf_counter()
    files = []
    for value, weight, identity in zip(values, weights, contributors, strict=False):
        seed, layout = Seed.from_os(), session.layout_of(False, weight, raw_key(identity.public_key))
        dealt = encode(parameters, value, weight, seed, layout)
        files.append(make_contribution(session, IdentitySigner(identity), sealer, dealt, weight, seed.derive("shares")))
    contributed = time.perf_counter()
    machines = {}
    for number in sorted(set(range(parameters.members)) - absent_members):
        held = HeldInMemory(session, number, MailboxOpener(mailboxes[number]))
        for raw in files:
            held.take(raw)
        machines[number] = CommitteeMachine(
            session,
            number,
            IdentitySigner(members[number]),
            sealer,
            MailboxOpener(mailboxes[number]),
            held,
            noise(Seed.from_os()),
        )
    seconds = time.perf_counter()
    states, sent = run_members(machines)
    done = next((state for state in states.values() if state.has_result), None)
    if done is None:
        reasons = {reason for state in states.values() for reason in warnings(parameters, state)}
        raise ProtocolFailure(f"no member has a result: {'; '.join(sorted(reasons))}")
    numbers = {identity.public_key: number for number, identity in enumerate(contributors)}
    checked, sent_by_members = check_result(session, read_result(session, done.result.content)), sent.values()
    return Rehearsal(
        checked=checked,
        result=done.result.content,
        counted=tuple(sorted(numbers[key] for _, key, _ in checked.counted)),
        left_out=tuple((numbers[key], why) for key, why in done.left_out),
        contribution_bytes=max(map(len, files), default=0),
        member_bytes=max(sent.bytes for sent in sent_by_members),
        messages=len(files) + sum(sent.messages for sent in sent_by_members),
        bytes_sent=sum(map(len, files)) + sum(sent.bytes for sent in sent_by_members),
        seconds=(contributed - began, seconds - contributed, time.perf_counter() - seconds),
    )


def run_members(machines: dict[int, CommitteeMachine]) -> tuple[dict[int, CommitteeState], dict[int, Sent]]:
    """Members by number, in lockstep, with all messages between them; their last states, and what each sent."""
    steps: dict[int, Step[CommitteeState]] = {number: machine.start() for number, machine in machines.items()}
    sent = {number: Sent() for number in machines}
    for _ in range(max(machine.rounds for machine in machines.values())):
        inboxes: dict[int, list[Message]] = {number: [] for number in machines}
        delivered: dict[int, set[int]] = {number: set() for number in machines}
        for number, step in steps.items():
            for message in step.send:
                for recipient in sorted(set(message.recipients) & set(machines)):
                    inboxes[recipient].append(message)
                    delivered[number].add(recipient)
                    sent[number].messages += 1
                    sent[number].bytes += len(message.content)
        steps = {
            number: machine.end_round(steps[number].state, inboxes[number], frozenset(delivered[number]))
            for number, machine in machines.items()
        }
        if all(step.state.has_result and not step.state.undelivered for step in steps.values()):
            break
    return {number: step.state for number, step in steps.items()}, sent
