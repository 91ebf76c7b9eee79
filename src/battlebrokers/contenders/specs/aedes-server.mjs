// Runs Aedes as a process of its own: MQTT over TCP, WebSocket and, when asked, TLS; SIGTERM or SIGINT ends it cleanly.
// usage: node aedes-server.mjs CONFIG.json
import { readFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { createRequire } from 'node:module'
import { createServer as createTcpServer } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { pathToFileURL } from 'node:url'

const config = JSON.parse(readFileSync(process.argv[2], 'utf8'))

// The modules lie beside Aedes, not beside this file.
const { resolve } = createRequire(config.aedes)
const load = (name) => import(pathToFileURL(resolve(name)).href)
const { Aedes } = await load('aedes')
const ws = await load('ws')
const WebSocketServer = ws.WebSocketServer ?? ws.default.WebSocketServer
const createWebSocketStream = ws.createWebSocketStream ?? ws.default.createWebSocketStream

const broker = await Aedes.createBroker(JSON.parse(process.env.BB_OPTIONS ?? '{}'))

const tcp = createTcpServer(broker.handle)
const http = createHttpServer()
const sockets = new WebSocketServer({ server: http })
sockets.on('connection', (socket, request) => broker.handle(createWebSocketStream(socket), request))

const listening = [[tcp, config.ports.tcp], [http, config.ports.ws]]
const env = process.env
if (env.BB_TLS_PORT) {
  const clientCa = env.BB_TLS_CLIENT_CA
  const tls = createTlsServer({
    cert: readFileSync(env.BB_TLS_CERTIFICATE),
    key: readFileSync(env.BB_TLS_KEY),
    ...(clientCa && { ca: readFileSync(clientCa), requestCert: true, rejectUnauthorized: true })
  }, broker.handle)
  listening.push([tls, Number(env.BB_TLS_PORT)])
}
for (const [server, port] of listening) {
  server.on('error', (error) => { console.error(String(error)); process.exit(1) })
  server.listen(port, config.host, () => console.log(`listening on ${config.host}:${port}`))
}

const stop = () => {
  console.log('stopping')
  for (const [server] of listening) server.close()
  sockets.close()
  broker.close(() => process.exit(0))
}
process.on('SIGTERM', stop)
process.on('SIGINT', stop)
