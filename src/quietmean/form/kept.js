// What this device keeps of a study: the sealed file until its receipt is there, then the receipt. Never a voucher's key.
// A browser may throw all of it away. Where it keeps nothing at all, the page works without.

const STORE = "kept";

function opened() {
  return new Promise((done, failed) => {
    const request = indexedDB.open("quietmean", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
}

async function transaction(mode, ask) {
  try {
    const database = await opened();
    return await new Promise((done, failed) => {
      const made = database.transaction(STORE, mode);
      const request = ask(made.objectStore(STORE));
      // Of what is written it is certain only when all of the transaction is over.
      made.oncomplete = () => done(request.result);
      made.onabort = made.onerror = () => failed(made.error);
    }).finally(() => database.close());
  } catch {
    return undefined;
  }
}

// By the session of its study: {contributor, file, digest, receipt}.
export const keptOf = (session) => transaction("readonly", (store) => store.get(session));
export const keep = (session, value) => transaction("readwrite", (store) => store.put(value, session));
export const forget = (session) => transaction("readwrite", (store) => store.delete(session));
