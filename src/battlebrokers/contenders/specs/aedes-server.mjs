// Runs Aedes as a process of its own: MQTT over TCP, WebSocket and, when asked, TLS; SIGTERM or SIGINT ends it cleanly.
// With BB_REDIS messages and sessions go through Redis, and BB_WORKERS processes share the ports.
// usage: node aedes-server.mjs CONFIG.json
import cluster from 'node:cluster'
import { readFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { createRequire } from 'node:module'
import { createServer as createTcpServer } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { pathToFileURL } from 'node:url'

const config = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const env = process.env

if (env.BB_WORKERS && cluster.isPrimary) {
  let stopping = false
  for (let place = 0; place < Number(env.BB_WORKERS); place++) cluster.fork()
  // Half a cluster would be measured as a whole one.
  cluster.on('exit', (worker, code) => {
    if (!stopping) process.exit(code || 1)
    if (!Object.keys(cluster.workers).length) process.exit(0)
  })
  const stopAll = () => { stopping = true; for (const worker of Object.values(cluster.workers)) worker.process.kill('SIGTERM') }
  process.on('SIGTERM', stopAll)
  process.on('SIGINT', stopAll)
  await new Promise(() => {})
}

// The modules lie beside Aedes, not beside this file.
const { resolve } = createRequire(config.aedes)
const load = (name) => import(pathToFileURL(resolve(name)).href)
const { Aedes } = await load('aedes')
const ws = await load('ws')
const WebSocketServer = ws.WebSocketServer ?? ws.default.WebSocketServer
const createWebSocketStream = ws.createWebSocketStream ?? ws.default.createWebSocketStream

const options = JSON.parse(env.BB_OPTIONS ?? '{}')
if (env.BB_REDIS) {
  const { hostname, port } = new URL(env.BB_REDIS)
  const made = async (name, more) => { const loaded = await load(name); return (loaded.default ?? loaded)({ host: hostname, port: Number(port), ...more }) }
  options.mq = await made('mqemitter-redis', { concurrency: options.concurrency })
  options.persistence = await made('aedes-persistence-redis', {})
}
const broker = await Aedes.createBroker(options)

const tcp = createTcpServer(broker.handle)
const http = createHttpServer()
const sockets = new WebSocketServer({ server: http })
sockets.on('connection', (socket, request) => broker.handle(createWebSocketStream(socket), request))

const listening = [[tcp, config.ports.tcp], [http, config.ports.ws]]
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
