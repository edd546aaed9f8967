// The shell commands under "## Serve" in README.md do what they say: they are run as they stand, with another port and
// this build's program.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';

import { sourceDir } from './harness.mjs';

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function run(script) {
  return new Promise((resolve, reject) => {
    const shell = spawn('bash', ['-euo', 'pipefail', '-c', script], { cwd: sourceDir, stdio: ['ignore', 'pipe', 'inherit'] });
    let text = '';
    shell.stdout.setEncoding('utf8').on('data', (piece) => (text += piece));
    shell.once('error', reject);
    shell.once('close', (code) => resolve({ code, text }));
  });
}

test('the commands of README.md', async () => {
  const section = readFileSync(join(sourceDir, 'README.md'), 'utf8').split(/^## /m).find((part) => part.startsWith('Serve\n'));
  assert.ok(section, 'README.md has a section "Serve"');
  const block = section.match(/```sh\n([^]*?)```/)[1];
  const port = await freePort();
  const script = block
    .replaceAll('build/quire serve', `${process.env.QUIRE_BUILD ?? 'build'}/quire serve --port ${port} --host 127.0.0.1`)
    .replaceAll('localhost:8000', `127.0.0.1:${port}`);
  assert.notEqual(script, block);
  const { code, text } = await run(`trap 'kill $(jobs -p)' EXIT\n${script}\necho; echo end`);
  assert.equal(code, 0, text);
  assert.match(text, /"status":"ready"/);
  assert.match(text, /"object":"chat\.completion"[^\n]*fearsome beast/, 'the whole answer');
  assert.match(text, /data: \[DONE\]/, 'the stream');
  assert.match(text, /"pages":\[\{"index":0,"markdown":"[^\n]*"blocks":\[\{/, 'the page with its blocks');
  assert.match(text, /^end$/m, 'all commands were run');
});
