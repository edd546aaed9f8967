// What `quire serve` says of arguments with which it cannot, or not quite, do what was wanted.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Server, chatRequest, scratchFolder, sourceDir } from './harness.mjs';

const program = join(process.env.QUIRE_BUILD ?? 'build', 'quire');
function refused(flags, code, ...says) {
  const run = spawnSync(program, ['serve', '--port', '0', ...flags], { cwd: sourceDir, encoding: 'utf8', timeout: 20_000 });
  assert.equal(run.status, code, `${flags.join(' ')}: ${run.stderr}`);
  for (const text of says) assert.match(run.stderr, text);
  assert.doesNotMatch(run.stderr, /ready/);
}

test('a context in which nothing fits', () => {
  for (const context of ['1', '100', '155']) refused(['--context', context], 2, /--context: wanted at least 156 tokens.*found/, /leave it out: the model has 8192/);
});

test('a context that holds the smallest page', async () => {
  const server = await Server.start(['--context', 156], { real: true });
  const answer = await server.chat(chatRequest(undefined, { quire: { mode: 'small', task: 'document' } }));
  await server.stop();
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.json.usage.completion_tokens <= 1, true);
});

test('more than there is: said, and what there is is used', async () => {
  for (const [flags, says] of [
    [['--context', 99999999], /99999999 tokens was asked for, the model has 8192/],
    [['--kv-cache-gb', 1000], /the KV cache takes \d+ bytes, not 1073741824000/],
  ]) {
    const server = await Server.start(flags, { real: true });
    assert.match(server.stderr, says);
    assert.match(server.stderr, /context of 8192 tokens/);
    await server.stop();
  }
  refused(['--kv-cache-gb', '1000000', '--max-sequences', '4096'], 2, /wanted a KV cache of at most the \d+ bytes that are free/);
});

test('names, origins, addresses', () => {
  refused(['--served-model-name', ''], 2, /--served-model-name: wanted some text, found none/);
  refused(['--host', ''], 2, /--host: wanted some text, found none/);
  refused(['--host', 'nosuch.invalid'], 2, /--host: wanted an address of this machine, found "nosuch\.invalid"/, /0\.0\.0\.0: everywhere/);
  for (const origin of ['example.org', 'https://example.org/', 'https://', '://x', '']) {
    refused(['--cors-origin', origin], 2, /--cors-origin: wanted scheme and host as https:\/\/example\.org/);
  }
});

test('an IPv6 address stands in brackets', async (t) => {
  let server;
  try {
    server = await Server.start(['--host', '::1']);
  } catch (error) {
    if (/cannot listen|wanted an address/.test(error.message)) return t.skip('no IPv6 here');
    throw error;
  }
  assert.match(server.url, /^http:\/\/\[::1\]:\d+$/);
  await server.stop();
});

test('certificates and keys', (t) => {
  const folder = scratchFolder(t);
  const file = (name) => join(folder, name);
  const openssl = (...args) => execFileSync('openssl', args, { stdio: 'pipe' });
  openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', file('key.pem'), '-out', file('cert.pem'), '-days', '1', '-subj', '/CN=localhost');
  openssl('genpkey', '-algorithm', 'RSA', '-out', file('other.pem'));
  openssl('pkey', '-in', file('key.pem'), '-aes256', '-passout', 'pass:secret', '-out', file('encrypted.pem'));
  openssl('rsa', '-in', file('key.pem'), '-aes128', '-passout', 'pass:secret', '-traditional', '-out', file('old.pem'));
  writeFileSync(file('text'), 'no PEM\n');
  const tls = (cert, key) => ['--tls-cert', file(cert), '--tls-key', file(key)];
  refused(tls('text', 'key.pem'), 5, /text: wanted a certificate in PEM, found none/, /BEGIN CERTIFICATE/);
  refused(tls('cert.pem', 'text'), 5, /text: wanted the key in PEM of the certificate .*cert\.pem, found none/);
  refused(tls('cert.pem', 'other.pem'), 5, /other\.pem: wanted the key in PEM of the certificate .*key values mismatch/);
  refused(tls('cert.pem', 'nosuch.pem'), 4, /nosuch\.pem: no such file/);
  for (const key of ['encrypted.pem', 'old.pem']) refused(tls('cert.pem', key), 8, /wanted a key without a passphrase/, /openssl pkey/);
});
