// SHA-3 and SHAKE (FIPS 202). Bytes in, bytes out. Not constant in time.

const ROTATIONS = [1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 2, 14, 27, 41, 56, 8, 25, 43, 62, 18, 39, 61, 20, 44];
const LANES = [10, 7, 11, 17, 18, 3, 5, 16, 8, 21, 24, 4, 15, 23, 19, 13, 12, 2, 20, 14, 22, 9, 6, 1];
const ROUND_CONSTANTS = roundConstants();

function roundConstants() {
  const constants = [];
  let register = 1;
  for (let round = 0; round < 24; round++) {
    const halves = [0, 0];
    for (let power = 0; power < 7; power++) {
      const bit = (1 << power) - 1;
      if (register & 1) halves[bit >> 5] |= 1 << (bit & 31);
      register = (register << 1) ^ ((register >> 7) * 0x171);
    }
    constants.push(halves);
  }
  return constants;
}

// A lane of 64 bits is two words of the state: the lower 32 bits first.
function permute(state) {
  const low = new Int32Array(5);
  const high = new Int32Array(5);
  for (const [constantLow, constantHigh] of ROUND_CONSTANTS) {
    for (let x = 0; x < 5; x++) {
      const at = 2 * x;
      low[x] = state[at] ^ state[at + 10] ^ state[at + 20] ^ state[at + 30] ^ state[at + 40];
      high[x] = state[at + 1] ^ state[at + 11] ^ state[at + 21] ^ state[at + 31] ^ state[at + 41];
    }
    for (let x = 0; x < 5; x++) {
      const next = (x + 1) % 5;
      const before = (x + 4) % 5;
      const changeLow = low[before] ^ ((low[next] << 1) | (high[next] >>> 31));
      const changeHigh = high[before] ^ ((high[next] << 1) | (low[next] >>> 31));
      for (let at = 2 * x; at < 50; at += 10) {
        state[at] ^= changeLow;
        state[at + 1] ^= changeHigh;
      }
    }
    let carriedLow = state[2];
    let carriedHigh = state[3];
    for (let step = 0; step < 24; step++) {
      const at = 2 * LANES[step];
      const by = ROTATIONS[step] & 31;
      const [upper, lower] = ROTATIONS[step] < 32 ? [carriedHigh, carriedLow] : [carriedLow, carriedHigh];
      const keptLow = state[at];
      const keptHigh = state[at + 1];
      state[at] = (lower << by) | (upper >>> (32 - by));
      state[at + 1] = (upper << by) | (lower >>> (32 - by));
      carriedLow = keptLow;
      carriedHigh = keptHigh;
    }
    for (let row = 0; row < 50; row += 10) {
      for (let x = 0; x < 5; x++) {
        low[x] = state[row + 2 * x];
        high[x] = state[row + 2 * x + 1];
      }
      for (let x = 0; x < 5; x++) {
        state[row + 2 * x] ^= ~low[(x + 1) % 5] & low[(x + 2) % 5];
        state[row + 2 * x + 1] ^= ~high[(x + 1) % 5] & high[(x + 2) % 5];
      }
    }
    state[0] ^= constantLow;
    state[1] ^= constantHigh;
  }
}

function sponge(rate, suffix, input) {
  const state = new Int32Array(50);
  const bytes = new Uint8Array(Math.ceil((input.length + 1) / rate) * rate);
  bytes.set(input);
  bytes[input.length] ^= suffix;
  bytes[bytes.length - 1] ^= 0x80;
  for (let begin = 0; begin < bytes.length; begin += rate) {
    for (let at = 0; at < rate; at++) state[at >> 2] ^= bytes[begin + at] << (8 * (at & 3));
    permute(state);
  }
  let taken = 0;
  // The next bytes of the output, so many.
  return (count) => {
    const output = new Uint8Array(count);
    for (let at = 0; at < count; at++, taken++) {
      if (taken === rate) {
        permute(state);
        taken = 0;
      }
      output[at] = state[taken >> 2] >>> (8 * (taken & 3));
    }
    return output;
  };
}

export const sha3of256 = (input) => sponge(136, 0x06, input)(32);
export const sha3of512 = (input) => sponge(72, 0x06, input)(64);
// Both return a function that gives the next so many bytes of the stream.
export const shake128 = (input) => sponge(168, 0x1f, input);
export const shake256 = (input) => sponge(136, 0x1f, input);
