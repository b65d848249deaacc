// Encodes and decodes what the protocol of agents needs of MessagePack. It writes the longest form of each value.
'use strict';

function sized(tag, length, ...parts) {
  const head = Buffer.alloc(5, tag);
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, ...parts]);
}

function encode(value) {
  if (typeof value === 'number') {
    const integer = Buffer.alloc(9, 0xd3);
    integer.writeBigInt64BE(BigInt(value), 1);
    return integer;
  }
  if (typeof value === 'string') return sized(0xdb, Buffer.byteLength(value), Buffer.from(value));
  if (Buffer.isBuffer(value)) return sized(0xc6, value.length, value);
  return sized(0xdd, value.length, ...value.map(encode));
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  take(count) {
    if (this.at + count > this.bytes.length) throw new RangeError('the message ends within a value');
    this.at += count;
    return this.bytes.subarray(this.at - count, this.at);
  }

  number(size) {
    return size === 8 ? Number(this.take(8).readBigUInt64BE()) : this.take(size).readUIntBE(0, size);
  }

  items(count) {
    return Array.from({ length: count }, () => this.value());
  }

  pairs(count) {
    return Object.fromEntries(Array.from({ length: count }, () => this.items(2)));
  }

  value() {
    const tag = this.number(1);
    if (tag < 0x80) return tag;
    if (tag < 0x90) return this.pairs(tag & 15);
    if (tag < 0xa0) return this.items(tag & 15);
    if (tag < 0xc0) return this.take(tag & 31).toString();
    if (tag === 0xc2 || tag === 0xc3) return tag === 0xc3;
    if (tag >= 0xc4 && tag <= 0xc6) return Buffer.from(this.take(this.number(1 << (tag - 0xc4))));
    if (tag >= 0xcc && tag <= 0xcf) return this.number(1 << (tag - 0xcc));
    if (tag >= 0xd9 && tag <= 0xdb) return this.take(this.number(1 << (tag - 0xd9))).toString();
    if (tag === 0xdc || tag === 0xdd) return this.items(this.number(2 << (tag - 0xdc)));
    if (tag === 0xde || tag === 0xdf) return this.pairs(this.number(2 << (tag - 0xde)));
    throw new RangeError(`the tag ${tag} is none of the protocol`);
  }
}

module.exports = { encode, decode: (bytes) => new Reader(bytes).value() };
