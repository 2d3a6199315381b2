// An OpenID Connect issuer for tests: node issuer.mjs, configured by the environment.
// Whoever names themself in its form is let in; PEOPLE says what it tells of them.
import Provider from 'oidc-provider';

const { ISSUER, CLIENT_ID, CLIENT_SECRET, REDIRECT_URIS, LOGOUT_URI, PEOPLE, JWK } = process.env;
const people = JSON.parse(PEOPLE);
const provider = new Provider(ISSUER, {
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
  jwks: { keys: [JSON.parse(JWK)] },
  // Its own refuses addresses of this machine, at one of which a test hears of a logout.
  fetch: (url, { dispatcher, ...options }) => fetch(url, options),
  pkce: { required: () => true },
  cookies: { keys: ['of a test'] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, ...people[id] }),
  }),
});
const { port, hostname } = new URL(ISSUER);
provider.listen(Number(port), hostname, () => console.log('ready'));
