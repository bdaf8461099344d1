// Stories of @kubernetes/client-node. The cluster has a ready pod `web`, which has logged `ready`.
import assert from "node:assert/strict";
import { PassThrough, Writable } from "node:stream";
import * as k8s from "@kubernetes/client-node";

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const namespace = "default";

function collect() {
  const sink = new Writable({ write: (chunk, _, done) => { sink.text += chunk; done(); } });
  sink.text = "";
  return sink;
}

async function objectsAreMadeChangedAndDeleted() {
  const body = { metadata: { name: "n" }, data: { k: "v" } };
  await core.createNamespacedConfigMap({ namespace, body });
  await assert.rejects(core.createNamespacedConfigMap({ namespace, body }), (error) => error.code === 409);
  const patch = (type, body) =>
    core.patchNamespacedConfigMap({ name: "n", namespace, body }, k8s.setHeaderOptions("Content-Type", type));
  assert.deepEqual((await patch(k8s.PatchStrategy.MergePatch, { data: { a: "b" } })).data, { a: "b", k: "v" });
  assert.deepEqual((await patch(k8s.PatchStrategy.JsonPatch, [{ op: "remove", path: "/data/k" }])).data, { a: "b" });
  const objects = k8s.KubernetesObjectApi.makeApiClient(config);
  const applied = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "n", namespace }, data: { s: "t" } };
  const result = await objects.patch(applied, undefined, undefined, "node", true, k8s.PatchStrategy.ServerSideApply);
  assert.deepEqual(result.data, { a: "b", s: "t" });
  await core.deleteNamespacedConfigMap({ name: "n", namespace });
  await assert.rejects(core.readNamespacedConfigMap({ name: "n", namespace }), (error) => error.code === 404);
}

async function informerFollowsChanges() {
  const list = () => core.listNamespacedConfigMap({ namespace });
  const informer = k8s.makeInformer(config, "/api/v1/namespaces/default/configmaps", list);
  const seen = [];
  const until = (what) => new Promise((resolve) => {
    for (const verb of ["add", "update", "delete"]) {
      informer.on(verb, (object) => {
        const word = `${verb} ${object.metadata.name} ${object.data?.k ?? ""}`;
        seen.push(word);
        if (word === what) resolve();
      });
    }
  });
  const added = until("add i 1");
  let isStopped = false;
  informer.on("error", (error) => { if (!isStopped) throw error; });
  await informer.start();
  await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: "i" }, data: { k: "1" } } });
  await added;
  const updated = until("update i 2");
  await core.patchNamespacedConfigMap(
    { name: "i", namespace, body: { data: { k: "2" } } }, k8s.setHeaderOptions("Content-Type", k8s.PatchStrategy.MergePatch));
  await updated;
  const deleted = until("delete i 2");
  await core.deleteNamespacedConfigMap({ name: "i", namespace });
  await deleted;
  isStopped = true;
  await informer.stop();
}

async function programsRunInPods() {
  const run = (command, stdin) => new Promise((resolve, reject) => {
    const [out, err] = [collect(), collect()];
    new k8s.Exec(config)
      .exec(namespace, "web", "main", command, out, err, stdin, false, (status) => resolve({ status, out: out.text, err: err.text }))
      .catch(reject);
  });
  const plain = await run(["sh", "-c", "echo out; echo err >&2"], null);
  assert.deepEqual([plain.status.status, plain.out, plain.err], ["Success", "out\n", "err\n"]);
  const failed = await run(["sh", "-c", "exit 3"], null);
  assert.equal(failed.status.status, "Failure");
  assert.deepEqual(failed.status.details.causes, [{ reason: "ExitCode", message: "3" }]);
  const stdin = new PassThrough();
  stdin.end("through\n");
  assert.equal((await run(["head", "-1"], stdin)).out, "through\n");
}

async function logsAreRead() {
  const out = collect();
  await new k8s.Log(config).log(namespace, "web", "main", out, { follow: false });
  await new Promise((resolve) => out.on("finish", resolve));
  assert.match(out.text, /^ready$/m);
}

for (const story of [objectsAreMadeChangedAndDeleted, informerFollowsChanges, programsRunInPods, logsAreRead]) {
  await story();
  console.log(story.name);
}
process.exit(0);
