// Bytes: joining, texts, base64, hexadecimal, and the operating system's randomness.

export function joined(...parts) {
  const all = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

export const utf8 = (text) => new TextEncoder().encode(text);

export function bigEndian(number, size) {
  const bytes = new Uint8Array(size);
  for (let at = size - 1, left = number; at >= 0; at--, left = Math.floor(left / 256)) bytes[at] = left % 256;
  return bytes;
}

export const isSame = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);

export const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export function fromHex(text) {
  if (!/^([0-9a-f]{2})*$/.test(text)) throw new Error("A digest is not hexadecimal. Ask for the file again.");
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export const toBase64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

// From base64 or its variant for addresses, with padding or without.
export function fromBase64(text) {
  try {
    if (!/^[-\w+/]*={0,2}$/.test(text)) throw new TypeError("It has other characters.");
    return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0));
  } catch {
    throw new Error("A text is not base64. Copy it again, from its beginning to its end.");
  }
}

export const freshBytes = (count) => crypto.getRandomValues(new Uint8Array(count));

export const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

export async function hmac256(key, bytes) {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, bytes));
}
