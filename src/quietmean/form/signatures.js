// Ed25519 signatures over the label of what they are for, by the browser's own code.
import { fromBase64, joined, toBase64, utf8 } from "./bytes.js";
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

// Whether the owner of a public line signed this; never for a line that is no key.
export async function isSigned(line, purpose, content, signature) {
  try {
    const key = await crypto.subtle.importKey("raw", fromBase64(line.slice(KEY_PREFIX.length)), "Ed25519", false, ["verify"]);
    return await crypto.subtle.verify("Ed25519", key, signature, signedBytes(purpose, content));
  } catch {
    return false;
  }
}
