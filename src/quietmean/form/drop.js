// Sending a sealed file to a drop: the same file as often as need be.
import { toBase64, toHex } from "./bytes.js";
import { receiptOf } from "./receipts.js";
import { signed } from "./signatures.js";

const LATER = [408, 429, 500, 502, 503, 504];
const PATIENCE = 120_000;
// So long nobody waits to be asked the first question.
const LOOK = 3000;
// Of each member three: what a server lists beyond is not asked for.
const MANY = 400;

// {receipt, text} of the drop; {first} where another file with this voucher came before; {later} or {refused} with the reason.
export async function sent(study, address, file, digest, contributor) {
  let answer, text;
  try {
    answer = await fetch(`${address}/contributions`, {
      method: "POST", body: file, credentials: "omit", cache: "no-store", redirect: "error",
      referrerPolicy: "no-referrer", signal: AbortSignal.timeout(PATIENCE),
    });
    text = await answer.text();
  } catch {
    // Browsers ask before a page sends to a private address, or refuse it, unless that address served the page.
    const elsewhere = new URL(address).origin === location.origin ? "" : ` from here. Its own page is ${address}`;
    return { later: `the server cannot be reached${elsewhere}` };
  }
  const said = parsed(text);
  if (LATER.includes(answer.status)) return { later: String(said.error ?? "the server has too much to do") };
  const given = answer.status === 200 ? text : answer.status === 409 ? String(said.receipt) : null;
  if (given === null) return { refused: String(said.error ?? `the server answers with ${answer.status}`) };
  try {
    const receipt = await receiptOf(study, given);
    const isOwn = receipt.contributor === contributor;
    if (isOwn && answer.status === 409 && receipt.place.digest !== toHex(digest)) return { first: receipt, text: given };
    if (isOwn && receipt.place.digest === toHex(digest)) return { receipt, text: given };
  } catch {
    // No receipt at all.
  }
  return { later: "the server's receipt is of something else" };
}

// The receipt of the first answer with this voucher, {receipt, text}, from a drop that has one. Undefined where it has none, says
// nothing, or says something that it did not sign. Only who has the voucher can ask.
export async function firstOf(study, address, secret, contributor) {
  try {
    const signature = toBase64(await signed(secret, "committee question", study.session));
    const answer = await fetch(`${address}/receipts`, {
      method: "POST", body: JSON.stringify({ contributor, signature }), credentials: "omit", cache: "no-store",
      redirect: "error", referrerPolicy: "no-referrer", signal: AbortSignal.timeout(LOOK),
    });
    const { receipt: text } = await answer.json();
    const receipt = await receiptOf(study, text);
    return receipt.contributor === contributor ? { receipt, text } : undefined;
  } catch {
    return undefined;
  }
}

// How many contributions a drop has: {contributions, of, least}; undefined where it does not say.
export async function countsOf(address) {
  try {
    const answer = await fetch(`${address}/health`, { credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer" });
    const { contributions, of, least } = await answer.json();
    return [contributions, of, least].every(Number.isSafeInteger) ? { contributions, of, least } : undefined;
  } catch {
    return undefined;
  }
}

// What members published at the end, as files; none where the drop says nothing.
export async function publishedAt(address) {
  const asked = { credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer", signal: AbortSignal.timeout(PATIENCE) };
  try {
    const { files } = await (await fetch(`${address}/published`, asked)).json();
    return await Promise.all(files.slice(0, MANY).map(async (name) => {
      const answer = await fetch(`${address}/published/${encodeURIComponent(name)}`, asked);
      return new File(answer.ok ? [await answer.arrayBuffer()] : [], name);
    }));
  } catch {
    return [];
  }
}

function parsed(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}
