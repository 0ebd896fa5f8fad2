// The file of a contribution, as `contribute` writes it, for a committee and the owner of a voucher. Not constant in time.
//
// A study is {session, members, mailboxes, colluding, verified, registrar, invitation, program}: the sealed study's digest
// (32 bytes), the members' identity keys (32 bytes each) and mailbox keys, in the members' order; how many collude, how many
// numbers one polynomial has, and whether ranges are checked, all as the plan has them; the registrar's public line and the
// invitation's digest (hexadecimal), which vouchers.js needs; and the encoding program, parsed.
import { freshBytes, joined, sha256, utf8 } from "./bytes.js";
import { exchanged, RANDOM_OF_SEALING, sealed } from "./hpke.js";
import { Double, messagePack } from "./msgpack.js";
import { bitsOf, dealt, dealtMasks } from "./sharing.js";
import { derived, SEED_BYTES } from "./streams.js";
import { publicKeyOf, signed } from "./signatures.js";

const MAGIC = utf8("qmcommi1");
const CONTRIBUTION_LABEL = "quietmean committee contribution 1";
const VALUE = "value";
// Digests of the seeds of this page's files: with one seed for two answers one member would see how these differ.
const seedsUsed = new Set();

// `vector`: the program's whole numbers, one a coordinate; `seed`: 32 fresh bytes, from which its shares follow, for one file only;
// `voucher`: see vouchers.js. Masks and ciphertexts have randomness of their own. `random` is for tests alone.
export async function contribution(study, vector, seed, voucher, random = freshBytes) {
  const { session, members, mailboxes, program } = study;
  const committee = { ...study, members: members.length, secrets: program.secrets };
  if (seed.length !== SEED_BYTES) throw new Error("A seed has 32 bytes. Make a new one.");
  if (vector.length !== program.lows.length || !vector.every(Number.isSafeInteger)) {
    throw new Error("The answers do not give what this study adds up. Open its page again.");
  }
  const used = String(await sha256(seed));
  if (seedsUsed.has(used)) throw new Error("This seed has served for another file. Make a new one.");
  seedsUsed.add(used);
  const dealer = await publicKeyOf(voucher.secret);
  const first = await firstSeeded(dealer, members.length);
  const masks = await dealtMasks(committee, random(SEED_BYTES));
  const numbers = study.verified ? bitsOf(program, vector) : vector;
  const shares = await dealt(committee, numbers, first, await derived(seed, "committee shares", VALUE));
  const weight = new Double(program.weight);
  const front = [CONTRIBUTION_LABEL, session, VALUE, dealer, weight];
  const ciphertexts = await Promise.all(
    mailboxes.map((mailbox, member) => {
      const { seed: own, share } = shares[member];
      const content = joined(own ?? littleEndian(share), littleEndian(masks[member]));
      return sealed(mailbox, messagePack([...front, members[member]]), content, random(RANDOM_OF_SEALING));
    }),
  );
  const digests = await Promise.all(ciphertexts.map(sha256));
  const header = messagePack([...front, joined(...digests)]);
  const signature = await signed(voucher.secret, "committee contribution", header);
  return joined(MAGIC, littleEndian([header.length]), header, signature, voucher.admission, ...ciphertexts);
}

// Whether this browser has all that sealing needs: X25519 and Ed25519 are young, and a page without https has neither.
export async function canSeal() {
  try {
    const secret = freshBytes(SEED_BYTES);
    await Promise.all([publicKeyOf(secret), exchanged(secret)]);
    return true;
  } catch {
    return false;
  }
}

// The digest by which members, receipts and results name a file.
export async function headerDigest(file) {
  const begin = MAGIC.length + 4;
  const size = new DataView(file.buffer, file.byteOffset).getUint32(MAGIC.length, true);
  return sha256(file.subarray(begin, begin + size));
}

async function firstSeeded(dealer, members) {
  return (await sha256(dealer)).reduce((rest, byte) => (256 * rest + byte) % members, 0);
}

function littleEndian(numbers) {
  const view = new DataView(new ArrayBuffer(4 * numbers.length));
  numbers.forEach((number, at) => view.setUint32(4 * at, number, true));
  return new Uint8Array(view.buffer);
}
