// What became of a contribution: a drop's signed receipt, the result that members signed, and what members say they read of a drop.
// All of it may be a stranger's: each function throws for what was not signed for this study.
import { fromBase64, isSame, joined, sha256, toBase64, toHex, utf8 } from "./bytes.js";
import { messagePack, messageUnpack } from "./msgpack.js";
import { isSigned, keyLine } from "./signatures.js";

const DIGEST = /^[0-9a-f]{64}$/;
const CHANGED = "was changed on the way. Ask for it again.";
// Of each chosen contribution: header digest, key and weight.
const CHOSEN_BYTES = 32 + 32 + 8;
const CHOICE_LABEL = "quietmean committee choice 1";
const RESULT_LABEL = "quietmean committee result 1";
const CHAIN_LABEL = utf8("quietmean drop chain 1\0");

// As Python writes JSON with sorted keys, of texts, whole numbers, lists and objects.
function canonicalJson(value) {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const keys = Object.keys(value).sort();
    return `{${keys.map((key) => `${canonicalJson(key)}:${canonicalJson(value[key])}`).join(",")}}`;
  }
  if (typeof value !== "string" && !Number.isSafeInteger(value)) throw new TypeError("It has another kind of value.");
  const escaped = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(value).replace(/[\u007f-\uffff]/g, escaped);
}

// What a signed document says, whose body names its signer in the field `by`; `kinds`: a test of each of its fields.
async function documentOf(text, purpose, by, kinds) {
  const wrong = new Error(`The ${purpose.split(" ").at(-1)} ${CHANGED}`);
  try {
    const { format, body, signature, ...more } = JSON.parse(text);
    const said = JSON.parse(body);
    const raw = fromBase64(signature);
    const isWhole = format === `quietmean ${purpose} 1` && !Object.keys(more).length && toBase64(raw) === signature;
    const names = Object.keys(said).sort().join() === Object.keys(kinds).sort().join();
    const isFit = names && Object.entries(kinds).every(([name, is]) => is(said[name])) && canonicalJson(said) === body;
    if (!isWhole || !isFit || !(await isSigned(said[by], purpose, utf8(body), raw))) throw wrong;
    return said;
  } catch {
    throw wrong;
  }
}

const isText = (value) => typeof value === "string";
const isDigest = (value) => isText(value) && DIGEST.test(value);

function isPlace(value) {
  const { digest, position, head, ...more } = value;
  const whole = Number.isSafeInteger(position) && position >= 1;
  return isDigest(digest) && isDigest(head) && whole && !Object.keys(more).length;
}

// A receipt {contributor, drop, place: {digest, position, head}, time} of a drop for this study; `time` is a Date.
export async function receiptOf(study, text) {
  const isTime = (value) => /^\d{4}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d$/.test(value) && !Number.isNaN(Date.parse(value));
  const kinds = { contributor: isText, drop: isText, place: isPlace, session: isDigest, time: isTime };
  const { session, time, ...receipt } = await documentOf(text, "committee receipt", "drop", kinds);
  if (session !== toHex(study.session)) throw new Error("The receipt is of another study. Give the one of this study.");
  return { ...receipt, time: new Date(time) };
}

// Whether two receipts prove that a drop does not keep one log: it signed two things of one place.
export function isFork(one, other) {
  const [{ place, drop }, theirs] = [one, other.place];
  const isSame = place.digest === theirs.digest && place.head === theirs.head;
  return drop === other.drop && place.position === theirs.position && !isSame;
}

// The header digests, hexadecimal, that a result counts. So many members signed sums over exactly these that one of them does not
// lie.
export async function countedIn(study, file) {
  const { signers, chosen } = await signedResult(study, file).catch(() => {
    throw new Error(`The result ${CHANGED}`);
  });
  if (signers.size <= study.colluding) throw new Error("Too few members signed this result. Ask for that of all members.");
  const counted = new Set();
  for (let begin = 0; begin < chosen.length; begin += CHOSEN_BYTES) {
    counted.add(toHex(chosen.subarray(begin, begin + 32)));
  }
  return counted;
}

// Who signed a sum in a result of this study, and the bytes of what these are over. Throws where any of it is wrong.
async function signedResult(study, file) {
  const [label, session, members, noise, lists, marks, chosen, sums, ...more] = messageUnpack(file);
  const isWhole = label === RESULT_LABEL && isSame(session, study.session) && !more.length && chosen.length % CHOSEN_BYTES === 0;
  const choice = await sha256(messagePack([CHOICE_LABEL, session, members, noise, lists, await sha256(chosen), marks]));
  const signers = new Set();
  for (const [member, digest, share, signature] of sums) {
    const content = messagePack([session, choice, await sha256(share)]);
    const isGood = isSame(digest, choice) && (await isSigned(keyLine(study.members[member]), "committee sum", content, signature));
    if (!isGood || signers.has(member)) throw new TypeError("It has a sum that nobody signed.");
    signers.add(member);
  }
  if (!isWhole) throw new TypeError("It is of something else.");
  return { signers, chosen };
}

// What a member read of the drop: {member, heads, digests, leftOut, page}: digests in the drop's order, the chain's heads, why
// contributors are left out, by their lines, and the SHA-256 of the page with the result that this member opened.
export async function logOf(study, text) {
  const isBase64 = (value) => isText(value) && toBase64(fromBase64(value)) === value;
  const isPair = (value) => Array.isArray(value) && value.length === 2 && value.every(isText);
  const isList = (value) => Array.isArray(value) && value.every(isPair);
  const isPage = (value) => value === "" || isDigest(value);
  const kinds = { digests: isBase64, head: isDigest, left_out: isList, member: isText, page: isPage, session: isDigest };
  const said = await documentOf(text, "committee log", "member", kinds);
  if (said.session !== toHex(study.session) || !study.members.map(keyLine).includes(said.member)) {
    throw new Error("The log is of another study. Give the one of this study.");
  }
  const all = fromBase64(said.digests);
  const [digests, heads] = [[], []];
  let head = await sha256(joined(CHAIN_LABEL, study.session));
  for (let begin = 0; begin < all.length; begin += 32) {
    const digest = all.subarray(begin, begin + 32);
    head = await sha256(joined(head, digest));
    digests.push(toHex(digest));
    heads.push(toHex(head));
  }
  if (all.length % 32 || toHex(head) !== said.head) throw new Error(`The log ${CHANGED}`);
  return { member: said.member, digests, heads, leftOut: new Map(said.left_out), page: said.page };
}

// Who signed this page of the result, by name: nobody where these are fewer than a quorum, of which two have an honest member in
// common. A member that signed two pages lies.
export async function signersOf(study, page, logs) {
  const digest = toHex(await sha256(page));
  const lines = study.members.map(keyLine);
  const pages = lines.map((line) => new Set(logs.filter(({ member }) => member === line).map((log) => log.page)));
  const signers = study.names.filter((_, at) => pages[at].size === 1 && pages[at].has(digest));
  return signers.length > Math.floor((study.members.length + study.colluding) / 2) ? signers : [];
}

export const COUNTED = "counted";
export const LEFT_OUT = "in the log and left out";
export const LATE = "too late";
export const UNKNOWN = "not known";
export const MISSING = "acknowledged and not in the log";

// What a receipt turns out to be of: {verdict, why, members}. `counted`: from countedIn; `logs`: from logOf, one a member;
// `listsAt`: when members listed what they had, in seconds since 1970. MISSING proves that the drop broke its word.
export function verdictOn(study, receipt, counted, logs, listsAt) {
  const { digest, position, head } = receipt.place;
  if (counted.has(digest)) return { verdict: COUNTED, why: "", members: [] };
  const having = logs.filter(({ digests, heads }) => digests[position - 1] === digest && heads[position - 1] === head);
  const named = (those) => those.map(({ member }) => member);
  if (having.length) {
    const [why = ""] = having.map(({ leftOut }) => leftOut.get(receipt.contributor)).filter(Boolean);
    return { verdict: LEFT_OUT, why, members: named(having) };
  }
  if (receipt.time.getTime() / 1000 > listsAt) return { verdict: LATE, why: "", members: [] };
  const isProven = new Set(named(logs)).size > study.colluding;
  return { verdict: isProven ? MISSING : UNKNOWN, why: "", members: named(logs) };
}
