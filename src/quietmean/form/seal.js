// The sealed study of a page: whether its coordinator signed it, and whether everything else on the page belongs to it.
import { fromBase64, fromHex, joined, sha256, toHex, utf8 } from "./bytes.js";
import { isSigned } from "./signatures.js";

const CHANGED = "This page was changed, or is not whole. Open it again from the address that you were given.";
const keyOf = (line) => fromBase64(line.slice(line.indexOf(":") + 1));
const digestOf = async (...parts) => toHex(await sha256(joined(...parts)));

// What a contribution needs of the study, once it is certain that the coordinator signed that: see contribution.js. `survey` has
// the text of the sealed study's file, that of the fields whose SHA-256 is its session, and that of the encoding program.
export async function checkedStudy(survey) {
  const file = JSON.parse(survey.sealed);
  const body = JSON.parse(file.body);
  const invited = JSON.parse(body.invitation.body);
  const fields = JSON.parse(survey.fields);
  const signed = await isSigned(invited.convener, "seal", utf8(file.body), fromBase64(file.signature));
  const inviting = await isSigned(
    invited.convener, "invitation", utf8(body.invitation.body), fromBase64(body.invitation.signature),
  );
  const invitation = await digestOf(utf8("quietmean invitation 1\0"), utf8(body.invitation.body));
  const same = fields.instance === body.instance && fields.program === body.program && fields.invitation === invitation;
  const program = await digestOf(utf8(survey.program));
  if (!signed || !inviting || !same || program !== body.program) throw new Error(CHANGED);
  const parties = body.entries.map((entry) => JSON.parse(entry.body));
  const stated = fields.parties.map(({ identity, mailbox }) => `${identity} ${mailbox}`);
  if (String(stated) !== String(parties.map(({ identity, mailbox }) => `${identity} ${mailbox}`))) throw new Error(CHANGED);
  const members = parties.filter((party) => party.member);
  const terms = invited.study.study.committee;
  return {
    session: fromHex(await digestOf(utf8(survey.fields))),
    members: members.map((member) => keyOf(member.identity)),
    mailboxes: members.map((member) => fromBase64(member.mailbox)),
    names: members.map((member) => member.name),
    colluding: terms.colluding,
    verified: terms.verified,
    registrar: terms.registrar,
    invitation,
    end: new Date(terms.contribute_by),
    listsAt: Date.parse(terms.contribute_by) / 1000 + terms.grace,
    program: JSON.parse(survey.program),
  };
}
