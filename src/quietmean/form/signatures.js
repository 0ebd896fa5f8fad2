// Ed25519 signatures over the label of what they are for, by the browser's own code.
import { fromBase64, joined, toBase64, toHex, utf8 } from "./bytes.js";
import { ED25519_KIND, pkcs8 } from "./hpke.js";

const KEY_PREFIX = "ed25519:";
const signedBytes = (purpose, content) => joined(utf8(`quietmean ${purpose} 1\0`), content);
const privateKey = (secret, extractable) =>
  crypto.subtle.importKey("pkcs8", pkcs8(ED25519_KIND, secret), "Ed25519", extractable, ["sign"]);

// The 32 bytes of the public key of a private key.
export async function publicKeyOf(secret) {
  return fromBase64((await crypto.subtle.exportKey("jwk", await privateKey(secret, true))).x);
}

export const keyLine = (key) => KEY_PREFIX + toBase64(key);

export async function signed(secret, purpose, content) {
  return new Uint8Array(await crypto.subtle.sign("Ed25519", await privateKey(secret, false), signedBytes(purpose, content)));
}

// Points under which anybody can sign: their y, in hexadecimal.
const SMALL_ORDER = [
  "00".repeat(32),
  `01${"00".repeat(31)}`,
  `ec${"ff".repeat(30)}7f`,
  "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
];

function isSafe(key) {
  const y = key.slice();
  y[31] &= 127;
  const isLarge = y[31] === 127 && y.subarray(1, 31).every((byte) => byte === 255) && y[0] >= 237;
  return key.length === 32 && !isLarge && !SMALL_ORDER.includes(toHex(y));
}

// Whether the owner of a public line signed this; never for a line that is no key, or spelt in another way.
export async function isSigned(line, purpose, content, signature) {
  try {
    const raw = fromBase64(line.slice(KEY_PREFIX.length));
    if (keyLine(raw) !== line || !isSafe(raw)) return false;
    const key = await crypto.subtle.importKey("raw", raw, "Ed25519", false, ["verify"]);
    return await crypto.subtle.verify("Ed25519", key, signature, signedBytes(purpose, content));
  } catch {
    return false;
  }
}
