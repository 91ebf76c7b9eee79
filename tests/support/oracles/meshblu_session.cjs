// Drives a Meshblu server with the vendor's own clients (HTTP, WebSocket, MQTT) and prints what they saw as JSON.
// Run as: node meshblu_session.cjs NODE_MODULES_FOLDER HTTP_PORT MQTT_PORT. Asserts nothing.
const path = require('path');
const [folder, httpPort, mqttPort] = process.argv.slice(2);
const from = (name) => require(path.join(folder, 'node_modules', name));
const MeshbluHttp = from('meshblu-http');
const MeshbluWebsocket = from('meshblu-websocket');
const MeshbluMqtt = from('meshblu-mqtt');

const here = { protocol: 'http', hostname: '127.0.0.1', port: Number(httpPort) };
const open = { discoverWhitelist: ['*'], receiveWhitelist: ['*'], sendWhitelist: ['*'] };
const seen = {};
setTimeout(() => { console.error('took too long', JSON.stringify(seen)); process.exit(3); }, 40000);

const call = (target, method, ...given) => new Promise((resolve, reject) =>
  target[method](...given, (error, answer) => (error ? reject(error) : resolve(answer))));
const once = (emitter, event) => new Promise((resolve) => emitter.once(event, resolve));

async function main() {
  const anyone = new MeshbluHttp(here);
  seen.healthy = await call(anyone, 'healthcheck');
  const [sensor, socket, mqtt] = await Promise.all(['sensor', 'socket', 'mqtt'].map((name) =>
    call(anyone, 'register', { type: 'bb', name, ...open })));
  seen.registered = sensor;
  const http = new MeshbluHttp({ ...here, uuid: sensor.uuid, token: sensor.token });
  seen.whoami = (await call(http, 'whoami')).name;
  await call(http, 'update', sensor.uuid, { color: 'blue' });
  seen.device = await call(http, 'device', sensor.uuid);
  const wrong = new MeshbluHttp({ ...here, uuid: sensor.uuid, token: 'wrong' });
  seen.unauthorized = await call(wrong, 'whoami').catch((error) => [error.code, error.message]);

  const unknown = new MeshbluWebsocket({ hostname: '127.0.0.1', port: here.port, uuid: socket.uuid, token: 'wrong' });
  seen.notReady = await new Promise((resolve) => unknown.connect((error) => resolve([error.status, error.message])));
  unknown.close();
  const ws = new MeshbluWebsocket({ hostname: '127.0.0.1', port: here.port, uuid: socket.uuid, token: socket.token });
  await new Promise((resolve, reject) => ws.connect((error) => (error ? reject(error) : resolve())));
  // The client's own default, MQIsdp with version 4, is what mosca forgives and amqtt does not.
  const mq = new MeshbluMqtt({ hostname: '127.0.0.1', port: Number(mqttPort), uuid: mqtt.uuid, token: mqtt.token, protocolId: 'MQTT' });
  await new Promise((resolve) => mq.connect(resolve));
  seen.mqttWhoami = (await new Promise((resolve, reject) => mq.whoami((error, data) => (error ? reject(error) : resolve(data))))).name;

  let arrived = Promise.all([once(ws, 'message'), once(mq, 'message')]);
  seen.answer = await call(http, 'message', { devices: [socket.uuid, mqtt.uuid], payload: { v: 1 } });
  seen.byHttp = await arrived;
  arrived = once(mq, 'message');
  ws.message({ devices: [mqtt.uuid], payload: 'from socket' });
  seen.socketToMqtt = await arrived;
  arrived = once(ws, 'message');
  mq.message({ devices: [socket.uuid], payload: 'from mqtt' });
  seen.mqttToSocket = await arrived;

  ws.subscribe({ uuid: sensor.uuid, types: ['broadcast'] });
  ws.whoami();
  await once(ws, 'whoami');
  arrived = once(ws, 'message');
  await call(http, 'message', { devices: '*', payload: 'to all' });
  seen.broadcast = await arrived;
  ws.update({ uuid: socket.uuid }, { color: 'red' });
  seen.updated = await once(ws, 'updated');
  ws.unregister({ uuid: socket.uuid });
  seen.unregistered = await once(ws, 'unregistered');
  await call(http, 'unregister', sensor);
  seen.gone = await call(http, 'whoami').catch((error) => error.code);
  seen.ids = { sensor: sensor.uuid, socket: socket.uuid, mqtt: mqtt.uuid };
  ws.close();
  mq.client.end(true);
}

main().then(() => { console.log(JSON.stringify(seen)); process.exit(0); },
  (error) => { console.error(error); process.exit(2); });
