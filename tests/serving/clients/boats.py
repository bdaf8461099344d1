"""An operator of kopf: a Boat gets a ConfigMap of its name, which says its size, and loses it before it goes."""
import kopf
from kubernetes import client, config


@kopf.on.startup()
def configure(settings, **_):
    config.load_kube_config()
    settings.posting.enabled = True


@kopf.on.create("example.com", "v1", "boats")
def create(spec, name, namespace, body, **_):
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"size": str(spec["size"])}}
    kopf.adopt(wanted)
    client.CoreV1Api().create_namespaced_config_map(namespace, wanted)
    kopf.event(body, type="Normal", reason="Launched", message="it floats")
    return {"launched": True}


@kopf.on.field("example.com", "v1", "boats", field="spec.size", old=kopf.PRESENT)
def resize(old, new, name, namespace, **_):
    client.CoreV1Api().patch_namespaced_config_map(name, namespace, {"data": {"size": str(new)}})


@kopf.on.delete("example.com", "v1", "boats")
def delete(name, namespace, **_):
    client.CoreV1Api().delete_namespaced_config_map(name, namespace)
