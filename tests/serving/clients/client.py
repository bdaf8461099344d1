"""Stories of the Python client. The cluster has a ready pod `web` that serves HTTP on port 8080 and has logged `ready`."""
import os
import threading
import time

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
from kubernetes.stream import portforward, stream

config.load_kube_config()
core, apps, custom = client.CoreV1Api(), client.AppsV1Api(), client.CustomObjectsApi()


def objects_are_made_read_changed_and_deleted():
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a", labels={"of": "python"}), data={"k": "v"})
    made = core.create_namespaced_config_map("default", body)
    assert made.metadata.uid and made.data == {"k": "v"}
    try:
        core.create_namespaced_config_map("default", body)
        raise AssertionError("created twice")
    except ApiException as error:
        assert error.status == 409 and '"reason":"AlreadyExists"' in error.body, error.body
    assert [one.metadata.name for one in core.list_namespaced_config_map("default", label_selector="of=python").items] == ["a"]
    made.data["k"] = "w"
    replaced = core.replace_namespaced_config_map("a", "default", made)
    assert replaced.metadata.resource_version != made.metadata.resource_version
    try:
        core.replace_namespaced_config_map("a", "default", made)
        raise AssertionError("an old revision was taken")
    except ApiException as error:
        assert error.status == 409, error.body
    patched = core.patch_namespaced_config_map("a", "default", {"data": {"n": "1"}})
    assert patched.data == {"k": "w", "n": "1"}
    patched = core.patch_namespaced_config_map("a", "default", [{"op": "remove", "path": "/data/n"}])
    assert patched.data == {"k": "w"}
    core.delete_namespaced_config_map("a", "default")
    try:
        core.read_namespaced_config_map("a", "default")
        raise AssertionError("still there")
    except ApiException as error:
        assert error.status == 404, error.body


def watches_see_each_change():
    start = core.list_namespaced_config_map("default").metadata.resource_version
    for number in range(3):
        core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name=f"w{number}")))
    core.delete_namespaced_config_map("w1", "default")
    seen = []
    watching = watch.Watch()
    for event in watching.stream(core.list_namespaced_config_map, "default", resource_version=start, timeout_seconds=60):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 4:
            watching.stop()
    assert seen == [("ADDED", "w0"), ("ADDED", "w1"), ("ADDED", "w2"), ("DELETED", "w1")], seen


def pages_cover_a_list():
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map("default", limit=2, _continue=token)
        names += [one.metadata.name for one in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == sorted(names) and {"w0", "w2", "kube-root-ca.crt"} <= set(names), names


def objects_are_applied_by_the_dynamic_client():
    resources = dynamic.DynamicClient(client.ApiClient()).resources
    maps = resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "1"}}
    maps.server_side_apply(body=body, namespace="default", field_manager="one")
    body["data"]["a"] = "2"
    try:
        maps.server_side_apply(body=body, namespace="default", field_manager="two")
        raise AssertionError("no conflict")
    except dynamic.exceptions.ConflictError as error:
        assert 'conflict with \\"one\\"' in error.body, error.body
    applied = maps.server_side_apply(body=body, namespace="default", field_manager="two", force_conflicts=True)
    assert applied.data.a == "2"


def deployments_are_scaled():
    apps.patch_namespaced_deployment_scale("still", "default", {"spec": {"replicas": 0}})
    for event in watch.Watch().stream(apps.list_namespaced_deployment, "default", timeout_seconds=60):
        status = event["object"].status
        if not status.replicas and status.observed_generation == event["object"].metadata.generation:
            break
    assert not apps.read_namespaced_deployment_scale("still", "default").spec.replicas


def programs_run_in_pods():
    run = lambda *command: stream(
        core.connect_get_namespaced_pod_exec, "web", "default", command=list(command), stderr=True, stdin=False, stdout=True, tty=False
    )
    assert run("sh", "-c", "echo out; echo err >&2") in ("out\nerr\n", "err\nout\n")
    talk = stream(
        core.connect_get_namespaced_pod_exec, "web", "default", command=["sh", "-c", "read line; echo got $line; exit 3"],
        stderr=True, stdin=True, stdout=True, tty=False, _preload_content=False,
    )
    talk.write_stdin("hello\n")
    talk.run_forever(timeout=60)
    assert talk.read_stdout() == "got hello\n" and talk.returncode == 3, talk.returncode


def logs_are_read_and_followed():
    assert "ready\n" in core.read_namespaced_pod_log("web", "default")
    for line in watch.Watch().stream(core.read_namespaced_pod_log, "web", "default", follow=True):
        assert line == "ready", line
        break


def ports_are_forwarded():
    forward = portforward(core.connect_get_namespaced_pod_portforward, "web", "default", ports="8080")
    socket = forward.socket(8080)
    socket.setblocking(True)
    socket.sendall(b"GET /page HTTP/1.0\r\n\r\n")
    answer = b""
    while part := socket.recv(65536):
        answer += part
    assert answer.endswith(b"served\n"), answer
    assert forward.error(8080) is None, forward.error(8080)


def custom_objects_have_status_and_finalizers():
    place = ("example.com", "v1", "default", "boats")
    body = {"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "b", "finalizers": ["example.com/held"]}, "spec": {"size": 1}}
    custom.create_namespaced_custom_object(*place, body)
    changed = custom.patch_namespaced_custom_object_status(*place, "b", {"status": {"state": "afloat"}})
    assert changed["status"] == {"state": "afloat"} and changed["metadata"]["generation"] == 1
    custom.delete_namespaced_custom_object(*place, "b")
    assert custom.get_namespaced_custom_object(*place, "b")["metadata"]["deletionTimestamp"]
    custom.patch_namespaced_custom_object(*place, "b", {"metadata": {"finalizers": None}})
    try:
        custom.get_namespaced_custom_object(*place, "b")
        raise AssertionError("still there")
    except ApiException as error:
        assert error.status == 404, error.body


def one_of_two_candidates_leads():
    led, gate = [], threading.Event()

    def elect(name):
        def lead():
            led.append(name)
            gate.set()

        lock = LeaseLock("leader", "default", name)
        rules = electionconfig.Config(
            lock, lease_duration=17, renew_deadline=15, retry_period=1, onstarted_leading=lead, onstopped_leading=lambda: None
        )
        threading.Thread(target=leaderelection.LeaderElection(rules).run, daemon=True).start()

    for name in ("one", "two"):
        elect(name)
    assert gate.wait(60), "nobody leads"
    leases = client.CoordinationV1Api()
    renewed = lambda: leases.read_namespaced_lease("leader", "default").spec.renew_time
    first, end = renewed(), time.monotonic() + 60
    while renewed() == first and time.monotonic() < end:
        time.sleep(0.1)
    assert renewed() > first and len(led) == 1, led
    assert leases.read_namespaced_lease("leader", "default").spec.holder_identity == led[0]


for story in [
    objects_are_made_read_changed_and_deleted,
    watches_see_each_change,
    pages_cover_a_list,
    objects_are_applied_by_the_dynamic_client,
    deployments_are_scaled,
    programs_run_in_pods,
    logs_are_read_and_followed,
    ports_are_forwarded,
    custom_objects_have_status_and_finalizers,
    one_of_two_candidates_leads,
]:
    story()
    print(story.__name__, flush=True)
# The daemon threads still speak TLS, which can crash the interpreter when it ends in its own way.
os._exit(0)
