// MessagePack as members write it: each value has one encoding. A double is nine bytes, also for 1: it is marked as such.
import { bigEndian, joined, utf8 } from "./bytes.js";

export class Double {
  constructor(value) {
    this.value = value;
  }
}

// From the smallest on: most sizes, and the first byte; sizes from 2^8 on need a form of their own.
const TEXTS = [[31, 0xa0], [0xff, 0xd9, 1], [0xffff, 0xda, 2], [0xffffffff, 0xdb, 4]];
const BINARIES = [[0xff, 0xc4, 1], [0xffff, 0xc5, 2], [0xffffffff, 0xc6, 4]];
const LISTS = [[15, 0x90], [0xffff, 0xdc, 2], [0xffffffff, 0xdd, 4]];
const POSITIVES = [[0x7f, 0], [0xff, 0xcc, 1], [0xffff, 0xcd, 2], [0xffffffff, 0xce, 4], [Number.MAX_SAFE_INTEGER, 0xcf, 8]];

function headed(forms, number) {
  const [, first, width] = forms.find(([most]) => number <= most);
  return width === undefined ? Uint8Array.of(first + number) : joined([first], bigEndian(number, width));
}

// Of texts, bytes, lists, whole numbers from 0 on and doubles.
export function messagePack(value) {
  if (value instanceof Double) {
    const bytes = new Uint8Array(9);
    bytes[0] = 0xcb;
    new DataView(bytes.buffer).setFloat64(1, value.value);
    return bytes;
  }
  if (typeof value === "string") {
    const bytes = utf8(value);
    return joined(headed(TEXTS, bytes.length), bytes);
  }
  if (value instanceof Uint8Array) return joined(headed(BINARIES, value.length), value);
  if (Array.isArray(value)) return joined(headed(LISTS, value.length), ...value.map(messagePack));
  if (Number.isSafeInteger(value) && value >= 0) return headed(POSITIVES, value);
  throw new TypeError("MessagePack here has no such value. Mark a double as one.");
}

// The inverse, for what members write of texts, bytes, lists and whole numbers from 0 on; for all else it throws.
export function messageUnpack(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 0;
  const whole = (width) => {
    let number = 0;
    for (let left = width; left; left--) number = 256 * number + view.getUint8(at++);
    return number;
  };
  const slice = (size) => {
    if (at + size > bytes.length) throw new RangeError("It is cut off.");
    at += size;
    return bytes.subarray(at - size, at);
  };
  const list = (size) => {
    const values = [];
    while (values.length < size) values.push(value());
    return values;
  };
  const text = (size) => new TextDecoder("utf-8", { fatal: true }).decode(slice(size));
  const readers = [[TEXTS, text], [BINARIES, slice], [LISTS, list], [POSITIVES, (number) => number]];
  function value() {
    const first = whole(1);
    for (const [forms, read] of readers) {
      for (const [most, start, width] of forms) {
        if (width !== undefined && first === start) return read(whole(width));
        if (width === undefined && first >= start && first <= start + most) return read(first - start);
      }
    }
    throw new TypeError("It has a value of another kind.");
  }
  const found = value();
  if (at !== bytes.length) throw new RangeError("It has more than one value.");
  return found;
}
