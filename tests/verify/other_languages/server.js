// A server of regions. It speaks the protocol of agents as its page describes it, without a package.
// Usage: node server.js NAME FOLDER HOST:PORT...
'use strict';

const { randomBytes } = require('node:crypto');
const { setTimeout: pause } = require('node:timers/promises');
const { Connection } = require('./connection.js');
const { FEATURES, Service } = require('./service.js');

const [name, folder, ...daemons] = process.argv.slice(2);
const incarnation = Date.now() * 1000;
const proof = randomBytes(16);
const now = () => ({ machine: performance.now(), day: Date.now() });

class Server {
  constructor() {
    this.service = new Service(folder);
    this.seen = { epoch: 0, token: 0 };
    this.queues = new Map(); // the last operation of each region, by id
    this.results = new Map(); // by pid, null while the operation is in progress
    this.until = { machine: 0, day: 0 };
  }

  serving() {
    return !this.suspends || (now().machine < this.until.machine && now().day < this.until.day);
  }

  renew({ machine, day }) {
    this.until = { machine: machine + 0.8 * this.lease_ms, day: day + 0.8 * this.lease_ms };
  }

  owned() {
    return [...this.service.regions].map(([region, { token }]) => [region, token]);
  }

  // Queues an operation behind those of its region; one with a known pid is not done again.
  take([tag, pid, ...fields]) {
    if (this.results.has(pid)) return;
    this.results.set(pid, null);
    const region = tag === 'work' ? fields[1] : fields[0];
    const before = this.queues.get(region) ?? Promise.resolve();
    const after = before.then(() => this.results.set(pid, [pid, ...this.carry_out(tag, fields)]));
    this.queues.set(region, after);
  }

  carry_out(tag, fields) {
    if (!this.serving()) return ['not_running'];
    if (tag === 'open') this.seen.token = Math.max(this.seen.token, fields[1]);
    if (tag === 'task') return ['failed', 0, 'this service has no log'];
    try {
      return this.service[tag](fields);
    } catch (error) {
      return [tag === 'open' ? 'failed_open' : 'failed', 0, error.message];
    }
  }

  about(tag, ...fields) {
    return [tag, name, incarnation, this.epoch, ...fields];
  }

  async connect(address) {
    const connection = new Connection(address, this.seen);
    await connection.request(['hello', 1, '', proof, this.seen.epoch, this.seen.token]);
    return connection;
  }

  // Registers at one daemon, polls and reports there, until a connection or a request fails.
  async session(address) {
    const polls = await this.connect(address);
    const reports = await this.connect(address).catch((error) => polls.end(error));
    const sent = now();
    try {
      const registered = await polls.request(['register', name, incarnation, name, 'js', this.owned(), FEATURES]);
      [this.epoch, this.lease_ms, this.hold_ms, this.suspends, , this.requests = []] = registered;
      this.number = 0;
      this.renew(sent);
      console.log(`registered at ${address} in epoch ${this.epoch}`);
      await Promise.all([this.poll(polls, reports), this.report(reports)]);
    } finally {
      polls.end(new Error('the session ended'));
      reports?.end(polls.ended);
    }
  }

  async poll(polls, reports) {
    for (;;) {
      const sent = now();
      const longest_ms = this.hold_ms + this.lease_ms / 5;
      const [, number, operations = [], list] = await polls.request(this.about('poll', this.number), longest_ms);
      this.renew(sent);
      this.number = number;
      operations.forEach((operation) => this.take(operation));
      if (list) await reports.request(this.about('regions', this.owned()));
    }
  }

  async report(reports) {
    for (let pause_ms = 100; !reports.ended; await pause(pause_ms)) {
      const made = [...this.results.values()].filter((result) => result !== null).slice(0, 1000);
      const again = made.length > 0 ? await this.send(reports, made) : [];
      made.filter(([pid]) => !again.includes(pid)).forEach(([pid]) => this.results.delete(pid));
      pause_ms = again.length > 0 ? Math.min(2 * pause_ms, 5000) : 100;
      if (this.requests.includes('independent')) await this.say_independent(reports);
      if (this.leaving && (await reports.request(this.about('leave')))[0] === 0) process.exit(0);
    }
  }

  async send(reports, made) {
    return (await reports.request(this.about('report', made, this.number)))[0] ?? [];
  }

  async say_independent(reports) {
    const named = [...this.service.independent].slice(0, 1000);
    if (named.length === 0) return;
    const [again = []] = await reports.request(this.about('independent', named));
    named.filter(([region]) => !again.includes(region)).forEach(([region]) => this.service.independent.delete(region));
  }

  async run() {
    for (let turn = 0; ; turn += 1) {
      const error = await this.session(daemons[turn % daemons.length]).catch((failure) => failure);
      console.log(error.message);
      if (error.code === 'dead') process.exit(1);
      await pause((this.lease_ms ?? 1000) / 4);
    }
  }
}

const server = new Server();
process.on('SIGTERM', () => (server.leaving = true));
server.run();
