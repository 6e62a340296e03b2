// What this project's app asks of a device: its number, and training by FedAvg or STC.

import { Network, readNpy, shuffled, train, writeNpy } from "./mnist.mjs";
import { bytesOf, concat, floatsOf } from "./bytes.mjs";
import { StcClient } from "./stc.mjs";

// The settings that this client follows or has no use for; others must be absent, 0 or as here.
const KNOWN = ["server-round", "learning-rate", "local-epochs", "local-steps", "batch-size", "seed",
  "data-source", "data-dir", "num-clients"];
const FIXED = { optimizer: "sgd", "rate-schedule": "constant", precision: "float32" };
const OWN = "fedavg-strategies";
const sizeOf = (shape) => shape.reduce((a, b) => a * b, 1);

export class Client {
  // The device's number, from 0, and its examples.
  constructor(number, examples) {
    Object.assign(this, { number, examples, runs: new Map() });
  }

  // Return the reply's records to a message of a run, {id, config()}.
  async handle(type, content, run) {
    if (type === "query") return { node: this.description() };
    if (type !== "train") throw new Error(`this client does not answer ${type}`);
    const record = Object.keys(content).find((name) => !["config", "arrays", OWN].includes(name));
    if (record) throw new Error(`this client does not know the record ${record}`);
    for (const [name, value] of Object.entries(content.config)) {
      if (KNOWN.includes(name) || !value || value === FIXED[name]) continue;
      throw new Error(`this client does not know ${name} = ${value}`);
    }
    if (!this.runs.has(run.id)) this.runs.set(run.id, {});
    const state = this.runs.get(run.id), own = content[OWN];
    const arrays = content.arrays && Object.entries(content.arrays);
    if (arrays) state.shapes = arrays.map(([name, { shape }]) => [name, shape]);
    let vector = arrays && floatsOf(concat(...arrays.map(([, array]) => bytesOf(readNpy(array)))));
    if (own) {
      if (own.buffers) throw new Error("this client trains models without buffers");
      state.stc ??= new StcClient(own.codec ?? codecOf(await run.config()));
      vector = state.stc.receive({
        round: content.config["server-round"], head: own.head, updates: own.updates,
        model: vector, sizes: state.shapes?.map(([, shape]) => sizeOf(shape)),
      });
      if (!vector) return payload(state.stc.reply());
    }
    vector = vector.slice();
    const network = new Network(state.shapes.map(([, shape]) => shape), vector);
    const count = this.examples.labels.length;
    const loss = train(network, this.examples, content.config, shuffled(count));
    const metrics = { "num-examples": BigInt(count), "train-loss": loss };
    if (!own) return { arrays: arraysOf(vector, state.shapes), metrics };
    const data = state.stc.reply(vector), diverged = data[1] !== 0;
    return diverged ? payload(data) : { ...payload(data), metrics };
  }

  description() {
    const { digest, labels } = this.examples, number = BigInt(this.number);
    return { "partition-id": number, "own-data": digest, "own-examples": BigInt(labels.length) };
  }
}

function payload(data) {
  const array = { dtype: "uint8", shape: [data.length], stype: "fedavg_strategies.update", data };
  return { [OWN]: { payload: array } };
}

function arraysOf(vector, shapes) {
  let at = 0;
  return Object.fromEntries(shapes.map(([name, shape]) =>
    [name, writeNpy(shape, vector.subarray(at, (at += sizeOf(shape))))]));
}

// The text of STC's codec by the settings of a run; the first message has its CRC-32.
export function codecOf({ strategy, "strategy-args": text = "" }) {
  if (strategy !== "stc") throw new Error(`this client knows fedavg and stc, not ${strategy}`);
  const pairs = text.split(",").map((pair) => pair.split("=").map((part) => part.trim()));
  const given = Object.fromEntries(pairs), scope = given.scope?.slice(1, -1) ?? "tensor";
  const part = (key) => {
    const p = Number(given[key] ?? 1 / 400);
    const sparsity = p >= 1e-4 ? String(p) : p.toExponential().replace(/-(\d)$/, "-0$1");
    return `{"name":"ternary","scope":"${scope}","sparsity":${p === 1 ? "1.0" : sparsity}}`;
  };
  const [down, up] = [part("sparsity-down"), part("sparsity-up")];
  return `{"downlink":${down},"feedback":{"name":"residual"},"uplink":${up},"warmup-rounds":0}`;
}
