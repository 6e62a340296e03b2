// A client's end of sparse ternary compression: protocol 7 of docs/protocol.md.
// Vectors are Float32Arrays. Assigning to one rounds, and the sum, product or quotient of two
// float32, computed in double precision and rounded once, is the float32 result.

import { Reader, bytesOf, concat } from "./bytes.mjs";

const PROTOCOL = 7;
const WITH_UPDATE = 0, NEEDS_MODEL = 1, DIVERGED = 2;
const NOTHING = new Uint8Array(0);

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let i = 0; i < 8; i++) byte = (byte >>> 1) ^ (byte & 1 ? 0xedb88320 : 0);
  return byte;
});

export function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ TABLE[(crc ^ byte) & 255];
  return (crc ^ 0xffffffff) >>> 0;
}

const digest = (codec) => crc32(new TextEncoder().encode(codec));

export class BitReader {
  constructor(bytes) { Object.assign(this, { bytes, at: 0 }); }
  bit() {
    const byte = this.bytes[this.at >> 3];
    if (byte === undefined) throw new Error("the bits end early");
    return (byte >> (7 - (this.at++ & 7))) & 1;
  }
  number(width) {
    let value = 0;
    for (let i = 0; i < width; i++) value = 2 * value + this.bit();
    return value;
  }
  ones() { // and the zero after them
    let count = 0;
    while (this.bit()) count++;
    return count;
  }
  end() {
    if (this.bytes.length * 8 - this.at > 7) throw new Error("bytes after the last one needed");
    while (this.at & 7) if (this.bit()) throw new Error("bits after the last one needed");
  }
}

export class BitWriter {
  constructor() { Object.assign(this, { bytes: [], free: 0 }); }
  bit(value) {
    if (!this.free) { this.bytes.push(0); this.free = 8; }
    this.bytes[this.bytes.length - 1] |= value << --this.free;
  }
  number(value, width) {
    while (width--) this.bit(Math.floor(value / 2 ** width) % 2);
  }
  ones(count) { // and a zero after them
    while (count--) this.bit(1);
    this.bit(0);
  }
}

// Golomb's code of rising positions below n, with the parameter 2^b.
export function readPositions(bits, k, n, b) {
  const unary = Array.from({ length: k }, () => bits.ones());
  let last = -1;
  return unary.map((ones) => {
    last += ones * 2 ** b + bits.number(b) + 1;
    if (last >= n) throw new Error("a position is n or above");
    return last;
  });
}

export function writePositions(bits, positions, b) {
  const gaps = positions.map((position, i) => position - (i ? positions[i - 1] : -1) - 1);
  for (const gap of gaps) bits.ones(Math.floor(gap / 2 ** b));
  for (const gap of gaps) bits.number(gap % 2 ** b, b);
}

export function golombParameter(k, n) {
  if (k === 0) return 0;
  const phi = (1 + Math.sqrt(5)) / 2;
  return Math.max(0, 1 + Math.floor(Math.log2(Math.log(phi - 1) / Math.log1p(-k / n))));
}

export const inRange = (update) => update.every((value) => Math.abs(value) <= 2 ** 64);
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const kept = (size, p) => Math.max(Math.ceil(p * size - 1e-6), 1);

// A form is the sizes of the vector's blocks, and p, the share of the entries that are sent.
export function decodeTernary(bytes, { sizes, p }) {
  const reader = new Reader(bytes), n = sum(sizes), most = sum(sizes.map((size) => kept(size, p)));
  const b = reader.byte(), k = reader.uint32();
  if (b > 31 || k > n || k > most) throw new Error("b or k is too large");
  const magnitudes = sizes.map(() => reader.float());
  const bits = new BitReader(reader.rest()), positions = readPositions(bits, k, n, b);
  const update = new Float32Array(n), used = sizes.map(() => false);
  let block = 0, end = sizes[0];
  for (const position of positions) {
    while (position >= end) end += sizes[++block];
    used[block] = true;
    update[position] = bits.bit() ? -magnitudes[block] : magnitudes[block];
  }
  bits.end();
  magnitudes.forEach((mu, i) => {
    const valid = used[i] ? Number.isFinite(mu) && mu > 0 : Object.is(mu, 0);
    if (!valid) throw new Error("a magnitude is not valid");
  });
  return update;
}

// Of each block the k largest in magnitude, never zeros; ties go to those that come first.
export function encodeTernary(vector, { sizes, p }) {
  const positions = [];
  let start = 0;
  const magnitudes = sizes.map((size) => {
    const all = vector.subarray(start, start + size).map(Math.abs), risen = all.slice().sort();
    const k = Math.min(kept(size, p), risen.length - risen.lastIndexOf(0) - 1);
    const least = risen[size - k];
    let ties = k - risen.filter((value) => value > least).length, total = 0;
    if (k) all.forEach((value, i) => {
      if (value < least || (value === least && ties-- <= 0)) return;
      positions.push(start + i);
      total += value;
    });
    start += size;
    return k ? total / k : 0;
  });
  const bits = new BitWriter(), b = golombParameter(positions.length, vector.length);
  writePositions(bits, positions, b);
  for (const position of positions) bits.bit(vector[position] < 0 ? 1 : 0);
  const k = bytesOf(Uint32Array.of(positions.length));
  return concat([b], k, bytesOf(Float32Array.from(magnitudes)), bits.bytes);
}

// What a client keeps of a run, and what it makes of the messages.
export class StcClient {
  constructor(codec) {
    const { uplink, downlink, feedback, "warmup-rounds": warmup } = JSON.parse(codec);
    const ternary = [uplink, downlink].every(({ name }) => name === "ternary");
    if (!ternary || feedback.name !== "residual" || feedback.decay || warmup) {
      throw new Error(`this client knows sparse ternary compression alone, not ${codec}`);
    }
    Object.assign(this, { codec, uplink, downlink, pending: 0 });
  }

  form({ scope, sparsity }) {
    return { sizes: scope === "model" ? [sum(this.sizes)] : this.sizes, p: sparsity };
  }

  // Return the model of a message, which has its vector and the sizes of its arrays, or the updates
  // that this client missed; undefined if it needs the vector.
  receive({ round, head, model, sizes, updates = NOTHING }) {
    if (round <= this.pending) throw new Error(`round ${round} comes after ${this.pending}`);
    const to = this.read(head), reader = new Reader(updates);
    if (model) this.sizes = sizes;
    let values = model ?? this.model?.slice(), last = model ? to.version : this.version;
    let before = -1;
    while (!reader.ended) {
      const number = reader.uint32(), update = reader.take(reader.uint32());
      if (number <= before) throw new Error("the updates do not rise");
      before = number;
      if (!values || number <= last) continue;
      decodeTernary(update, this.form(this.downlink)).forEach((value, i) => { values[i] += value; });
      last = number;
    }
    const reached = values && last === to.version && crc32(bytesOf(values)) === to.fingerprint;
    this.received = model || reached ? { ...to, round, values } : { round };
    return this.received.values;
  }

  // Return the payload of the reply to the message received last, given the trained vector.
  reply(trained) {
    const { round, values, version, settled, refused } = this.received;
    if (!values) return this.payload(round, NEEDS_MODEL);
    const residual = this.residual(settled, refused) ?? new Float32Array(values.length);
    const sent = trained.map((value, i) => value - values[i]).map((x, i) => x + residual[i]);
    if (!sent.every(Number.isFinite)) return this.payload(round, DIVERGED);
    const form = this.form(this.uplink), encoded = encodeTernary(sent, form);
    const update = decodeTernary(encoded, form);
    if (!inRange(update)) return this.payload(round, DIVERGED);
    Object.assign(this, { model: values, version, unsent: sent, update, pending: round });
    return this.payload(round, WITH_UPDATE, encoded);
  }

  payload(round, status, update = NOTHING) {
    const numbers = Uint32Array.of(digest(this.codec), round);
    return concat([PROTOCOL, status], bytesOf(numbers), update);
  }

  // Return what the updates so far have left out; undefined if there is nothing.
  residual(settled, refused) {
    if (settled > this.pending || (settled === this.pending && refused)) return undefined;
    if (settled < this.pending) return this.unsent;
    return this.unsent?.map((value, i) => value - this.update[i]);
  }

  read(head) {
    const reader = new Reader(head);
    if (reader.byte() !== PROTOCOL) throw new Error("another version of the protocol");
    if (reader.uint32() !== digest(this.codec)) {
      throw new Error(`the server's codec is not ${this.codec}: give flwr run all strategy-args`);
    }
    const settled = reader.uint32(), refused = reader.byte();
    if (refused > 1) throw new Error("the flag of a refusal is neither 0 nor 1");
    const version = reader.uint32(), fingerprint = reader.uint32();
    reader.end();
    return { settled, refused, version, fingerprint };
  }
}
