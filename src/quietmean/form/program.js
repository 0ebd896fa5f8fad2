// The encoding program of a study: from the cells of one record to the whole numbers that are dealt, to the last bit as in Python.
//
// A program is what quietmean/studies/agreement/program.py writes. Every operation is one of IEEE 754 doubles, in the stated order.

const truth = (is) => (is ? 1 : 0);

// Halves go to the even neighbour, and nothing to a negative zero.
function nearest(a) {
  const down = Math.floor(a) + 0;
  const above = a - down;
  if (above !== 0.5) return above < 0.5 ? down : down + 1;
  return down % 2 === 0 ? down : down + 1;
}

const OPERATIONS = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  "<": (a, b) => truth(a < b),
  "<=": (a, b) => truth(a <= b),
  "=": (a, b) => truth(a === b),
  least: (a, b) => (b < a ? b : a),
  most: (a, b) => (b > a ? b : a),
  missing: (a) => truth(Number.isNaN(a)),
  nearest,
  choose: (a, b, c) => (a !== 0 ? b : c),
};

// The vector of a record. `cells`: a number for each column, NaN where one is missing.
export function vectorOf(record, cells) {
  const made = [];
  for (const [name, ...given] of record.operations) {
    if (name === "constant") made.push(given[0] === null ? NaN : given[0]);
    else if (name === "cell") made.push(cells[given[0]]);
    else if (name === "look up") made.push(record.tables[given[0]][made[given[1]]]);
    else if (Object.hasOwn(OPERATIONS, name)) made.push(OPERATIONS[name](...given.map((place) => made[place])));
    else throw new Error("This study is of a newer version. Open its newest page.");
  }
  return record.values.map((place) => made[place]);
}

// What a record deals, in whole steps. `uniform`: of each number, from 0 to below 1, which rounds it up or down.
export function numbersOf(program, cells, uniform) {
  const { centre, step, reach, shift, lows, highs } = program;
  return vectorOf(program.record, cells).map((value, place) => {
    const steps = Math.min(Math.max((value - centre) / step, -reach), reach);
    const whole = Math.floor(steps + uniform[place]) + shift;
    // Adding zero makes a negative zero a plain one.
    return Math.min(Math.max(whole, lows[place]), highs[place]) + 0;
  });
}
