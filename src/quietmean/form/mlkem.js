// ML-KEM-768 (FIPS 203), encapsulation only: pages seal and never open. Not constant in time, as no JavaScript is: who measures
// this browser from inside could learn what it encapsulates.
import { isSame, joined } from "./bytes.js";
import { sha3of256, sha3of512, shake128, shake256 } from "./sha3.js";

const KEM_Q = 3329;
const KEM_SIZE = 256;
const KEM_RANK = 3;
const POLYNOMIAL_BYTES = 384;
export const KEM_KEY_BYTES = KEM_RANK * POLYNOMIAL_BYTES + 32;
const ZETAS = reversedPowers(1);
const GAMMAS = reversedPowers(2).map((power) => (17 * power) % KEM_Q);

// 17 to `times` the bits of 0..127 in reverse order.
function reversedPowers(times) {
  return Array.from({ length: 128 }, (_, place) => {
    let exponent = 0;
    for (let bit = 0; bit < 7; bit++) exponent |= ((place >> bit) & 1) << (6 - bit);
    let power = 1;
    for (let step = 0; step < times * exponent; step++) power = (power * 17) % KEM_Q;
    return power;
  });
}

const modulo = (number) => ((number % KEM_Q) + KEM_Q) % KEM_Q;

// All in place.
function toNtt(f) {
  for (let length = 128, place = 1; length >= 2; length >>= 1) {
    for (let start = 0; start < KEM_SIZE; start += 2 * length, place++) {
      for (let at = start; at < start + length; at++) {
        const moved = (ZETAS[place] * f[at + length]) % KEM_Q;
        f[at + length] = modulo(f[at] - moved);
        f[at] = (f[at] + moved) % KEM_Q;
      }
    }
  }
  return f;
}

function fromNtt(f) {
  for (let length = 2, place = 127; length <= 128; length <<= 1) {
    for (let start = 0; start < KEM_SIZE; start += 2 * length, place--) {
      for (let at = start; at < start + length; at++) {
        const kept = f[at];
        f[at] = (kept + f[at + length]) % KEM_Q;
        f[at + length] = (ZETAS[place] * (f[at + length] - kept + KEM_Q)) % KEM_Q;
      }
    }
  }
  // 3303 is 1 / 128.
  return f.map((number) => (number * 3303) % KEM_Q);
}

function addProduct(total, f, g) {
  for (let pair = 0; pair < KEM_SIZE / 2; pair++) {
    const [even, odd] = [2 * pair, 2 * pair + 1];
    const odds = (f[odd] * g[odd]) % KEM_Q;
    total[even] = (total[even] + f[even] * g[even] + odds * GAMMAS[pair]) % KEM_Q;
    total[odd] = (total[odd] + f[even] * g[odd] + f[odd] * g[even]) % KEM_Q;
  }
}

function sampledUniform(seed, first, second) {
  const next = shake128(joined(seed, [first, second]));
  const f = new Int32Array(KEM_SIZE);
  for (let count = 0; count < KEM_SIZE; ) {
    const [low, middle, high] = next(3);
    for (const number of [low + 256 * (middle & 15), (middle >> 4) + 16 * high]) {
      if (number < KEM_Q && count < KEM_SIZE) f[count++] = number;
    }
  }
  return f;
}

function sampledSmall(seed, nonce) {
  const drawn = shake256(joined(seed, [nonce]))(128);
  const ones = (nibble) => (nibble & 1) + ((nibble >> 1) & 1) - ((nibble >> 2) & 1) - ((nibble >> 3) & 1);
  return Int32Array.from({ length: KEM_SIZE }, (_, at) => modulo(ones(drawn[at >> 1] >> (4 * (at & 1)))));
}

function packed(f, bits) {
  const bytes = new Uint8Array((KEM_SIZE * bits) / 8);
  f.forEach((number, at) => {
    for (let bit = 0, place = at * bits; bit < bits; bit++, place++) bytes[place >> 3] |= ((number >> bit) & 1) << (place & 7);
  });
  return bytes;
}

function unpacked(bytes, bits) {
  return Int32Array.from({ length: KEM_SIZE }, (_, at) => {
    let number = 0;
    for (let bit = 0, place = at * bits; bit < bits; bit++, place++) number |= ((bytes[place >> 3] >> (place & 7)) & 1) << bit;
    return number;
  });
}

const compressed = (f, bits) =>
  packed(f.map((number) => Math.floor((number * 2 ** bits + 1664) / KEM_Q) % 2 ** bits), bits);

// The secret that both sides share, 32 bytes, and its ciphertext for the owner of `key`; `message`: 32 fresh random bytes.
export function encapsulated(key, message) {
  const rows = Array.from({ length: KEM_RANK }, (_, row) => key.subarray(row * POLYNOMIAL_BYTES, (row + 1) * POLYNOMIAL_BYTES));
  const publics = rows.map((row) => unpacked(row, 12));
  if (key.length !== KEM_KEY_BYTES || publics.some((f, row) => !isSame(packed(f.map((number) => number % KEM_Q), 12), rows[row]))) {
    throw new Error("A member's mailbox key is not valid. Do not contribute, and tell the coordinator.");
  }
  const drawn = sha3of512(joined(message, sha3of256(key)));
  const [secret, coins] = [drawn.subarray(0, 32), drawn.subarray(32)];
  const ranks = [0, 1, 2];
  const y = ranks.map((row) => toNtt(sampledSmall(coins, row)));
  const ciphertext = ranks.map((row) => {
    const total = new Int32Array(KEM_SIZE);
    ranks.forEach((column) => addProduct(total, sampledUniform(key.subarray(-32), row, column), y[column]));
    const noise = sampledSmall(coins, KEM_RANK + row);
    return compressed(fromNtt(total).map((number, at) => (number + noise[at]) % KEM_Q), 10);
  });
  const total = new Int32Array(KEM_SIZE);
  ranks.forEach((row) => addProduct(total, publics[row], y[row]));
  const noise = sampledSmall(coins, 2 * KEM_RANK);
  const said = unpacked(message, 1);
  const last = fromNtt(total).map((number, at) => (number + noise[at] + 1665 * said[at]) % KEM_Q);
  return { secret, ciphertext: joined(...ciphertext, compressed(last, 4)) };
}
