// Sealing to mailbox keys: HPKE (RFC 9180) in one message, by X-Wing (ML-KEM-768 with X25519), HKDF-SHA256 and AES-256-GCM.
// X25519, HMAC and AES are the browser's; the rest is not constant in time.
import { bigEndian, fromHex, hmac256, joined, utf8 } from "./bytes.js";
import { encapsulated, KEM_KEY_BYTES } from "./mlkem.js";
import { sha3of256 } from "./sha3.js";

export const RANDOM_OF_SEALING = 64;
const XWING_LABEL = utf8("\\.//^\\");
const BASE_POINT = Uint8Array.of(9, ...new Uint8Array(31));
// KEM, KDF and AEAD.
const SUITE = joined(utf8("HPKE"), fromHex("647a"), fromHex("0001"), fromHex("0002"));
const VERSION = utf8("HPKE-v1");
const NOTHING = new Uint8Array(0);
const X25519_KIND = 0x6e;
export const ED25519_KIND = 0x70;

// The form in which browsers take a private key of 32 bytes.
export const pkcs8 = (kind, secret) => joined(fromHex("302e020100300506032b65"), [kind], fromHex("04220420"), secret);

// X25519 of a private key, 32 bytes, with a public one; by default with the base point, which gives the public key.
export async function exchanged(secret, point = BASE_POINT) {
  const own = await crypto.subtle.importKey("pkcs8", pkcs8(X25519_KIND, secret), "X25519", false, ["deriveBits"]);
  const other = await crypto.subtle.importKey("raw", point, "X25519", false, []);
  return new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: other }, own, 256));
}

// X-Wing's shared secret and ciphertext for the owner of a public key; `random`: 64 fresh bytes.
export async function xwing(key, random) {
  const [kemKey, point] = [key.subarray(0, KEM_KEY_BYTES), key.subarray(KEM_KEY_BYTES)];
  const { secret, ciphertext } = encapsulated(kemKey, random.subarray(0, 32));
  const own = random.subarray(32);
  const [ephemeral, shared] = await Promise.all([exchanged(own), exchanged(own, point)]);
  const combined = sha3of256(joined(secret, shared, ephemeral, point, XWING_LABEL));
  return { secret: combined, ciphertext: joined(ciphertext, ephemeral) };
}

const labeledExtract = (salt, label, input) => hmac256(salt, joined(VERSION, SUITE, utf8(label), input));

async function labeledExpand(secret, label, context, size) {
  // One block of HMAC is enough for a key.
  const info = joined(bigEndian(size, 2), VERSION, SUITE, utf8(label), context);
  return (await hmac256(secret, joined(info, [1]))).subarray(0, size);
}

// A ciphertext that the owner of the public key alone opens, with the same `info`; `random`: 64 fresh bytes, used once.
export async function sealed(key, info, content, random) {
  const { secret, ciphertext } = await xwing(key, random);
  // An empty key of HMAC is one of zeros, which browsers take.
  const salt = new Uint8Array(32);
  const hashes = [await labeledExtract(salt, "psk_id_hash", NOTHING), await labeledExtract(salt, "info_hash", info)];
  const context = joined([0], ...hashes);
  const scheduled = await labeledExtract(secret, "secret", NOTHING);
  const raw = await labeledExpand(scheduled, "key", context, 32);
  const nonce = await labeledExpand(scheduled, "base_nonce", context, 12);
  const imported = await crypto.subtle.importKey("raw", raw, "AES-GCM", false, ["encrypt"]);
  const encrypted = await crypto.subtle.encrypt({ name: "AES-GCM", iv: nonce }, imported, content);
  return joined(ciphertext, new Uint8Array(encrypted));
}
