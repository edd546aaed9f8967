// What the server's tests share: a server under test, pictures, requests, raw sockets.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import zlib from 'node:zlib';

export { sleep };

const build = process.env.QUIRE_BUILD ?? 'build';
// A build with sanitizers: its times say nothing, and it needs open files of its own to look at an object.
export const isSanitized = existsSync(`${build}/CMakeCache.txt`) && /^QUIRE_SANITIZE:[^=]*=\S/m.test(readFileSync(`${build}/CMakeCache.txt`, 'utf8'));
export const sourceDir = process.env.QUIRE_SOURCE ?? join(import.meta.dirname, '..', '..');
const commands = {
  real: process.env.QUIRE_SERVER ?? `${build}/quire serve`,
  scripted: process.env.QUIRE_SCRIPTED_SERVER ?? `${build}/tests/scripted-server`,
};

// Waits until probe() gives something other than false or undefined; throws when ms have passed.
export async function until(what, probe, ms = 10_000) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await probe();
    if (value !== false && value !== undefined) return value;
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`);
    await sleep(20);
  }
}

// A folder that is removed when the test ends; t: a test or suite context with after().
export function scratchFolder(t) {
  const folder = mkdtempSync(join(tmpdir(), 'quire-server-test-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const children = new Set();
process.on('exit', () => children.forEach((child) => child.kill('SIGKILL')));  // of tests that failed

// A server in a process of its own.
export class Server {
  // flags: after those of the command. real: over the shipped tiny model, not the scripted one. ready: wait for it.
  // wrap: a command that runs the rest of its words.
  static async start(flags = [], { real = false, ready = true, ca, env, wrap = [] } = {}) {
    const server = new Server();
    const [program, ...rest] = [...wrap, ...commands[real ? 'real' : 'scripted'].split(' ')];
    server.child = spawn(program, [...rest, '--port', '0', ...flags.map(String)], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...env },
    });
    children.add(server.child);
    server.stderr = '';
    server.stdout = '';
    server.ca = ca;
    server.child.stderr.setEncoding('utf8').on('data', (text) => (server.stderr += text));
    server.child.stdout.setEncoding('utf8').on('data', (text) => (server.stdout += text));
    server.exited = new Promise((resolve, reject) => {
      server.child.once('error', reject);
      server.child.once('close', (code, signal) => {
        children.delete(server.child);
        resolve(code ?? signal);
      });
    });
    let end;
    server.exited.then((code) => (end = code), (error) => (end = error));
    server.url = await until('listening', () => {
      if (end !== undefined) throw new Error(`the server ended with ${end}: ${server.stderr}`);
      return server.stderr.match(/listening on (https?:\/\/\S+)/)?.[1];
    }, 30_000);
    server.port = Number(new URL(server.url).port);
    if (ready) await until('ready', async () => (await server.get('/health')).status === 200, 60_000);
    return server;
  }

  get pid() {
    return this.child.pid;
  }

  // Ends it as a supervisor does; it must end well.
  async stop() {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill('SIGTERM');
    const code = await Promise.race([this.exited, sleep(30_000, 'no exit within 30 s of SIGTERM', { ref: false })]);
    if (typeof code !== 'number') this.child.kill('SIGKILL');
    assert.equal(code, 0, this.stderr.slice(-4000));
  }

  // One request on a connection of its own. body: a string, bytes, or a value that becomes JSON.
  // {status, headers, text, json}
  async request(method, path, { body, headers = {}, signal, ca = this.ca } = {}) {
    const bytes = body === undefined || typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body);
    const all = { ...(bytes === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(bytes) }) };
    for (const [name, value] of Object.entries(headers)) {
      delete all[name.toLowerCase()];
      if (value !== null) all[name.toLowerCase()] = value;
    }
    const { request } = this.url.startsWith('https') ? https : http;
    return new Promise((resolve, reject) => {
      const sent = request(`${this.url}${path}`, { method, headers: all, agent: false, signal, ca }, async (response) => {
        try {
          let text = '';
          for await (const piece of response.setEncoding('utf8')) text += piece;
          resolve(new Answer(response.statusCode, response.headers, text));
        } catch (error) {
          reject(error);
        }
      });
      // A server that refuses a body may close before all of it is sent: the answer counts, if there is one.
      let answered = false;
      sent.on('response', () => (answered = true));
      sent.on('error', (error) => setTimeout(() => answered || reject(error), 100));
      sent.end(bytes);
    });
  }

  get(path, options) {
    return this.request('GET', path, options);
  }
  post(path, body, options = {}) {
    return this.request('POST', path, { ...options, body });
  }
  chat(body, options) {
    return this.post('/v1/chat/completions', body, options);
  }

  // A request whose answer is read bit by bit: an IncomingMessage; destroy() leaves.
  async open(path, body, { headers = {} } = {}) {
    const sent = http.request(`${this.url}${path}`, { method: 'POST', agent: false, headers: { 'content-type': 'application/json', ...headers } });
    sent.end(JSON.stringify(body));
    const [response] = await once(sent, 'response');
    return response;
  }

  async metric(name, labels) {
    return metricOf((await this.get('/metrics')).text, name, labels);
  }

  // Name of the model that is served.
  async model() {
    return (await this.get('/v1/models')).json.data[0].id;
  }

  // Resident memory in kB; field VmHWM: the most that it has been.
  rssKb(field = 'VmRSS') {
    return Number(readFileSync(`/proc/${this.pid}/status`, 'utf8').match(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm'))[1]);
  }
}

class Answer {
  constructor(status, headers, text) {
    Object.assign(this, { status, headers, text });
  }
  get json() {
    try {
      return JSON.parse(this.text);
    } catch {
      assert.fail(`status ${this.status}, wanted JSON, found: ${this.text.slice(0, 500)}`);
    }
  }
  // Events of a stream: parsed data, "[DONE]" as it is.
  get events() {
    return parseEvents(this.text);
  }
}

export function parseEvents(text) {
  return text
    .split(/\r?\n\r?\n/)
    .map((block) => block.split(/\r?\n/).filter((line) => line.startsWith('data:')).map((line) => line.slice(5).trimStart()).join('\n'))
    .filter((data) => data !== '')
    .map((data) => (data === '[DONE]' ? data : JSON.parse(data)));
}

// Value of a metric: the sum over its samples whose labels contain those given.
export function metricOf(text, name, labels = {}) {
  let sum;
  for (const line of text.split('\n')) {
    const match = line.match(/^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$/);
    if (match?.[1] !== name) continue;
    if (Object.entries(labels).every(([key, value]) => match[2]?.includes(`${key}="${value}"`))) sum = (sum ?? 0) + Number(match[3]);
  }
  return sum;
}

// The status is the one wanted and the body is an error in OpenAI's form. Gives the error.
export function assertError(answer, status, { param, code } = {}) {
  assert.equal(answer.status, status, answer.text.slice(0, 1000));
  assert.match(answer.headers['content-type'] ?? '', /^application\/json/);
  assert.deepEqual(Object.keys(answer.json), ['error']);
  const { error } = answer.json;
  assert.deepEqual(Object.keys(error).sort(), ['code', 'message', 'param', 'type']);
  const types = { 401: 'authentication_error', 404: 'not_found_error', 429: 'rate_limit_error' };
  assert.equal(error.type, types[status] ?? (status >= 500 ? 'server_error' : 'invalid_request_error'), JSON.stringify(error));
  assert.equal(typeof error.message, 'string');
  assert.ok(error.message.length > 0);
  if (param !== undefined) assert.equal(error.param, param, JSON.stringify(error));
  if (code !== undefined) assert.equal(error.code, code, JSON.stringify(error));
  return error;
}

// --- Pictures -------------------------------------------------------------------------------------------------------

function chunk(type, data) {
  const bytes = Buffer.alloc(12 + data.length);
  bytes.writeUInt32BE(data.length, 0);
  bytes.write(type, 4, 'latin1');
  data.copy(bytes, 8);
  bytes.writeUInt32BE(crc32(bytes.subarray(4, 8 + data.length)), 8 + data.length);
  return bytes;
}

const crcTable = Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n >>> 0;
});
function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = crcTable[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

// Pixels of paper of one colour, whose red is given, with a black square in the middle so that the page is not blank.
function pixelRows(width, height, red) {
  const paper = Buffer.from([red, 255, 255]);
  const plain = Buffer.alloc(width * 3, paper);
  const inked = Buffer.from(plain);
  inked.fill(0, Math.floor(width / 3) * 3, Math.ceil((width * 2) / 3) * 3);
  return Array.from({ length: height }, (_, y) => (y >= height / 3 && y < (height * 2) / 3 ? inked : plain));
}

export function makePng({ width = 64, height = width, red = 255 } = {}) {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2], 8);  // bits, RGB
  const rows = pixelRows(width, height, red).flatMap((row) => [Buffer.from([0]), row]);
  return Buffer.concat([
    Buffer.from('89504e470d0a1a0a', 'hex'),
    chunk('IHDR', header),
    chunk('IDAT', zlib.deflateSync(Buffer.concat(rows), { level: 1 })),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

// A PNG whose header alone says how large it is.
export function makeHugePng(width = 100_000, height = 100_000) {
  const png = makePng();
  const header = Buffer.from(png.subarray(16, 29));
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  return Buffer.concat([png.subarray(0, 8), chunk('IHDR', header), png.subarray(33)]);
}

// A TIFF with a page, uncompressed RGB, for each entry of reds; null: a page whose pixels lie past the end of the file.
export function makeTiff(reds, side = 64) {
  const pixelBytes = side * side * 3;
  const entries = 10;
  const directoryBytes = 2 + entries * 12 + 4 + 6;  // three 16-bit numbers after it: bits of each sample
  const pageBytes = pixelBytes + directoryBytes;
  const file = Buffer.alloc(8 + reds.length * pageBytes);
  file.write('II*\0', 0, 'latin1');
  file.writeUInt32LE(8 + pixelBytes, 4);
  reds.forEach((red, page) => {
    const pixels = 8 + page * pageBytes;
    const directory = pixels + pixelBytes;
    const bits = directory + directoryBytes - 6;
    Buffer.concat(pixelRows(side, side, red ?? 255)).copy(file, pixels);
    const short = 3, long = 4;
    const fields = [
      [256, long, 1, side], [257, long, 1, side], [258, short, 3, bits], [259, short, 1, 1], [262, short, 1, 2],
      [273, long, 1, red === null ? 0x7fffff00 : pixels], [277, short, 1, 3], [278, long, 1, side], [279, long, 1, pixelBytes],
      [284, short, 1, 1],
    ];
    file.writeUInt16LE(fields.length, directory);
    fields.forEach(([tag, type, count, value], index) => {
      const at = directory + 2 + index * 12;
      file.writeUInt16LE(tag, at);
      file.writeUInt16LE(type, at + 2);
      file.writeUInt32LE(count, at + 4);
      file.writeUInt32LE(value, at + 8);
    });
    file.writeUInt32LE(page + 1 < reds.length ? directory + pageBytes : 0, bits - 4);
    for (let sample = 0; sample < 3; sample++) file.writeUInt16LE(8, bits + sample * 2);
  });
  return file;
}

export const dataUri = (bytes, type = 'image/png') => `data:${type};base64,${bytes.toString('base64')}`;

// Red of a picture for which the scripted model answers with a script: light, so that the ink stays dark beside it.
export const redOfScript = (script) => 240 + script;

// --- Requests -------------------------------------------------------------------------------------------------------

// To the scripted server: mode base, since there the upper left pixel of a square picture is that of the only view.
export function chatRequest(picture = makePng(), more = {}) {
  return {
    messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: dataUri(picture) } }] }],
    ...more,
    quire: { mode: 'base', ...more.quire },
  };
}
export function completionRequest(picture = makePng(), more = {}) {
  return { prompt: '<image>\nFree OCR. ', ...more, quire: { image: dataUri(picture), mode: 'base', ...more.quire } };
}
export function responseRequest(picture = makePng(), more = {}) {
  return {
    input: [{ role: 'user', content: [{ type: 'input_image', image_url: dataUri(picture) }] }],
    ...more,
    quire: { mode: 'base', ...more.quire },
  };
}
export function ocrRequest(picture = makePng(), more = {}) {
  return { document: { type: 'image_url', image_url: dataUri(picture) }, ...more, quire: { mode: 'base', ...more.quire } };
}

// A body of multipart/form-data and its content type. parts: [name, text or bytes, file name].
export function multipart(parts, boundary = 'quire-test-boundary') {
  const pieces = parts.flatMap(([name, value, file]) => [
    `--${boundary}\r\nContent-Disposition: form-data; name="${name}"${file === undefined ? '' : `; filename="${file}"`}\r\n`,
    file === undefined ? '\r\n' : 'Content-Type: application/octet-stream\r\n\r\n',
    value,
    '\r\n',
  ]);
  return {
    body: Buffer.concat([...pieces, `--${boundary}--\r\n`].map((piece) => Buffer.from(piece))),
    headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
  };
}

// --- Raw connections ------------------------------------------------------------------------------------------------

// A TCP connection that sends exactly the bytes it is told to.
export class RawConnection {
  static async open(port) {
    const connection = new RawConnection();
    connection.received = Buffer.alloc(0);
    connection.socket = net.connect({ port, host: '127.0.0.1', noDelay: true });
    connection.socket.on('data', (bytes) => (connection.received = Buffer.concat([connection.received, bytes])));
    connection.closed = new Promise((resolve) => connection.socket.once('close', resolve));
    connection.isClosed = false;
    connection.closed.then(() => (connection.isClosed = true));
    await once(connection.socket, 'connect');
    connection.socket.on('error', () => {});  // a reset is a way to be closed
    return connection;
  }

  send(bytes) {
    this.socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
  }
  // A byte every so often, until all is sent or the server closes.
  async drip(bytes, ms) {
    for (const byte of Buffer.from(bytes)) {
      if (this.isClosed) return;
      this.send(Buffer.from([byte]));
      await sleep(ms);
    }
  }
  get text() {
    return this.received.toString('utf8');
  }
  // The first answer on this connection, once it is complete: by its length, its chunks, or the server's closing.
  async answer(ms = 10_000) {
    return until('an answer', () => parseAnswer(this.received, this.isClosed), ms);
  }
  // Whether the server closes within ms.
  async closes(ms) {
    return Promise.race([this.closed.then(() => true), sleep(ms, false, { ref: false })]);
  }
  abort() {
    this.socket.resetAndDestroy();
  }
}

// An HTTP/1.1 answer at the beginning of bytes; undefined when it is not complete. Its `bytes` is the length.
export function parseAnswer(bytes, isEnd = false) {
  const split = bytes.indexOf('\r\n\r\n');
  if (split < 0) return undefined;
  const [first, ...lines] = bytes.subarray(0, split).toString('latin1').split('\r\n');
  const status = Number(first.split(' ')[1]);
  const headers = Object.fromEntries(lines.map((line) => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
  }));
  const make = (body, length) => Object.assign(new Answer(status, headers, body.toString('utf8')), { bytes: length });
  let at = split + 4;
  if (headers['content-length'] !== undefined) {
    const end = at + Number(headers['content-length']);
    return bytes.length >= end ? make(bytes.subarray(at, end), end) : undefined;
  }
  if (headers['transfer-encoding'] !== 'chunked') return isEnd ? make(bytes.subarray(at), bytes.length) : undefined;
  const pieces = [];
  for (;;) {
    const line = bytes.indexOf('\r\n', at);
    if (line < 0) return undefined;
    const size = parseInt(bytes.subarray(at, line).toString('latin1'), 16);
    const end = line + 2 + size + 2;
    if (bytes.length < end) return undefined;
    if (size === 0) return make(Buffer.concat(pieces), end);
    pieces.push(bytes.subarray(line + 2, line + 2 + size));
    at = end;
  }
}

// A request as bytes, for raw connections.
export function rawRequest(method, path, body, headers = {}) {
  const bytes = body === undefined ? Buffer.alloc(0) : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  const all = {
    Host: 'localhost',
    ...(body === undefined ? {} : { 'Content-Type': 'application/json', 'Content-Length': bytes.length }),
    ...headers,
  };
  const head = `${method} ${path} HTTP/1.1\r\n${Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`;
  return Buffer.concat([Buffer.from(head, 'latin1'), bytes]);
}
