// An OpenID Connect issuer for tests: node issuer.mjs, configured by the environment.
// Whoever names themself in its form is let in; PEOPLE says what it tells of them.
// CLOCK_OFFSET is by how many seconds its clock is ahead. SIGUSR2 has it sign with its next key.
import http from 'node:http';
import Provider from 'oidc-provider';
import { createMemoryAdapter } from 'oidc-provider/lib/adapters/memory_adapter.js';

const { ISSUER, CLIENT_ID, CLIENT_SECRET, REDIRECT_URIS, LOGOUT_URI, PEOPLE, JWKS, CLOCK_OFFSET } = process.env;
const people = JSON.parse(PEOPLE);
const keys = JSON.parse(JWKS);
const now = Date.now;
Date.now = () => now() + 1000 * Number(CLOCK_OFFSET);
// Those of one process share what they have given out.
const given = createMemoryAdapter();
const signing = (key) => new Provider(ISSUER, {
  clients: [{
    client_id: CLIENT_ID,
    client_secret: CLIENT_SECRET,
    redirect_uris: REDIRECT_URIS.split(' '),
    ...(LOGOUT_URI ? { backchannel_logout_uri: LOGOUT_URI, backchannel_logout_session_required: true } : {}),
  }],
  claims: {
    openid: ['sub', 'sid', 'acr', 'amr'],
    email: ['email', 'email_verified'],
    profile: ['name', 'groups'],
  },
  features: { devInteractions: { enabled: true }, backchannelLogout: { enabled: true } },
  jwks: { keys: [key] },
  adapter: (model) => given(model),
  // Shorter than what its cookies live, so that a clock can be wrong for the one and not the other.
  ttl: { IdToken: 120 },
  // Its own refuses addresses of this machine, at one of which a test hears of a logout.
  fetch: (url, { dispatcher, ...options }) => fetch(url, options),
  pkce: { required: () => true },
  cookies: { keys: ['of a test'] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, ...people[id] }),
  }),
});
let answer = signing(keys.shift()).callback();
process.on('SIGUSR2', () => {
  answer = signing(keys.shift()).callback();
  console.log('rotated');
});
const { port, hostname } = new URL(ISSUER);
http.createServer((request, response) => answer(request, response))
  .listen(Number(port), hostname, () => console.log('ready'));
