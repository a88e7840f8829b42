// An authorization server on oidc-provider, with its own pages: `authorization_server.mjs PORT JWK`.
//
// The client "robot" authenticates by the private key of the JWK, "clerk" by a secret. Tokens are
// JWTs for resources with the path /mcp, otherwise opaque. The client "resource-server" may
// introspect these. A client id may be the URL of a metadata document, also on this computer, which
// oidc-provider would reject by default. Each event is logged as a line of JSON. A request for
// /clock?ahead=... sets its clock this many seconds ahead.

import { generateKeyPairSync, randomBytes } from 'node:crypto';

import { Provider } from 'oidc-provider';

const port = Number(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;

const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const key = { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256', kid: 'tests' };

const provider = new Provider(issuer, {
  jwks: { keys: [key] },
  cookies: { keys: ['a key of the tests'] },
  clients: [
    {
      client_id: 'resource-server',
      client_secret: 'secret-of-the-tests',
      redirect_uris: [],
      response_types: [],
      grant_types: [],
    },
    {
      client_id: 'clerk',
      client_secret: 'secret-of-the-tests',
      redirect_uris: [],
      response_types: [],
      grant_types: ['client_credentials'],
    },
    {
      client_id: 'robot',
      token_endpoint_auth_method: 'private_key_jwt',
      jwks: { keys: [JSON.parse(process.argv[3])] },
      redirect_uris: [],
      response_types: [],
      grant_types: ['client_credentials'],
    },
  ],
  fetch: (url, options) => fetch(url, { ...options, dispatcher: undefined }),
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
  features: {
    clientCredentials: { enabled: true },
    clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
    devInteractions: { enabled: true },
    dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => true },
    introspection: { enabled: true },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({
        audience: resource,
        scope: 'mcp:read mcp:write',
        accessTokenFormat: new URL(resource).pathname === '/mcp' ? 'jwt' : 'opaque',
        accessTokenTTL: 3600,
      }),
    },
    revocation: { enabled: true },
  },
});

let ahead = 0;
const now = Date.now;
Date.now = () => now() + ahead;
provider.use(async (ctx, next) => {
  if (ctx.path === '/clock') {
    ahead = Number(ctx.query.ahead) * 1000;
    ctx.status = 204;
  } else {
    await next();
  }
});

function tell(event, facts = {}) {
  console.log(JSON.stringify({ event, ...facts }));
}

provider.on('registration_create.success', (_, client) => {
  tell('registered', { type: client.applicationType, method: client.tokenEndpointAuthMethod });
});
provider.on('authorization.success', (ctx) => tell('authorized', ctx.oidc.params));
provider.on('grant.success', (ctx) => {
  const { token_type: type, scope } = ctx.body;
  tell('granted', { grant: ctx.oidc.params.grant_type, type, scope });
});
provider.on('grant.revoked', () => tell('revoked'));
for (const what of ['authorization', 'grant', 'registration_create', 'revocation', 'server']) {
  provider.on(`${what}${what === 'server' ? '_' : '.'}error`, (_, error) => {
    tell('refused', { what, error: error.message, why: error.error_detail });
  });
}

provider.listen(port, '127.0.0.1');
