// node examples/javascript/node.mjs ADDRESS KEY NUMBER IMAGES LABELS
//
// Take part in the runs of a SuperLink, such as https://localhost:8000, as the device NUMBER, from
// 0, with the examples of MNIST's files. KEY is a private key: ssh-keygen -t ecdsa -b 384 -m PKCS8.
// NODE_EXTRA_CA_CERTS names the certificate of the server's authority.

import { readFile } from "node:fs/promises";
import { Client } from "./client.mjs";
import { Device, keysOf } from "./flower.mjs";
import { readExamples } from "./mnist.mjs";

const [address, key, number, images, labels] = process.argv.slice(2);
if (!labels || !/^\d+$/.test(number)) {
  console.error("usage: node.mjs ADDRESS KEY NUMBER IMAGES LABELS");
  process.exit(2);
}
const examples = await readExamples(await readFile(images), await readFile(labels));
const client = new Client(Number(number), examples);
const device = new Device(address, await keysOf(await readFile(key, "utf8")), console.log);
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => { device.stopped = true; });
await device.run((...message) => client.handle(...message));
