// The page of a survey, and the worker that seals beside it: one script for both.
import { question, shown } from "./answers.js";
import { freshBytes, fromHex, toHex } from "./bytes.js";
import { canSeal, contribution, headerDigest } from "./contribution.js";
import { countsOf, firstOf, publishedAt, sent } from "./drop.js";
import { forget, keep, keptOf } from "./kept.js";
import { numbersOf } from "./program.js";
import { COUNTED, countedIn, isFork, LATE, LEFT_OUT, logOf, MISSING, receiptOf, signersOf, verdictOn } from "./receipts.js";
import { checkedStudy } from "./seal.js";
import { keyLine, publicKeyOf } from "./signatures.js";
import { derived, unitNumbers } from "./streams.js";
import { isAdmitted, voucherOf } from "./vouchers.js";

const READING = "The page reads these files.";
const UNSAFE = "This address is not safe for answers. Open the page by https.";
const NEEDS = "This browser cannot seal your answers. Use a newer one.";

// From a record's cells to its sealed file: what the worker does, with a new seed for each file.
async function madeOf({ study, cells, voucher }) {
  const seed = freshBytes(32);
  const uniform = await unitNumbers(await derived(seed, "rounding"), study.program.lows.length);
  const file = await contribution(study, numbersOf(study.program, cells, uniform), seed, voucher);
  return { file, digest: await headerDigest(file) };
}

function serve() {
  self.onmessage = async ({ data }) => {
    try {
      self.postMessage(await madeOf(data));
    } catch (error) {
      self.postMessage({ error: error.message });
    }
  };
}

function inWorker(script, asked) {
  const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const worker = new Worker(address);
  return new Promise((done, failed) => {
    worker.onmessage = ({ data }) => (data.error ? failed(new Error(data.error)) : done(data));
    worker.onerror = () => failed(new Error(NEEDS));
    worker.postMessage(asked);
  }).finally(() => {
    worker.terminate();
    URL.revokeObjectURL(address);
  });
}

const at = (id) => document.getElementById(id);
const show = (...ids) => ids.forEach((id) => (at(id).hidden = false));
const hide = (...ids) => ids.forEach((id) => (at(id).hidden = true));

function say(text, isBad = false) {
  at("state").textContent = text;
  at("state").classList.toggle("bad", isBad);
}

function list(id, texts) {
  at(id).replaceChildren(...texts.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
}

function facts(id, pairs) {
  const parts = pairs.flatMap(([key, text]) => [["dt", key], ["dd", text]]);
  at(id).replaceChildren(...parts.map(([name, text]) => Object.assign(document.createElement(name), { textContent: text })));
}

// A time in the words of this device, with its zone.
const local = (time) => time.toLocaleString("en", { dateStyle: "long", timeStyle: "long" });

function linkTo(id, content, type) {
  URL.revokeObjectURL(at(id).href);
  at(id).href = URL.createObjectURL(new Blob([content], { type }));
}

function offer(id, content, name) {
  linkTo(id, content, "application/octet-stream");
  at(id).download = name;
}

class Page {
  constructor(survey, study, script) {
    Object.assign(this, { survey, study, script });
    this.session = toHex(study.session);
    this.questions = study.program.record.columns.map(question);
    this.address = survey.drop;
  }

  async start(fragment) {
    const { about } = this.survey;
    document.title = about.name;
    at("title").textContent = about.name;
    at("by").textContent = about.by;
    at("until").textContent = `Answer until ${local(this.study.end)}.`;
    list("learn", about.reads);
    list("always", about.always);
    facts("terms", about.terms);
    at("questions").replaceChildren(...this.questions.map(({ field }) => field));
    show("reads");
    this.listen();
    this.count();
    const all = await keptOf(this.session);
    // What is not sent yet comes first.
    this.kept = all.find(({ receipt }) => !receipt) ?? all.at(-1);
    if (fragment) await this.use(fragment);
    else if (this.kept) await this.resume();
    else if (Date.now() > this.study.end.getTime()) this.over();
    else this.askVoucher("This study asks you to take part. Give your voucher first.");
  }

  listen() {
    at("use").onclick = () => this.use(at("voucher").value);
    at("pick").onchange = async () => this.use(await at("pick").files[0].text());
    at("answers").onsubmit = (event) => {
      event.preventDefault();
      this.answer();
    };
    at("again").onclick = () => this.send();
    // The same files may be chosen again, with other content.
    at("logs").onclick = () => (at("logs").value = "");
    at("logs").onchange = () => this.judge([...at("logs").files]);
    at("forget").onclick = async () => {
      await forget(this.session, this.kept.contributor);
      hide("receipt", "after");
      say("This device has forgotten it. Close this page.");
      at("state").focus();
    };
  }

  // How many have answered. Only the server that this page came from is asked: it knows of the visit.
  async count() {
    if (new URL(this.address).origin !== location.origin) return;
    const { contributions, of, least } = (await countsOf(this.address)) ?? {};
    if (least === undefined) return;
    const isFew = contributions < least;
    const number = isFew ? `${shown(contributions)} of at least` : `${shown(contributions)} of at most`;
    const rest = isFew && Date.now() > this.study.end.getTime() ? " There is no result from so few." : "";
    at("count").textContent = `${number} ${shown(isFew ? least : of)} answers have arrived.${rest}`;
  }

  over() {
    say(`The time for answers ended on ${local(this.study.end)}.`);
    return this.after();
  }

  // After the end, what members published is looked for where this page came from: nobody else is asked.
  async after() {
    show("after");
    const lists = new Date(this.study.listsAt * 1000);
    if (new URL(this.address).origin !== location.origin) return;
    if (Date.now() < lists.getTime()) {
      at("fate").textContent = `Open this page again on this device after ${local(lists)}. It shows the result then.`;
      return;
    }
    const files = await publishedAt(this.address);
    if (files.length) await this.judge(files, true);
    else at("fate").textContent = "The members published nothing here yet.";
  }

  askVoucher(text) {
    show("entry");
    say(text);
  }

  async use(text) {
    // Of a link only what stands behind # counts.
    const own = text.includes("#") ? text.slice(text.indexOf("#") + 1) : text;
    try {
      const voucher = voucherOf(own);
      if (!(await isAdmitted(this.study, voucher))) {
        throw new Error("This voucher is for another study. Ask for yours where you got this one.");
      }
      this.voucher = voucher;
    } catch (error) {
      at("no-voucher").textContent = error.message;
      return this.askVoucher("This study needs a voucher.");
    }
    at("voucher").value = "";
    // What had the focus is hidden now.
    if (at("entry").contains(document.activeElement)) at("state").focus();
    hide("entry");
    this.contributor = keyLine(await publicKeyOf(this.voucher.secret));
    this.kept = (await keptOf(this.session)).find(({ contributor }) => contributor === this.contributor);
    if (this.kept) return this.resume();
    if (await this.isUsed()) return undefined;
    if (Date.now() > this.study.end.getTime()) return this.over();
    show("answers");
    return say("Your voucher is good for one answer. Answer below.");
  }

  // Whether the server that this page came from has an answer with this voucher, from another device: it is shown then.
  async isUsed() {
    if (new URL(this.address).origin !== location.origin) return false;
    say("The page asks whether your link was used before.");
    const first = await firstOf(this.study, this.address, this.voucher.secret, this.contributor);
    if (!first) return false;
    this.voucher = null;
    this.kept = { digest: fromHex(first.receipt.place.digest), contributor: this.contributor };
    const came = `An answer with this link came on ${local(first.receipt.time)}. Another one would be left out.`;
    await this.received(first.text, `${came} If it is not yours, tell who sent you the link.`);
    return true;
  }

  async answer() {
    if (this.busy) return;
    const cells = this.questions.map(({ cell }) => cell());
    const wrong = cells.findIndex(({ mistake }) => mistake);
    // The first one to be mended gets the focus, so that nobody has to look for it.
    const stop = (text, id) => {
      at("no-yes").textContent = text;
      at(id).focus();
    };
    if (wrong >= 0) return stop(cells[wrong].mistake, `answer-${wrong}`);
    if (!at("yes").checked) return stop("Read the terms, and tick the box to agree.", "yes");
    // Sent once, a voucher is used: it is asked before nothing at all is sent.
    if (!this.meant && cells.every(({ value }) => Number.isNaN(value))) {
      this.meant = true;
      return stop("You answered no question. Answer one, or press the button again to send none.", "send");
    }
    at("no-yes").textContent = "";
    this.busy = true;
    at("send").disabled = true;
    say("Sealing your answers.");
    try {
      const { voucher, study, contributor } = this;
      const made = await inWorker(this.script, { study, cells: cells.map(({ value }) => value), voucher });
      this.kept = { ...made, contributor };
    } catch (error) {
      this.busy = false;
      at("send").disabled = false;
      say(`Nothing was sent. ${error.message}`, true);
      return;
    }
    // The key has served.
    this.voucher.secret.fill(0);
    this.voucher = null;
    await keep(this.session, this.kept);
    hide("answers");
    at("questions").replaceChildren();
    this.showFile("Your answers are sealed in a file. Only the members together can open their sum.");
    this.busy = false;
    await this.send();
  }

  showFile(text) {
    at("sealed-text").textContent = text;
    offer("file", this.kept.file, `${this.survey.about.file}.contribution`);
    show("sealed");
  }

  async resume() {
    if (this.kept.receipt) return this.showReceipt(this.kept.receipt);
    this.showFile("You sealed these answers before. They have no receipt yet.");
    return this.send();
  }

  async send() {
    if (this.busy) return;
    this.busy = true;
    hide("again");
    say("Sending the sealed file.");
    const { file, digest, contributor } = this.kept;
    const answer = await sent(this.study, this.address, file, digest, contributor);
    this.busy = false;
    if (answer.receipt) {
      await this.received(answer.text);
    } else if (answer.first) {
      await this.received(answer.text, "Another answer with your voucher came first. That one counts, and this one does not.");
    } else if (answer.refused) {
      say(`It was not taken: ${answer.refused}. Keep the file, and ask who sent you the link.`, true);
    } else {
      show("again");
      say(`It is not sent yet: ${answer.later}. Download the file, then send again.`, true);
      at("again").focus();
    }
  }

  async received(text, why = "") {
    const { digest, contributor } = this.kept;
    this.kept = { digest, contributor, receipt: text, why };
    await keep(this.session, this.kept);
    hide("sealed");
    await this.showReceipt(text);
    this.count();
    at("state").focus();
  }

  async showReceipt(text) {
    const receipt = await receiptOf(this.study, text);
    say(this.kept.why || "Your answer has arrived. You may close this page.", Boolean(this.kept.why));
    const whose = this.kept.why ? "the first answer" : "your answer";
    at("receipt-text").textContent = `The server signed that it has ${whose}. Download this receipt: it proves what the server said.`;
    facts("receipt-facts", [["arrived", local(receipt.time)], ["place in its log", String(receipt.place.position)]]);
    facts("receipt-keys", [["file", receipt.place.digest], ["server", receipt.drop]]);
    offer("receipt-file", text, `${this.survey.about.file}.receipt`);
    show("receipt");
    await this.after();
  }

  async judge(files, isServed = false) {
    at("fate").textContent = READING;
    hide("result-page", "proof");
    at("signers").textContent = "";
    let text;
    try {
      text = await this.verdict(files, isServed);
    } catch (error) {
      text = error.message;
    }
    at("fate").textContent = text;
  }

  // The page of the result, once enough members signed it: the server may have changed any other one.
  async showResult(pages, logs) {
    for (const page of pages) {
      const signers = await signersOf(this.study, page, logs);
      if (!signers.length) continue;
      at("signers").textContent = `These members signed the page with the result: ${signers.sort().join(", ")}.`;
      linkTo("result-page", page, "text/html");
      show("result-page");
      return;
    }
    if (pages.length) at("signers").textContent = "Too few members signed this page with a result. Believe none of it.";
  }

  // Files that prove what a server did, to keep and to show to others.
  showProof(files) {
    const links = files.map((file) => {
      const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: file.name });
      link.textContent = file.name;
      return link;
    });
    at("proof-files").replaceChildren(...links.map((link) => {
      const item = document.createElement("li");
      item.append(link);
      return item;
    }));
    show("proof");
  }

  // What became of an answer. Of what a server gives, a file that nobody signed is as if it were not there.
  async verdict(files, isServed) {
    const [receipts, logs, pages] = [this.kept?.receipt ? [this.kept.receipt] : [], [], []];
    let counted = null;
    const bytesOf = async (file) => new Uint8Array(await file.arrayBuffer());
    const kinds = {
      ".receipt": async (file) => receipts.push(await file.text()),
      ".dropped": async (file) => logs.push(await logOf(this.study, await file.text())),
      ".sums": async (file) => (counted = await countedIn(this.study, await bytesOf(file))),
      ".page.html": async (file) => pages.push(await bytesOf(file)),
    };
    for (const file of files) {
      const kind = Object.keys(kinds).find((end) => file.name.endsWith(end));
      if (!kind) return `${file.name} is none of these files. Choose those that end in .sums, .dropped and .page.html.`;
      try {
        await kinds[kind](file);
      } catch (error) {
        if (!isServed) throw new Error(`${file.name}: ${error.message}`);
      }
    }
    await this.showResult(pages, logs);
    const [receipt, ...others] = await Promise.all(receipts.map((text) => receiptOf(this.study, text)));
    // Of others, where one does not believe in the server's one log.
    if (others.some((other) => isFork(receipt, other))) {
      return "The server lies: these receipts are of one place in its log, and of two answers. Give both to the coordinator.";
    }
    if (!receipt) return "There is no receipt on this device. Choose its file, too.";
    // Logs say what members read, and a result alone what they counted: without one, nothing is known to be left out.
    if (!counted) return "The result is missing. Choose a file that ends in .sums, too.";
    const { verdict, why } = verdictOn(this.study, receipt, counted, logs, this.study.listsAt);
    if (verdict === MISSING) this.showProof(files.filter(({ name }) => !name.endsWith(".receipt")));
    const because = why ? `The reason: ${why}.` : "The logs do not say why.";
    return {
      [COUNTED]: "Your answer is counted in this result.",
      [LEFT_OUT]: `Members read your answer, and left it out. ${because}`,
      [LATE]: "Your answer came too late.",
      [MISSING]: `The server left your answer out: it acknowledged it, and no member's log has it. Its key: ${receipt.drop}.`,
    }[verdict] ?? "Too few files are here to know. Choose those of more members.";
  }
}

async function open(script) {
  const fragment = location.hash.slice(1);
  // A voucher is as good as its owner: it must not stay in the address, or in what is remembered of it.
  if (fragment) history.replaceState(null, "", location.pathname + location.search);
  try {
    // A browser that lacks keys of these kinds would take every signature for a wrong one.
    if (!(await canSeal())) throw new Error(globalThis.isSecureContext ? NEEDS : UNSAFE);
    const survey = JSON.parse(at("survey").textContent);
    const study = await checkedStudy(survey);
    await new Page(survey, study, script).start(fragment);
  } catch (error) {
    hide("reads", "entry", "answers");
    say(error instanceof SyntaxError || error instanceof TypeError ? "This page is not whole. Open it again." : error.message, true);
  }
}

if (typeof document === "undefined") serve();
else open(document.currentScript.textContent);
