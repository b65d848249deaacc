// A connection to the daemon: frames with one message each, one request at a time, each with one response.
'use strict';

const net = require('node:net');
const { encode, decode } = require('./msgpack.js');

class Connection {
  // seen: the highest epoch of any response so far, shared by all connections of the process
  constructor(address, seen) {
    const colon = address.lastIndexOf(':');
    this.socket = net.connect({ host: address.slice(0, colon), port: Number(address.slice(colon + 1)) });
    this.bytes = Buffer.alloc(0);
    this.seen = seen;
    this.last = Promise.resolve();
    this.socket.on('data', (part) => this.read(part));
    this.socket.on('error', (error) => this.end(error));
    this.socket.on('close', () => this.end(new Error('the connection was closed')));
  }

  read(part) {
    this.bytes = Buffer.concat([this.bytes, part]);
    if (this.bytes.length < 4 || this.bytes.length < 4 + this.bytes.readInt32BE()) return;
    const end = 4 + this.bytes.readInt32BE();
    this.waiting?.done(decode(this.bytes.subarray(4, end)));
    this.bytes = this.bytes.subarray(end);
  }

  end(error) {
    this.ended ??= error;
    this.socket.destroy();
    this.waiting?.fail(this.ended);
  }

  // Returns the fields of the response to a message.
  request(message, longest_ms = 5000) {
    const response = this.last.then(() => this.exchange(message, longest_ms));
    this.last = response.catch(() => {});
    return response;
  }

  async exchange(message, longest_ms) {
    if (this.ended) throw this.ended;
    const timer = setTimeout(() => this.end(new Error(`no response to ${message[0]}`)), longest_ms);
    const body = encode(message);
    const length = Buffer.alloc(4);
    length.writeInt32BE(body.length);
    try {
      const [tag, ...fields] = await new Promise((done, fail) => {
        this.waiting = { done, fail };
        this.socket.write(Buffer.concat([length, body]));
      });
      if (tag === 'refused') throw Object.assign(new Error(`${fields[0]}: ${fields[1]}`), { code: fields[0] });
      this.epoch = { welcome: fields[1], registered: fields[0], operations: fields[0] }[tag] ?? this.epoch;
      if (this.epoch !== 0 && this.epoch < this.seen.epoch) throw new Error(`epoch ${this.epoch} is a former one`);
      this.seen.epoch = Math.max(this.seen.epoch, this.epoch);
      return fields;
    } finally {
      clearTimeout(timer);
      this.waiting = undefined;
    }
  }
}

module.exports = { Connection };
