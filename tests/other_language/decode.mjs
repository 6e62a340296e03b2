// A client of STC, and what reads and writes replies, in another language: from docs/protocol.md
// alone. Reads [[name, argument], ...] on stdin, writes a list of {"value"} or {"error"}.
// Bytes are base64; vectors are bytes of float32.

const PROTOCOL = 7;
const WITH_UPDATE = 0, NEEDS_MODEL = 1, DIVERGED = 2;

const bytes = (text) => Buffer.from(text, "base64");
const text = (buffer) => Buffer.from(buffer).toString("base64");
const f32 = Math.fround; // sums, products and quotients of float32, rounded once more, are exact

function vector(buffer) {
  if (buffer.length % 4) throw new Error("no whole number of float32");
  return Float32Array.from({ length: buffer.length / 4 }, (_, i) => buffer.readFloatLE(4 * i));
}

function floats(values) {
  const buffer = Buffer.alloc(4 * values.length);
  values.forEach((value, i) => buffer.writeFloatLE(value, 4 * i));
  return buffer;
}

function crc32(buffer) {
  let crc = 0xffffffff;
  for (const byte of buffer) {
    crc ^= byte;
    for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

const digest = (codec) => crc32(Buffer.from(codec, "ascii"));

function uint32s(...numbers) {
  const buffer = Buffer.alloc(4 * numbers.length);
  numbers.forEach((number, i) => buffer.writeUInt32LE(number, 4 * i));
  return buffer;
}

class Reader {
  constructor(buffer) { this.buffer = buffer; this.at = 0; }
  take(length) {
    if (this.at + length > this.buffer.length) throw new Error("the bytes end early");
    this.at += length;
    return this.buffer.subarray(this.at - length, this.at);
  }
  byte() { return this.take(1)[0]; }
  uint32() { return this.take(4).readUInt32LE(); }
  float() { return this.take(4).readFloatLE(); }
  rest() { return this.take(this.buffer.length - this.at); }
  end() { if (this.at < this.buffer.length) throw new Error("bytes after the last one needed"); }
}

// Bits as a text of "0" and "1".
const bitsOf = (value, width) => (width ? value.toString(2).padStart(width, "0") : "");
const packed = (bits) =>
  Buffer.from((bits.match(/.{1,8}/g) ?? []).map((byte) => parseInt(byte.padEnd(8, "0"), 2)));

class BitReader {
  constructor(buffer) {
    this.bits = [...buffer].map((byte) => bitsOf(byte, 8)).join("");
    this.at = 0;
  }
  number(width) {
    this.at += width;
    if (this.at > this.bits.length) throw new Error("the bits end early");
    return width ? parseInt(this.bits.slice(this.at - width, this.at), 2) : 0;
  }
  ones() { // and the zero after them
    const start = this.at, zero = this.bits.indexOf("0", start);
    if (zero < 0) throw new Error("the bits end early");
    this.at = zero + 1;
    return zero - start;
  }
  end() {
    const rest = this.bits.slice(this.at);
    if (rest.length > 7 || rest.includes("1")) throw new Error("bits after the last one needed");
  }
}

// Golomb's code of rising positions.
function readPositions(reader, k, n, b) {
  const unary = Array.from({ length: k }, () => reader.ones());
  let last = -1;
  return unary.map((ones) => {
    last += ones * 2 ** b + reader.number(b) + 1;
    if (last >= n) throw new Error("a position is n or above");
    return last;
  });
}

function positionsCode(positions, b) {
  const gaps = positions.map((position, i) => position - (i ? positions[i - 1] : -1) - 1);
  const unary = gaps.map((gap) => "1".repeat(Math.floor(gap / 2 ** b)) + "0");
  return unary.join("") + gaps.map((gap) => bitsOf(gap % 2 ** b, b)).join("");
}

function golombParameter(k, n) {
  if (k === 0) return 0;
  const phi = (1 + Math.sqrt(5)) / 2;
  return Math.max(0, 1 + Math.floor(Math.log2(Math.log(phi - 1) / Math.log(1 - k / n))));
}

const inRange = (update) => update.every((value) => Math.abs(value) <= 2 ** 64);

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

// The first position of each block, and n.
function starts(sizes) {
  return sizes.reduce((found, size) => [...found, found[found.length - 1] + size], [0]);
}

const kept = (size, p) => Math.max(Math.ceil(p * size - 1e-6), 1);

function decodeTernary(buffer, { sizes, p }) {
  const reader = new Reader(buffer), n = sum(sizes), most = sum(sizes.map((m) => kept(m, p)));
  const b = reader.byte(), k = reader.uint32();
  if (b > 31 || k > n || k > most) throw new Error("b or k is too large");
  const magnitudes = sizes.map(() => reader.float());
  const bits = new BitReader(reader.rest()), positions = readPositions(bits, k, n, b);
  const update = new Float32Array(n), ends = starts(sizes).slice(1), used = sizes.map(() => false);
  let block = 0;
  for (const position of positions) {
    while (position >= ends[block]) block++;
    used[block] = true;
    update[position] = bits.number(1) ? -magnitudes[block] : magnitudes[block];
  }
  bits.end();
  magnitudes.forEach((mu, i) => {
    const valid = used[i] ? Number.isFinite(mu) && mu > 0 : Object.is(mu, 0);
    if (!valid) throw new Error("a magnitude is not valid");
  });
  return update;
}

// Of each block the k largest in magnitude, never zeros; ties go to those that come first.
function encodeTernary(values, { sizes, p }) {
  const edges = starts(sizes), magnitudes = [], positions = [];
  sizes.forEach((size, block) => {
    const all = Array.from({ length: size }, (_, i) => edges[block] + i);
    const order = all.filter((i) => values[i] !== 0);
    order.sort((i, j) => Math.abs(values[j]) - Math.abs(values[i]) || i - j);
    const chosen = order.slice(0, kept(size, p)).sort((i, j) => i - j);
    const total = sum(chosen.map((i) => Math.abs(values[i])));
    magnitudes.push(chosen.length ? f32(total / chosen.length) : 0);
    positions.push(...chosen);
  });
  const b = golombParameter(positions.length, values.length);
  const signs = positions.map((i) => (values[i] < 0 ? "1" : "0")).join("");
  const head = [Buffer.of(b), uint32s(positions.length), floats(magnitudes)];
  return Buffer.concat([...head, packed(positionsCode(positions, b) + signs)]);
}

function decodeQuantized(buffer, { sizes, bits, bucket }) {
  const reader = new Reader(buffer), n = sum(sizes), s = 2 ** (bits - 1) - 1;
  const norms = Array.from({ length: Math.ceil(n / bucket) }, () => reader.float());
  if (norms.some((norm) => norm < 0 || Object.is(norm, -0))) throw new Error("a negative norm");
  const b = reader.byte(), z = reader.uint32();
  if ((b > 31 && b !== 255) || z > n || (b === 255 && z !== n)) throw new Error("b or z is wrong");
  const entries = new BitReader(reader.take(Math.ceil((z * bits) / 8)));
  const levels = Array.from({ length: z }, () => entries.number(bits) - s);
  if (levels.some((level) => level > s)) throw new Error("l is beyond s");
  const code = new BitReader(reader.rest());
  const positions = b === 255 ? [...levels.keys()] : readPositions(code, z, n, b);
  [entries, code].forEach((each) => each.end());
  if (b === 255 && code.bits) throw new Error("bytes after the last one needed");
  const update = new Float32Array(n);
  positions.forEach((at, i) => {
    update[at] = f32(levels[i] / s) * norms[Math.floor(at / bucket)];
  });
  return update;
}

function encodeQuantized(levels, norms, { bits }) {
  const s = 2 ** (bits - 1) - 1, n = levels.length;
  const positions = [...levels.keys()].filter((i) => levels[i] !== 0), z = positions.length;
  let b = golombParameter(z, n);
  const positionBits = b + 1 / (1 - (1 - z / n) ** 2 ** b);
  if (z && z * (positionBits + bits) >= n * bits) b = 255;
  const sent = b === 255 ? levels : positions.map((i) => levels[i]);
  const entries = packed(sent.map((level) => bitsOf(level + s, bits)).join(""));
  const code = b === 255 ? Buffer.alloc(0) : packed(positionsCode(positions, b));
  return Buffer.concat([floats(norms), Buffer.of(b), uint32s(sent.length), entries, code]);
}

function head(buffer, codec) {
  const reader = new Reader(buffer);
  if (reader.byte() !== PROTOCOL) throw new Error("another protocol");
  if (reader.uint32() !== digest(codec)) throw new Error("another codec");
  const settled = reader.uint32(), refused = reader.byte();
  if (refused > 1) throw new Error("the flag of a refusal is neither 0 nor 1");
  const [round, fingerprint] = [reader.uint32(), reader.uint32()];
  reader.end();
  return { settled, refused, round, fingerprint };
}

function reply(codec, round, status, update = Buffer.alloc(0)) {
  return Buffer.concat([Buffer.of(PROTOCOL, status), uint32s(digest(codec), round), update]);
}

// The state of a client of STC.
class Client {
  constructor({ codec, up, down }) { Object.assign(this, { codec, up, down }); }

  // Handle a training message: return the model to train, and the reply's payload.
  handle({ round, head: bytesOfHead, model, updates, trained }) {
    if (round <= this.pending) throw new Error("a message of an earlier round");
    const to = head(bytes(bytesOfHead), this.codec), values = this.receive(to, model, updates);
    if (!values) return { model: null, payload: text(reply(this.codec, round, NEEDS_MODEL)) };
    const residual = this.residualAfter(to, values.length);
    const change = vector(bytes(trained)).map((value, i) => value - values[i]);
    const sent = change.map((value, i) => value + residual[i]);
    const encoded = sent.every(Number.isFinite) && encodeTernary(sent, this.up);
    const update = encoded && decodeTernary(encoded, this.up);
    let payload = reply(this.codec, round, DIVERGED);
    if (update && inRange(update)) {
      payload = reply(this.codec, round, WITH_UPDATE, encoded);
      const made = { update, residual: sent, pending: round };
      Object.assign(this, { model: values, version: to.round, ...made });
    }
    return { model: text(floats(values)), payload: text(payload) };
  }

  // The model that a message leads to; null if the client needs it.
  receive(to, model, updates) {
    if (model != null) return vector(bytes(model));
    const values = this.model?.slice(), reader = new Reader(bytes(updates ?? ""));
    let last = this.version, before = -1;
    while (reader.at < reader.buffer.length) {
      const number = reader.uint32(), update = reader.take(reader.uint32());
      if (number <= before) throw new Error("the updates do not rise");
      before = number;
      if (!values || number <= last) continue;
      decodeTernary(update, this.down).forEach((value, i) => { values[i] += value; });
      last = number;
    }
    const same = values && last === to.round && crc32(floats(values)) === to.fingerprint;
    return same ? values : null;
  }

  residualAfter({ settled, refused }, n) {
    if (!this.residual || settled > this.pending) return new Float32Array(n);
    if (settled < this.pending) return this.residual;
    if (refused) return new Float32Array(n);
    return this.residual.map((value, i) => value - this.update[i]);
  }
}

const calls = {
  // What clients reply to these messages, one after the other; each client by its number.
  clients({ codec, up, down, messages }) {
    const clients = {};
    return messages.map((message) => {
      if (message.restarted) delete clients[message.client];
      return (clients[message.client] ??= new Client({ codec, up, down })).handle(message);
    });
  },

  // What the server reads in a reply's payload.
  readReply({ payload, codec, round, form }) {
    const buffer = bytes(payload), reader = new Reader(buffer);
    if (reader.byte() !== PROTOCOL) throw new Error("another protocol");
    const status = reader.byte();
    if (status > DIVERGED) throw new Error("an unknown status");
    if (reader.uint32() !== digest(codec)) throw new Error("another codec");
    if (reader.uint32() !== round) throw new Error("another round");
    if (status !== WITH_UPDATE) return reader.end(), { status };
    const decode = form.bits ? decodeQuantized : decodeTernary;
    const update = decode(buffer.subarray(reader.at), form);
    if (!inRange(update)) throw new Error("a value is too large");
    return { status, update: text(floats(update)) };
  },

  quantizedReply({ codec, round, levels, norms, form }) {
    const update = encodeQuantized(levels, vector(bytes(norms)), form);
    return text(reply(codec, round, WITH_UPDATE, update));
  },
};

let input = "";
for await (const chunk of process.stdin) input += chunk;
const answers = JSON.parse(input).map(([name, argument]) => {
  try {
    return { value: calls[name](argument) };
  } catch (error) {
    return { error: error.message };
  }
});
process.stdout.write(JSON.stringify(answers));
