// What this project's app asks of a device: its number, training and a test, by FedAvg or STC.

import { Network, readNpy, shuffled, train, writeNpy } from "./mnist.mjs";
import { StcClient, bytesOf, concat, floatsOf } from "./stc.mjs";

// Settings that this client does not follow; they must have these values or be absent.
const FIXED = {
  momentum: 0, "weight-decay": 0, "proximal-mu": 0, "gradient-clip": 0, optimizer: "sgd",
  "rate-schedule": "constant", precision: "float32", "fixed-arrays": "",
};
const OWN = "fedavg-strategies";
const sizeOf = (shape) => shape.reduce((a, b) => a * b, 1);

export class Client {
  // The device's number, from 0, and its examples for training and, if it has any, for testing.
  constructor(number, examples, tests) {
    Object.assign(this, { number, examples, tests, runs: new Map() });
  }

  // Return the reply's records to a message of a run, {id, config()}.
  async handle(type, content, run) {
    if (type === "query") return { node: this.description() };
    const trains = type === "train", examples = trains ? this.examples : this.tests;
    if (!trains && type !== "evaluate") throw new Error(`this client does not answer ${type}`);
    if (!examples) throw new Error("this device has no examples for testing");
    for (const [name, value] of Object.entries(FIXED)) {
      const asked = content.config[name];
      if (asked && asked !== value) throw new Error(`this client does not know ${name} = ${asked}`);
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
        round: content.config["server-round"], trains, head: own.head, updates: own.updates,
        model: vector, sizes: state.shapes?.map(([, shape]) => sizeOf(shape)),
      });
      if (!vector) return payload(state.stc.reply());
    }
    vector = vector.slice();
    const network = new Network(state.shapes.map(([, shape]) => shape), vector);
    const metrics = { "num-examples": BigInt(examples.labels.length) };
    if (!trains) {
      Object.assign(metrics, network.test(examples));
      return { metrics, ...(own && payload(state.stc.evaluated())) };
    }
    const order = shuffled(examples.labels.length);
    metrics["train-loss"] = train(network, examples, content.config, order);
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
