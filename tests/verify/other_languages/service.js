// A service that keeps keys and values: a file for each region, in a folder that all of its servers share.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const FEATURES = ['inherit', 'split_key', 'discard', 'x-put', 'x-get'];
const within = (key, start, end) => key.compare(start) >= 0 && (end.length === 0 || key.compare(end) < 0);

class Service {
  constructor(folder) {
    this.folder = folder;
    this.regions = new Map(); // those that are open, by id: token, sequence, values
    this.independent = new Map(); // tokens of regions that need their sources no more, by id
  }

  file(region) {
    return path.join(this.folder, `${region}.json`);
  }

  read(region) {
    const file = this.file(region);
    return fs.existsSync(file) ? JSON.parse(fs.readFileSync(file)) : { token: 0, whole: false, values: {} };
  }

  write(region, state) {
    const stored = this.read(region).token;
    if (stored > state.token) throw new Error(`the data has token ${stored}, above ${state.token}`);
    fs.writeFileSync(`${this.file(region)}.new`, JSON.stringify(state));
    fs.renameSync(`${this.file(region)}.new`, this.file(region));
  }

  open([region, token, , start, end, sequence, , sources = []]) {
    const have = this.regions.get(region);
    if (have?.token === token) return ['opened', have.sequence];
    if (have?.token > token) return ['failed_open', 0, `it is open with token ${have.token}`];
    const own = this.read(region);
    if (own.token >= token) return ['failed_open', 0, `the data has token ${own.token}, this open has ${token}`];
    const values = {};
    for (const [source, first, last] of own.whole ? [] : sources) {
      for (const [key, value] of Object.entries(this.read(source).values)) {
        if (within(Buffer.from(key), first, last) && within(Buffer.from(key), start, end)) values[key] = value;
      }
    }
    const opened = { token, sequence: sequence + 1, values: { ...values, ...own.values } };
    this.write(region, { ...own, token });
    this.regions.set(region, opened);
    if (sources.length > 0) setImmediate(() => this.copy(region, opened));
    return ['opened', opened.sequence];
  }

  copy(region, opened) {
    if (this.regions.get(region) !== opened) return;
    this.save(region, opened);
    this.independent.set(region, opened.token);
  }

  save(region, { token, values }) {
    this.write(region, { token, whole: true, values });
  }

  close([region, token]) {
    if (this.regions.get(region)?.token <= token) this.regions.delete(region);
    return ['closed'];
  }

  work([what, region, token, , data]) {
    if (what === 'discard') fs.rmSync(this.file(data.toString()), { force: true });
    if (what === 'discard') return ['done'];
    const have = this.regions.get(region);
    if (have?.token !== token) return ['failed', 0, `region ${region} is not open with token ${token}`];
    const keys = Object.keys(have.values).sort();
    const [key, value] = what === 'split_key' ? [] : data.toString().split('=');
    if (what === 'x-put') have.values[key] = value;
    if (what === 'x-put') this.save(region, have);
    const result = what === 'split_key' ? (keys.length > 1 ? keys[keys.length >> 1] : '') : have.values[key] ?? '';
    return ['done', 0, '', [], Buffer.from(result)];
  }
}

module.exports = { FEATURES, Service };
