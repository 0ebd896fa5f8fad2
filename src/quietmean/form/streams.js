// Seeds of 32 bytes, streams under them, and residues drawn from these: as members' software has them, byte for byte.
import { bigEndian, hmac256, joined, utf8 } from "./bytes.js";

export const SEED_BYTES = 32;

// The seed that follows from `secret` by labels, texts or whole numbers; others follow for other labels.
export function derived(secret, ...labels) {
  const parts = labels.flatMap((label) => {
    const raw = utf8(String(label));
    return [utf8(typeof label === "number" ? "i" : "s"), bigEndian(raw.length, 8), raw];
  });
  return hmac256(secret, joined(...parts));
}

// The first words of 64 bits of a seed's stream, each as its upper and lower 32 bits, one behind the other.
export async function words(secret, count) {
  const key = await crypto.subtle.importKey("raw", await derived(secret, "bit stream"), "AES-CTR", false, ["encrypt"]);
  const counter = { name: "AES-CTR", counter: new Uint8Array(16), length: 64 };
  const view = new DataView(await crypto.subtle.encrypt(counter, key, new Uint8Array(8 * count)));
  const halves = new Uint32Array(2 * count);
  for (let at = 0; at < count; at++) {
    halves[2 * at] = view.getUint32(8 * at + 4, true);
    halves[2 * at + 1] = view.getUint32(8 * at, true);
  }
  return halves;
}

// Numbers from 0 to below 1, multiples of 2^-53, from the same words.
export async function unitNumbers(secret, count) {
  const halves = await words(secret, count);
  return Array.from({ length: count }, (_, at) => (halves[2 * at] * 2 ** 21 + (halves[2 * at + 1] >>> 11)) / 2 ** 53);
}
