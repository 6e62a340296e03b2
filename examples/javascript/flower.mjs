// A device of a Flower SuperLink, in Node.js or a browser: docs/other-languages.md.
// Integers of 64 bits are BigInts. A content is an object of records by name; a record is an
// object of entries by name: numbers, BigInts, texts, bytes, or arrays {dtype, shape, stype, data}.

import { Reader, concat, sha256 } from "./bytes.mjs";

const encoder = new TextEncoder(), decoder = new TextDecoder(), NOTHING = new Uint8Array(0);
const sleep = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
const base64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

// ---- Protocol buffers.

function varint(value) {
  const bytes = [];
  for (value = BigInt.asUintN(64, BigInt(value)); value > 127n; value >>= 7n) {
    bytes.push(Number(value & 127n) | 128);
  }
  return [...bytes, Number(value)];
}

// A BigInt is an integer, a number a double; texts, bytes and other messages have a length.
function field(number, value) {
  if (typeof value === "bigint") return concat(varint(8 * number), varint(value));
  if (typeof value === "number") {
    const data = new DataView(new ArrayBuffer(8));
    data.setFloat64(0, value, true);
    return concat(varint(8 * number + 1), new Uint8Array(data.buffer));
  }
  const data = typeof value === "string" ? encoder.encode(value) : value;
  return concat(varint(8 * number + 2), varint(data.length), data);
}

const zigzag = (value) => (value << 1n) ^ (value >> 63n);

// The values of a message's fields, each a list by the field's number.
function parse(data) {
  const fields = {}, reader = new Reader(data);
  while (!reader.ended) {
    const tag = Number(reader.varint()), list = (fields[tag >> 3] ??= []);
    if ((tag & 7) === 0) list.push(reader.varint());
    else if ((tag & 7) === 1) list.push(reader.double());
    else if ((tag & 7) === 2) list.push(reader.take(Number(reader.varint())));
    else throw new Error(`an unknown wire type ${tag & 7}`);
  }
  return fields;
}

const bytesIn = (fields, number) => fields[number]?.[0] ?? NOTHING;
const textIn = (fields, number) => decoder.decode(bytesIn(fields, number));
const itemsIn = (data) => (parse(data)[1] ?? []).map(parse);
const entriesOf = (items, read) =>
  Object.fromEntries(items.map((item) => [textIn(item, 1), read(bytesIn(item, 2))]));

// ---- Records.

const VALUES = {
  double: (value) => value, sint64: (value) => Number((value >> 1n) ^ -(value & 1n)),
  uint64: (value) => value, bool: (value) => value !== 0n,
  string: (value) => decoder.decode(value), bytes: (value) => value,
};
const OF_RECORDS = { 1: "double", 2: "sint64", 3: "uint64", 4: "bool", 5: "string", 6: "bytes" };
const OF_SCALARS = { 1: "double", 6: "uint64", 8: "sint64", 13: "bool", 14: "string", 15: "bytes" };

// The value that a message holds; a list, which this client does not need, stays bytes.
const readValue = (kinds) => (data) => {
  const [[kind, [value]]] = Object.entries(parse(data));
  return (VALUES[kinds[kind]] ?? VALUES.bytes)(value);
};

function writeValue(value) {
  if (typeof value === "bigint") return field(2, zigzag(value));
  return field(typeof value === "number" ? 1 : typeof value === "string" ? 5 : 6, value);
}

function readArray(data) {
  const fields = parse(data), sizes = new Reader(bytesIn(fields, 2)), shape = [];
  while (!sizes.ended) shape.push(Number(sizes.varint()));
  return { dtype: textIn(fields, 1), shape, stype: textIn(fields, 3), data: bytesIn(fields, 4) };
}

const writeArray = ({ dtype, shape, stype, data }) =>
  concat(field(1, dtype), field(2, concat(...shape.map(varint))), field(3, stype), field(4, data));

export const readContent = (data) => Object.fromEntries(itemsIn(data).map((item) => {
  const read = item[2] ? readArray : readValue(OF_RECORDS);
  return [textIn(item, 1), entriesOf(itemsIn((item[2] ?? item[3] ?? item[4])[0]), read)];
}));

// The record "metrics" is one of metrics; those with arrays are of arrays, all others of settings.
export const writeContent = (content) =>
  concat(...Object.entries(content).map(([name, record]) => {
    const ofArrays = Object.values(record).some(({ dtype }) => dtype);
    const write = ofArrays ? writeArray : writeValue;
    const items = Object.entries(record).map(([key, value]) =>
      field(1, concat(field(1, key), field(2, write(value)))));
    const kind = ofArrays ? 2 : name === "metrics" ? 3 : 4;
    return field(1, concat(field(1, name), field(kind, concat(...items))));
  }));

// ---- Objects, in which messages are stored, by the SHA-256 of their bytes.

async function makeObject(type, body, children = []) {
  const head = `${type} ${children.map(({ id }) => id).join(",")} ${body.length}\0`;
  const data = concat(encoder.encode(head), body);
  return { id: await sha256(data), data, children };
}

const idsIn = (tree) => [...(tree[2] ?? []).flatMap((child) => idsIn(parse(child))), textIn(tree, 1)];
const treeOf = ({ id, children }) =>
  concat(field(1, id), ...children.map((child) => field(2, treeOf(child))));
const belowFirst = (object) => [...object.children.flatMap(belowFirst), object];

// ---- Keys: ECDSA on the curve P-384.

const CURVE = { name: "ECDSA", namedCurve: "P-384" };

// A pair whose private half cannot be read.
export const makeKeys = () => crypto.subtle.generateKey(CURVE, false, ["sign", "verify"]);

// The pair of a private key, as `ssh-keygen -m PKCS8` writes it.
export async function keysOf(pem) {
  const data = Uint8Array.from(atob(pem.replace(/-----.*?-----|\s/g, "")), (c) => c.charCodeAt(0));
  const privateKey = await crypto.subtle.importKey("pkcs8", data, CURVE, true, ["sign"]);
  const { d, key_ops, ...half } = await crypto.subtle.exportKey("jwk", privateKey);
  const publicKey = await crypto.subtle.importKey("jwk", half, CURVE, true, ["verify"]);
  return { privateKey, publicKey };
}

// The line of a public key for the file that `flwr supernode register` reads.
export async function publicLine({ publicKey }) {
  const type = "ecdsa-sha2-nistp384", point = await crypto.subtle.exportKey("raw", publicKey);
  const parts = [encoder.encode(type), encoder.encode("nistp384"), new Uint8Array(point)];
  return `${type} ${base64(concat(...parts.flatMap((part) => [[0, 0, 0, part.length], part])))}`;
}

export async function publicPem({ publicKey }) {
  const data = base64(new Uint8Array(await crypto.subtle.exportKey("spki", publicKey)));
  const lines = data.match(/.{1,64}/g).join("\n");
  return `-----BEGIN PUBLIC KEY-----\n${lines}\n-----END PUBLIC KEY-----\n`;
}

// A signature of a text as DER; WebCrypto returns its two numbers.
export async function sign({ privateKey }, text) {
  const how = { name: "ECDSA", hash: "SHA-256" };
  const both = new Uint8Array(await crypto.subtle.sign(how, privateKey, encoder.encode(text)));
  const numbers = [both.subarray(0, 48), both.subarray(48)].map((number) => {
    const digits = number.subarray(number.findIndex((byte) => byte !== 0));
    const positive = digits[0] > 127 ? concat([0], digits) : digits;
    return concat([2, positive.length], positive);
  });
  const body = concat(...numbers);
  return concat([48, body.length], body);
}

// ---- The device.

export class Device {
  // The SuperLink's address, "https://...", a pair of keys, and what shows a line to the user.
  constructor(address, keys, tell) { Object.assign(this, { address, keys, tell, stopped: false }); }

  // Take part until `stopped`, and reply to messages with what `handle(type, content, run)` returns.
  async run(handle) {
    this.publicKey = await publicPem(this.keys);
    await this.repeat(async () => {
      const answer = await this.call("activate-node", field(1, this.publicKey), field(2, 30));
      this.id = answer[1][0];
      this.node = field(1, field(1, this.id));
      return true;
    });
    if (!this.stopped) this.tell(`connected as node ${this.id}`);
    const beat = () => this.call("send-node-heartbeat", this.node, field(2, 30));
    const beats = setInterval(() => beat().catch((error) => this.tell(error.message)), 20000);
    let last = -Infinity;
    await this.repeat(async () => {
      const message = await this.receive();
      if (message) {
        await this.answer(message, handle);
        last = Date.now();
      } else await sleep(Math.min(3, Math.max(0.3, (Date.now() - last) / 10000)));
    });
    clearInterval(beats);
    const goodbye = () => this.call("deactivate-node", field(1, this.id));
    if (this.id) await goodbye().catch((error) => this.tell(error.message));
  }

  // Repeat a step until it returns true or the device is stopped, after 3 s if it has failed.
  async repeat(step) {
    let ended = false;
    while (!ended && !this.stopped) {
      ended = await step().catch((error) => this.tell(error.message) ?? sleep(3));
    }
  }

  // Return the answer's fields. A request without an answer, as on a connection that was closed
  // meanwhile, or with HTTP 5xx is sent again: a message is given once, and the run waits for it.
  async call(...request) {
    for (let left = 4; ; left -= 1) {
      try {
        return await this.post(...request);
      } catch (error) {
        error.message = `${request[0]}: ${error.message}`;
        if (error.refused || left === 0 || this.stopped) throw error;
        this.tell(error.message);
        await sleep(1);
      }
    }
  }

  async post(name, ...fields) {
    const time = new Date().toISOString().replace("Z", "+00:00");
    const answer = await fetch(`${this.address}/v1/fleet/${name}`, {
      method: "POST", body: concat(...fields), headers: {
        "content-type": "application/protobuf", "flwr-timestamp": time,
        "flwr-public-key": btoa(this.publicKey),
        "flwr-signature": base64(await sign(this.keys, time)),
      },
    });
    const data = new Uint8Array(await answer.arrayBuffer());
    if (answer.ok) return parse(data);
    const error = new Error(`HTTP ${answer.status} ${decoder.decode(data)}`);
    throw Object.assign(error, { refused: answer.status < 500 });
  }

  // Return the next message, {metadata, content}; undefined if there is none.
  async receive() {
    const pulled = await this.call("pull-messages", this.node);
    if (!pulled[2]) return undefined;
    const metadata = parse(parse(pulled[2][0])[1][0]), run = field(2, metadata[1][0]);
    let content;
    for (const id of idsIn(parse(pulled[3][0]))) {
      const data = await this.pull(id, run), end = data.indexOf(0);
      if (!decoder.decode(data.subarray(0, end)).startsWith("ConfigRecord ")) continue;
      content = entriesOf(itemsIn(data.subarray(end + 1)), readValue(OF_RECORDS)).content;
    }
    await this.call("confirm-message-received", this.node, run, field(3, textIn(metadata, 2)));
    return { metadata, content: content && readContent(content) };
  }

  async pull(id, run) {
    for (;;) {
      const found = await this.call("pull-object", this.node, run, field(3, id));
      if (!found[1]) throw new Error(`the object ${id} is not there`);
      if (found[2]) return found[3][0];
      await sleep(0.3);  // it is still on its way
    }
  }

  async answer({ metadata, content }, handle) {
    const start = Date.now(), type = textIn(metadata, 8), id = metadata[1][0];
    let children = [], error = NOTHING;
    try {
      if (!content) throw new Error("this client reads packed contents of one object alone");
      const reply = await handle(type, content, { id, config: () => this.runConfig(id) });
      const entry = concat(field(1, "content"), field(2, writeValue(writeContent(reply))));
      const record = await makeObject("ConfigRecord", field(1, entry));
      const names = encoder.encode(JSON.stringify({ packed: record.id }));
      children = [await makeObject("RecordDict", names, [record])];
      this.tell(`replied to ${type}`);
    } catch (thrown) {
      this.tell(`${type}: ${thrown.message}`);
      error = field(3, concat(field(1, zigzag(2n)), field(2, thrown.message.slice(0, 2000))));
    }
    await this.send(metadata, children, error, (Date.now() - start) / 1000);
  }

  // Send a reply, whose content or error is given, to the message with that metadata.
  async send(to, children, error, seconds) {
    const now = Date.now() / 1000, run = field(2, to[1][0]);
    const metadata = (id) => field(1, concat(
      field(1, to[1][0]), field(2, id), field(3, this.id), field(4, to[3][0]),
      field(5, textIn(to, 2)), field(6, textIn(to, 6)), field(7, to[9][0] + to[7][0] - now),
      field(8, textIn(to, 8)), field(9, now),
      to[11] ? field(10, to[11][0]) : NOTHING, to[10] ? field(11, to[10][0]) : NOTHING,
    ));
    const object = await makeObject("Message", concat(metadata(""), error), children);
    const message = concat(metadata(object.id), error.length ? error : field(2, NOTHING));
    const tree = field(3, treeOf(object));
    const opened = await this.call(
      "push-messages", this.node, field(2, message), tree, field(4, seconds));
    const wanted = (opened[3] ?? []).map((id) => decoder.decode(id)), session = opened[4][0];
    for (const { id, data } of belowFirst(object).filter(({ id }) => wanted.includes(id))) {
      const stored = await this.call(
        "push-object", this.node, run, field(3, id), field(4, data), field(5, session));
      if (!stored[1]) throw new Error("the SuperLink has not stored the reply");
    }
  }

  // Return the settings given to `flwr run -c`, by name.
  async runConfig(id) {
    const answer = await this.call("get-run", this.node, field(2, id));
    return entriesOf((parse(answer[1][0])[4] ?? []).map(parse), readValue(OF_SCALARS));
  }
}
