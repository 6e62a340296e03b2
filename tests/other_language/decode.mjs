// What the tests ask of examples/javascript, and quantized updates, from docs/protocol.md.
// Reads [[name, argument], ...] on stdin, writes a list of {"value"} or {"error"}.
// Bytes are base64; vectors are bytes of float32.

import { Reader, bytesOf, concat, floatsOf } from "../../examples/javascript/bytes.mjs";
import { codecOf } from "../../examples/javascript/client.mjs";
import * as flower from "../../examples/javascript/flower.mjs";
import { Network, readExamples, readNpy, train, writeNpy } from "../../examples/javascript/mnist.mjs";
import * as stc from "../../examples/javascript/stc.mjs";

const { BitReader, BitWriter, crc32 } = stc;
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
const text = (array) => Buffer.from(array).toString("base64");
const vector = (data) => data && floatsOf(bytes(data));

function decodeQuantized(buffer, { sizes, bits, bucket }) {
  const reader = new Reader(buffer), n = sizes.reduce((a, b) => a + b), s = 2 ** (bits - 1) - 1;
  const norms = Array.from({ length: Math.ceil(n / bucket) }, () => reader.float());
  if (norms.some((norm) => norm < 0 || Object.is(norm, -0))) throw new Error("a negative norm");
  const b = reader.byte(), z = reader.uint32();
  if ((b > 31 && b !== 255) || z > n || (b === 255 && z !== n)) throw new Error("b or z is wrong");
  const entries = new BitReader(reader.take(Math.ceil((z * bits) / 8)));
  const levels = Array.from({ length: z }, () => entries.number(bits) - s);
  if (levels.some((level) => level > s)) throw new Error("l is beyond s");
  const code = new BitReader(reader.rest());
  const positions = b === 255 ? [...levels.keys()] : stc.readPositions(code, z, n, b);
  [entries, code].forEach((each) => each.end());
  const update = new Float32Array(n);
  positions.forEach((at, i) => {
    update[at] = Math.fround(levels[i] / s) * norms[Math.floor(at / bucket)];
  });
  return update;
}

const digest = (codec) => crc32(Buffer.from(codec, "ascii"));

const calls = {
  // What clients reply to these messages, one after the other; each client by its number.
  clients({ codec, sizes, messages }) {
    const clients = {};
    return messages.map(({ client: number, restarted, head, model, updates, trained, round }) => {
      if (restarted) delete clients[number];
      const client = (clients[number] ??= new stc.StcClient(codec));
      const given = { head: bytes(head), model: vector(model), updates: updates && bytes(updates) };
      const start = client.receive({ round, sizes, ...given });
      const payload = client.reply(start && vector(trained));
      return { model: start ? text(bytesOf(start)) : null, payload: text(payload) };
    });
  },

  // What the server reads in a reply's payload.
  readReply({ payload, codec, round, form }) {
    const buffer = bytes(payload), reader = new Reader(buffer);
    if (reader.byte() !== 7) throw new Error("another protocol");
    const status = reader.byte();
    if (status > 2) throw new Error("an unknown status");
    if (reader.uint32() !== digest(codec)) throw new Error("another codec");
    if (reader.uint32() !== round) throw new Error("another round");
    if (status !== 0) return reader.end(), { status };
    const decode = form.bits ? decodeQuantized : stc.decodeTernary;
    const update = decode(buffer.subarray(reader.at), form);
    if (!stc.inRange(update)) throw new Error("a value is too large");
    return { status, update: text(bytesOf(update)) };
  },

  codecOf,
  encodeTernary: ({ update, form }) => text(stc.encodeTernary(vector(update), form)),

  // The vector that training in this order of the examples leads to, and its loss.
  async train({ shapes, model, images, labels, settings, order }) {
    const examples = await readExamples(bytes(images), bytes(labels)), trained = vector(model);
    const loss = train(new Network(shapes, trained), examples, settings, order);
    return { vector: text(bytesOf(trained)), loss };
  },

  content({ read, npy, write }) {
    const found = flower.readContent(bytes(read));
    const array = writeNpy(npy.shape, readNpy({ dtype: "float32", data: bytes(npy.data) }));
    const records = { settings: { count: BigInt(write.count), name: write.name, data: bytes(write.data) },
      metrics: { count: -BigInt(write.count), loss: write.loss }, arrays: { w: array } };
    return { found, written: text(flower.writeContent(records)) };
  },

  async keys({ pem, times }) {
    const keys = await flower.keysOf(pem);
    const signatures = await Promise.all(times.map((time) => flower.sign(keys, time)));
    const found = { line: await flower.publicLine(keys), pem: await flower.publicPem(keys) };
    return { ...found, signatures: signatures.map(text) };
  },
};

const shown = (key, value) =>
  (typeof value === "bigint" ? Number(value) : value instanceof Uint8Array ? text(value) : value);
let input = "";
for await (const chunk of process.stdin) input += chunk;
const answers = [];
for (const [name, argument] of JSON.parse(input)) {
  try {
    answers.push({ value: await calls[name](argument) });
  } catch (error) {
    answers.push({ error: error.message });
  }
}
process.stdout.write(JSON.stringify(answers, shown));
