// Vouchers: who has one contributes once, whoever it is. Here it is {secret, admission}: the private key (32 bytes), and what a
// contribution shows of the registrar's word (72 bytes: the largest weight, 0 for that of the study, and the signature).
import { fromBase64, isSame, joined, utf8 } from "./bytes.js";
import { ED25519_KIND, pkcs8 } from "./hpke.js";
import { isSigned, keyLine, publicKeyOf } from "./signatures.js";

const SECRET_BYTES = 32;
const ADMISSION_BYTES = 72;
const NO_VOUCHER = "This is no whole voucher. Copy the link again, or choose the voucher's file.";
const FILE = /^quietmean-committee-voucher-1\.(\S+)\.(\S+)\s+-----BEGIN PRIVATE KEY-----([\sA-Za-z0-9+/=]+)-----END/;

// From what stands behind # in a link, base64 of key and admission, or from the content of a voucher's file.
export function voucherOf(text) {
  try {
    const file = FILE.exec(text.trim());
    const bytes = file ? ofFile(file) : fromBase64(text.trim());
    if (bytes.length !== SECRET_BYTES + ADMISSION_BYTES) throw new Error(NO_VOUCHER);
    return { secret: bytes.slice(0, SECRET_BYTES), admission: bytes.slice(SECRET_BYTES) };
  } catch {
    throw new Error(NO_VOUCHER);
  }
}

function ofFile([, body, signature, pem]) {
  const key = fromBase64(pem.replace(/\s/g, ""));
  const secret = key.slice(-SECRET_BYTES);
  if (!isSame(key, pkcs8(ED25519_KIND, secret))) throw new Error(NO_VOUCHER);
  const weight = new DataView(new ArrayBuffer(8));
  weight.setFloat64(0, JSON.parse(new TextDecoder().decode(fromBase64(body))).weight ?? 0, true);
  return joined(secret, new Uint8Array(weight.buffer), fromBase64(signature));
}

// Whether the registrar certified this voucher for this study, with the weight that the study's program has.
export async function isAdmitted(study, voucher) {
  const stated = new DataView(voucher.admission.buffer, voucher.admission.byteOffset).getFloat64(0, true);
  if (stated !== 0 && !(study.program.weight <= stated)) return false;
  const key = keyLine(await publicKeyOf(voucher.secret));
  const weight = stated === 0 ? "null" : asPython(stated);
  const content = utf8(`{"invitation":"${study.invitation}","key":"${key}","weight":${weight}}`);
  return isSigned(study.registrar, "committee voucher", content, voucher.admission.subarray(8));
}

// A number above 0 as Python writes it.
function asPython(number) {
  const [digits, exponent] = number.toExponential().split("e");
  if (exponent < -4 || exponent >= 16) return `${digits}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
  const plain = String(number);
  return Number.isInteger(number) ? `${plain}.0` : plain;
}
