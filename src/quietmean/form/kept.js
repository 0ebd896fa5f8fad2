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

const keyOf = (session, contributor) => `${session} ${contributor}`;

// All of a study, by its session: {contributor, file, digest} or {contributor, digest, receipt, why}. A device may have several
// owners of vouchers.
export async function keptOf(session) {
  const all = IDBKeyRange.bound(keyOf(session, ""), keyOf(session, "\uffff"));
  return (await transaction("readonly", (store) => store.getAll(all))) ?? [];
}

export const keep = (session, value) =>
  transaction("readwrite", (store) => store.put(value, keyOf(session, value.contributor)));
export const forget = (session, contributor) =>
  transaction("readwrite", (store) => store.delete(keyOf(session, contributor)));
