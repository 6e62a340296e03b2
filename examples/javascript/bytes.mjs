// Bytes, which are Uint8Arrays, and the numbers in them.

export function concat(...parts) {
  const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) { all.set(part, at); at += part.length; }
  return all;
}

// The bytes of an array of numbers, and the float32 of bytes: both little endian, as is every
// processor that runs JavaScript today.
export const bytesOf = ({ buffer, byteOffset, byteLength }) =>
  new Uint8Array(buffer, byteOffset, byteLength);

export function floatsOf(bytes) {
  if (bytes.length % 4) throw new Error(`${bytes.length} bytes are no whole number of float32`);
  return new Float32Array(bytes.slice().buffer);
}

export async function sha256(bytes) {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Reader {
  constructor(bytes) {
    Object.assign(this, { bytes, at: 0 });
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }
  get ended() { return this.at >= this.bytes.length; }
  take(length) {
    if (this.at + length > this.bytes.length) throw new Error("the bytes end early");
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }
  rest() { return this.take(this.bytes.length - this.at); }
  byte() { return this.take(1)[0]; }
  uint32() { this.take(4); return this.view.getUint32(this.at - 4, true); }
  float() { this.take(4); return this.view.getFloat32(this.at - 4, true); }
  double() { this.take(8); return this.view.getFloat64(this.at - 8, true); }
  varint() { // of protocol buffers
    for (let value = 0n, shift = 0n; ; shift += 7n) {
      const byte = this.byte();
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  }
  end() { if (!this.ended) throw new Error("bytes after the last one needed"); }
}
