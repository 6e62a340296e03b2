// MNIST's images, and dense networks on them: "mnist-logistic" and "mnist-2nn" of this project.

import { bytesOf, concat, floatsOf, sha256 } from "./bytes.mjs";

const MEAN = 0.1307, DEVIATION = 0.3081;

// The numbers in one of MNIST's files, plain or gzipped.
async function readIdx(file) {
  let bytes = new Uint8Array(file);
  if (bytes[0] === 31) {
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    bytes = new Uint8Array(await new Response(plain).arrayBuffer());
  }
  if (bytes[0] || bytes[1] || bytes[2] !== 8) throw new Error("this is none of MNIST's files");
  return bytes.subarray(4 + 4 * bytes[3]);
}

// The examples {pixels, labels, digest} in a file of images and one of labels.
export async function readExamples(images, labels) {
  const stored = await readIdx(images), classes = await readIdx(labels);
  if (stored.length !== 784 * classes.length) throw new Error("images and labels do not fit");
  const pixels = Float32Array.from(stored, (value) => value / 255);
  for (const factor of [(x) => x - Math.fround(MEAN), (x) => x / Math.fround(DEVIATION)]) {
    pixels.forEach((value, i) => { pixels[i] = factor(value); });
  }
  return { pixels, labels: classes, digest: await sha256(concat(stored, classes)) };
}

// The values of an array in a message, which is a .npy file.
export function readNpy({ dtype, data }) {
  if (dtype !== "float32") throw new Error(`an array of ${dtype}, not float32`);
  return floatsOf(data.subarray(10 + data[8] + 256 * data[9]));
}

export function writeNpy(shape, values) {
  const sizes = shape.join(", ") + (shape.length === 1 ? "," : "");
  const text = `{'descr': '<f4', 'fortran_order': False, 'shape': (${sizes}), }`;
  const head = text.padEnd(Math.ceil((text.length + 11) / 64) * 64 - 11) + "\n";
  const start = [0x93, ...new TextEncoder().encode("NUMPY"), 1, 0, head.length, 0];
  const data = concat(start, new TextEncoder().encode(head), bytesOf(values));
  return { dtype: "float32", shape, stype: "numpy.ndarray", data };
}

// A network of dense layers with ReLU between them. The arrays are weights (outputs, inputs) and
// biases in turn; `vector` has all of their values.
export class Network {
  constructor(shapes, vector) {
    this.layers = [];
    for (let i = 0, at = 0; i < shapes.length; i += 2) {
      const [outputs, inputs] = shapes[i], [biases] = shapes[i + 1] ?? [];
      const fits = inputs === (this.layers.at(-1)?.outputs ?? 784) && biases === outputs;
      if (!fits) throw new Error("the model is no dense network on MNIST's images");
      const weights = vector.subarray(at, (at += outputs * inputs));
      this.layers.push({ inputs, outputs, weights, biases: vector.subarray(at, (at += outputs)) });
    }
  }

  // Return the layers' inputs for an example, and the last layer's outputs.
  forward(pixels) {
    const values = [pixels];
    this.layers.forEach(({ inputs, outputs, weights, biases }, depth) => {
      const from = values[depth], to = new Float32Array(outputs);
      for (let o = 0; o < outputs; o++) {
        let sum = biases[o];
        for (let i = 0, w = o * inputs; i < inputs; i++) sum += weights[w + i] * from[i];
        to[o] = depth + 1 < this.layers.length ? Math.max(sum, 0) : sum;
      }
      values.push(to);
    });
    return values;
  }

  // Take a step of SGD on the mean loss of some examples; return that loss.
  step({ pixels, labels }, rows, rate) {
    const gradients = this.layers.map(({ weights, outputs }) =>
      ({ weights: new Float64Array(weights.length), biases: new Float64Array(outputs) }));
    let loss = 0;
    for (const row of rows) {
      const values = this.forward(pixels.subarray(784 * row, 784 * row + 784));
      let { errors, loss: own } = crossEntropy(values.at(-1), labels[row]);
      loss += own / rows.length;
      for (let depth = this.layers.length - 1; depth >= 0; depth--) {
        const { inputs, outputs, weights } = this.layers[depth], from = values[depth];
        const below = new Float64Array(depth ? inputs : 0), gradient = gradients[depth];
        for (let o = 0; o < outputs; o++) {
          const error = errors[o], w = o * inputs;
          gradient.biases[o] += error;
          if (error) for (let i = 0; i < inputs; i++) gradient.weights[w + i] += error * from[i];
          for (let i = 0; i < below.length; i++) below[i] += error * weights[w + i];
        }
        errors = below.map((value, i) => (from[i] > 0 ? value : 0));
      }
    }
    this.layers.forEach((layer, depth) => {
      for (const name of ["weights", "biases"]) {
        gradients[depth][name].forEach((value, i) => { layer[name][i] -= rate * value / rows.length; });
      }
    });
    return loss;
  }
}

// The loss of an example, and its gradient by the outputs.
function crossEntropy(outputs, label) {
  const largest = Math.max(...outputs), powers = outputs.map((value) => Math.exp(value - largest));
  const total = powers.reduce((a, b) => a + b, 0);
  const errors = Array.from(powers, (power, i) => power / total - (i === label));
  return { errors, loss: largest + Math.log(total) - outputs[label] };
}

// Train a network in place by a message's settings, on the examples in that order; return the mean
// loss of the steps.
export function train(network, examples, settings, order) {
  const size = settings["batch-size"] || order.length, batches = [];
  for (let at = 0; at < order.length; at += size) batches.push(order.slice(at, at + size));
  const steps = settings["local-steps"] || batches.length * (settings["local-epochs"] ?? 1);
  let loss = 0;
  for (let step = 0; step < steps; step++) {
    const rows = batches[step % batches.length];
    loss += network.step(examples, rows, settings["learning-rate"]) / steps;
  }
  return loss;
}

export function shuffled(count) {
  const order = Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}
