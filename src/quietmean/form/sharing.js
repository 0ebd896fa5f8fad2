// Dealing as members expect it: numbers in bits that prove their ranges and relations, shares of these, and masks for checks.
// All modulo p = 2^31 - 1, exact: no product reaches 2^53. Not constant in time.
import { derived, words } from "./streams.js";

export const PRIME = 2 ** 31 - 1;
const REPETITIONS = 6;
const residue = (number) => ((number % PRIME) + PRIME) % PRIME;

// Of residues: b is cut in two, so that both products stay below 2^53.
const times = (a, b) => (((a * (b >>> 16)) % PRIME) * 65536 + a * (b & 0xffff)) % PRIME;

function inverse(number) {
  let [power, result] = [number, 1];
  for (let exponent = PRIME - 2; exponent; exponent = Math.floor(exponent / 2)) {
    if (exponent % 2) result = times(result, power);
    power = times(power, power);
  }
  return result;
}

async function uniform(secret, count) {
  const halves = await words(secret, count);
  // 2^32 is 2 modulo p.
  return Uint32Array.from({ length: count }, (_, at) => (2 * halves[2 * at] + halves[2 * at + 1]) % PRIME);
}

// What takes the values of a polynomial at `nodes` to that at `point`, none of these.
function lagrange(nodes, point) {
  return nodes.map((node, at) => {
    const others = nodes.filter((_, other) => other !== at);
    const above = others.reduce((product, other) => times(product, residue(point - other)), 1);
    const below = others.reduce((product, other) => times(product, residue(node - other)), 1);
    return times(above, inverse(below));
  });
}

const range = (from, to) => Array.from({ length: to - from }, (_, at) => from + at);
const memberPoint = (committee, member) => member + committee.secrets + 1;

// The weights of the bits of a number in 0..span: 1, 2, 4, ... and a last one, of which the sums are all of these and no other.
function bitWeights(span) {
  const weights = [];
  for (let weight = 1; weight <= span; weight *= 2) weights.push(weight);
  weights[weights.length - 1] = span - (weights.at(-1) - 1);
  return weights;
}

// The bits of the summed `numbers` and of one number of each relation, by which its sum is above the least that it may be.
// `program`: an encoding program, with {lows, highs, relations}. What is beyond its range is moved into it.
export function bitsOf(program, numbers) {
  const ranges = [...program.lows.map((low, at) => [low, program.highs[at]]), ...program.relations.map(([, , ...ends]) => ends)];
  const moved = numbers.map((number, at) => Math.min(Math.max(number, program.lows[at]), program.highs[at]));
  const sums = program.relations.map(([places, factors]) =>
    places.reduce((sum, place, term) => sum + factors[term] * moved[place], 0),
  );
  return [...moved, ...sums].flatMap((number, at) => {
    const [low, high] = ranges[at];
    if (number < low || number > high) throw new Error("The answers together are none that this study can have. Check them.");
    const weights = bitWeights(high - low);
    // The last weight counts where the others do not reach.
    const isLast = number - low > 2 ** (weights.length - 1) - 1;
    const left = number - low - (isLast ? weights.at(-1) : 0);
    return weights.map((_, bit) => (bit === weights.length - 1 ? Number(isLast) : Math.floor(left / 2 ** bit) % 2));
  });
}

// For each member its share of the numbers, or the seed of it. `committee`: {members, secrets, colluding, verified}; `first`: who gets the first of the `colluding` seeds.
export async function dealt(committee, numbers, first, secret) {
  const { members, secrets, colluding } = committee;
  const blocks = Math.ceil(numbers.length / secrets);
  const rows = range(0, secrets).map((row) => range(row * blocks, (row + 1) * blocks).map((at) => residue(numbers[at] ?? 0)));
  const shares = new Array(members);
  const nodes = range(1, secrets + 1);
  for (let offset = 0; offset < colluding; offset++) {
    const member = (first + offset) % members;
    shares[member] = { seed: await derived(secret, "share", member) };
    rows.push(await uniform(shares[member].seed, blocks));
    nodes.push(memberPoint(committee, member));
  }
  for (const member of range(0, members).filter((member) => shares[member] === undefined)) {
    const factors = lagrange(nodes, memberPoint(committee, member));
    const share = range(0, blocks).map((block) => factors.reduce((sum, factor, at) => sum + times(factor, rows[at][block]), 0));
    shares[member] = { share: share.map((sum) => sum % PRIME) };
  }
  return shares;
}

// For each member its shares of the masks of checks, of degrees and, where it is verified, of products.
export async function dealtMasks(committee, secret) {
  const { members, secrets, colluding, verified } = committee;
  const threshold = colluding + secrets;
  const ofDegrees = await randomPolynomials(committee, await derived(secret, "committee masks"), threshold);
  if (!verified) return ofDegrees;
  const others = await randomPolynomials(committee, await derived(secret, "committee product masks"), 2 * threshold - 2);
  // 0 at the point of the secret, which is 1.
  const away = (member) => memberPoint(committee, member) - 1;
  return range(0, members).map((member) => [...ofDegrees[member], ...others[member].map((mask) => times(mask, away(member)))]);
}

async function randomPolynomials(committee, secret, coefficients) {
  const drawn = await uniform(secret, coefficients * REPETITIONS);
  return range(0, committee.members).map((member) =>
    range(0, REPETITIONS).map((repetition) => {
      let value = 0;
      for (let power = coefficients - 1; power >= 0; power--) {
        value = (times(value, memberPoint(committee, member)) + drawn[power * REPETITIONS + repetition]) % PRIME;
      }
      return value;
    }),
  );
}
