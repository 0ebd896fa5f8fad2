// Answers what tests ask of the modules that seal, in node or in a browser.

const MODULES = ["answers", "bytes", "contribution", "hpke", "mlkem", "msgpack", "program", "receipts", "sha3", "sharing", "signatures", "streams", "vouchers"];

// A function from one question to its answer, both plain data with bytes in hexadecimal; `folder`: where the modules are.
export async function answering(folder) {
  const loaded = await Promise.all(MODULES.map((name) => import(`${folder}/${name}.js`)));
  const form = Object.assign({}, ...loaded);
  const { fromHex, toHex, freshBytes } = form;
  const voucherOf = ({ secret, admission }) => ({ secret: fromHex(secret), admission: fromHex(admission) });
  const studyOf = (study) => ({
    ...study,
    session: fromHex(study.session),
    members: study.members.map(fromHex),
    mailboxes: study.mailboxes.map(fromHex),
  });
  // The bytes that a question gives, in their order, else fresh ones.
  const randomOf = (given) => (given ? (count) => fromHex(given.shift()).subarray(0, count) : freshBytes);
  const packed = (value) => {
    if (Array.isArray(value)) return value.map(packed);
    if (typeof value !== "object") return value;
    return "bytes" in value ? fromHex(value.bytes) : new form.Double(value.double);
  };
  const calls = {
    sha3: ({ content }) => {
      const bytes = fromHex(content);
      const streams = [form.shake128(bytes), form.shake256(bytes)].flatMap((next) => [next(1), next(500)]);
      return [form.sha3of256(bytes), form.sha3of512(bytes), ...streams].map(toHex);
    },
    encapsulate: ({ key, message }) => {
      const { secret, ciphertext } = form.encapsulated(fromHex(key), fromHex(message));
      return [toHex(secret), toHex(ciphertext)];
    },
    xwing: async ({ key, random }) => {
      const { secret, ciphertext } = await form.xwing(fromHex(key), fromHex(random));
      return [toHex(secret), toHex(ciphertext)];
    },
    seal: async ({ key, info, content }) =>
      toHex(await form.sealed(fromHex(key), fromHex(info), fromHex(content), freshBytes(form.RANDOM_OF_SEALING))),
    pack: ({ value }) => toHex(form.messagePack(packed(value))),
    draw: async ({ secret, labels, count }) => {
      const seed = await form.derived(fromHex(secret), ...labels);
      return [toHex(seed), Array.from(await form.words(seed, count)), await form.unitNumbers(seed, count)];
    },
    contribute: async ({ study, vector, seed, voucher, random }) => {
      const made = await form.contribution(studyOf(study), vector, fromHex(seed), voucherOf(voucher), randomOf(random));
      return [toHex(made), toHex(await form.headerDigest(made))];
    },
    // As a page does: from the cells of one record to its file.
    answer: async ({ study, cells, seed, ...given }) => {
      const uniform = await form.unitNumbers(await form.derived(fromHex(seed), "rounding"), study.program.lows.length);
      const known = cells.map((cell) => cell ?? NaN);
      return calls.contribute({ study, vector: form.numbersOf(study.program, known, uniform), seed, ...given });
    },
    // In a browser that lacks one kind of keys, or everything.
    probe: async ({ without }) => {
      const { subtle } = crypto;
      const importKey = (...given) => {
        if (given[2] === without) throw new DOMException("Unrecognized name.", "NotSupportedError");
        return subtle.importKey(...given);
      };
      const others = { exportKey: subtle.exportKey.bind(subtle), deriveBits: subtle.deriveBits.bind(subtle) };
      const value = without === "everything" ? undefined : { ...others, importKey };
      Object.defineProperty(crypto, "subtle", { value, configurable: true });
      const can = await form.canSeal();
      delete crypto.subtle;
      return can;
    },
    // Seconds of each of so many contributions, one after the other.
    measure: async ({ study, vector, voucher, times }) => {
      const seconds = [];
      for (let at = 0; at < times; at++) {
        const began = performance.now();
        await form.contribution(studyOf(study), vector, freshBytes(32), voucherOf(voucher));
        seconds.push((performance.now() - began) / 1000);
      }
      return seconds;
    },
    // NaN is null in JSON.
    readNumber: ({ text }) => form.numberIn(text, "pay"),
    readVoucher: ({ text }) => {
      const { secret, admission } = form.voucherOf(text);
      return { secret: toHex(secret), admission: toHex(admission) };
    },
    judge: async ({ study, receipt, result, logs, listsAt }) => {
      const own = studyOf(study);
      const counted = result === null ? new Set() : await form.countedIn(own, fromHex(result));
      const read = await Promise.all(logs.map((log) => form.logOf(own, log)));
      return form.verdictOn(own, await form.receiptOf(own, receipt), counted, read, listsAt);
    },
    signers: async ({ study, page, logs }) => {
      const own = { ...studyOf(study), names: study.names };
      return form.signersOf(own, fromHex(page), await Promise.all(logs.map((log) => form.logOf(own, log))));
    },
    fork: async ({ study, receipts }) => {
      const [one, other] = await Promise.all(receipts.map((receipt) => form.receiptOf(studyOf(study), receipt)));
      return form.isFork(one, other);
    },
    check: ({ line, content, signature }) => form.isSigned(line, "link", fromHex(content), fromHex(signature)),
    sign: async ({ secret, content }) => toHex(await form.signed(fromHex(secret), "link", fromHex(content))),
    admit: ({ study, voucher }) => form.isAdmitted(study, voucherOf(voucher)),
  };
  return async ({ call, ...given }) => {
    try {
      return { answer: await calls[call](given) };
    } catch (error) {
      return { error: error.message };
    }
  };
}

async function answerLines(folder) {
  const { createInterface } = await import("node:readline");
  const answer = await answering(folder);
  for await (const line of createInterface({ input: process.stdin })) console.log(JSON.stringify(await answer(JSON.parse(line))));
}

if (typeof process !== "undefined") await answerLines(process.argv[2]);
