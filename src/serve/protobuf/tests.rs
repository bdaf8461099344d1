//! Tests of the encoding: recorded bytes, special messages, malformed bytes.

use super::fields::{FieldCardinality, MessageTable};
use super::{MAGIC, ProtobufError, decode_document, encode_document, encode_event, go_form, is_known};
use crate::kinds;
use crate::object::Object;
use serde_json::{Value, json};

/// The bodies of `kubectl create TYPE`, version 1.32, in hexadecimal digits: one per line, a Deployment first.
const REQUESTS: &str = include_str!("requests.hex");

fn deployment() -> Vec<u8> {
    unhex(REQUESTS.lines().next().unwrap())
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn decode(bytes: &[u8]) -> Result<Value, ProtobufError> {
    decode_document(bytes, "v1", "ConfigMap")
}

#[track_caller]
fn round_trip(object: &Value) -> Value {
    decode(&encode_document(object).expect("an encoding")).expect("a document")
}

/// Makes a document with these bytes as its object.
fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    super::write_bytes(&mut head, 1, api_version.as_bytes());
    super::write_bytes(&mut head, 2, kind.as_bytes());
    let mut bytes = MAGIC.to_vec();
    super::write_bytes(&mut bytes, 1, &head);
    super::write_bytes(&mut bytes, 2, raw);
    bytes
}

#[track_caller]
fn reason(raw: &[u8]) -> String {
    decode(&envelope("v1", "Pod", raw)).expect_err("a refusal").reason
}

#[test]
fn table_has_every_kind_of_the_catalogue() {
    let table = MessageTable::built_in();
    for kind in kinds::ALL {
        let is_own = kind.resource.group().ends_with("kloop.dev");
        for api_version in kind.also.iter().map(|also| (*also).to_owned()).chain([kind.api_version().to_owned()]) {
            let known = is_known(&api_version, kind.kind) && is_known(&api_version, &format!("{}List", kind.kind));
            assert_eq!(known, !is_own, "{api_version} {}", kind.kind);
        }
    }
    assert!(!is_known("example.com/v1", "Boat") && is_known("apps/v1", "DeleteOptions"));
    let inline = table.messages().iter().flat_map(|message| &message.fields);
    assert!(inline.filter(|field| field.cardinality == FieldCardinality::Inline).count() > 10);
}

#[test]
fn bytes_of_kubectl_survive_a_round_trip() {
    let bytes = deployment();
    let object = decode(&bytes).unwrap();
    assert_eq!((&object["apiVersion"], &object["kind"]), (&json!("apps/v1"), &json!("Deployment")));
    assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["image"], "nginx");
    assert_eq!(object["spec"]["replicas"], 2);
    assert_eq!(object["metadata"].get("creationTimestamp"), None, "Go's zero time");
    for line in REQUESTS.lines() {
        let object = decode(&unhex(line)).unwrap();
        let written = encode_document(&object).unwrap();
        let digits: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, line, "{object}");
    }
}

#[test]
fn special_messages_keep_their_json() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"b": "", "a": "1"},
            "managedFields": [{"manager": "m", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}}}}],
        },
        "spec": {
            "containers": [{
                "name": "c", "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}},
                "livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 5},
                "readinessProbe": {"tcpSocket": {"port": 80}},
                "envFrom": [{"configMapRef": {"name": "m", "optional": false}}],
                "securityContext": {"runAsUser": 0, "privileged": false},
            }],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {"secretName": "s", "defaultMode": 420}}],
            "terminationGracePeriodSeconds": 0,
        },
        "status": {"startTime": "1960-01-02T03:04:05Z", "podIPs": [{"ip": "::1"}]},
    });
    assert_eq!(round_trip(&pod), pod);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"a": "AAH/", "b": ""}});
    assert_eq!(round_trip(&secret), secret);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {},
        "spec": {"holderIdentity": "h", "renewTime": "2026-01-02T03:04:05.000006Z", "leaseTransitions": 0},
    });
    assert_eq!(round_trip(&lease), lease);
    let revision = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {},
        "data": {"spec": {"x": [1, 2.5, null]}}, "revision": -1,
    });
    assert_eq!(round_trip(&revision), revision);
}

#[test]
fn schemas_of_custom_resources_keep_their_json() {
    let schema = json!({
        "type": "object", "default": {"a": [1]}, "enum": ["x", null, 3], "maximum": 1.5, "minimum": -3,
        "properties": {
            "one": {"items": {"type": "string"}, "additionalProperties": false},
            "two": {"items": [{"type": "string"}], "additionalProperties": {"type": "integer"}},
        },
        "dependencies": {"a": ["b"], "c": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "true"}], "x-kubernetes-int-or-string": true,
        "$ref": "r", "not": {},
    });
    let names = json!({"plural": "boats", "kind": "Boat"});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {},
        "spec": {
            "group": "g", "names": names, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}}],
        },
        "status": {"conditions": [], "acceptedNames": names, "storedVersions": ["v1"]},
    });
    let mut again = round_trip(&definition);
    again["status"]["conditions"] = json!([]);
    assert_eq!(again, definition);
}

#[test]
fn malformed_bytes_are_refused_in_kubernetes_words() {
    let of = |bytes: &[u8]| decode(bytes).expect_err("a refusal");
    assert_eq!(of(b"").reason, "empty data");
    assert_eq!(of(b"k8s\0").reason, "empty body");
    assert!(of(b"{}").reason.starts_with("provided data does not appear to be a protobuf message"));
    assert_eq!(of(b"k8s\0\x0a").of, None);
    let unknown = of(&envelope("v1", "Boat", b""));
    assert_eq!(unknown.reason, "no kind \"Boat\" is registered for version \"v1\"");
    assert_eq!(unknown.of, Some(("v1".into(), "Boat".into())));
    assert_eq!(reason(b"\x0a\x05\x0a"), "unexpected EOF");
    assert_eq!(reason(b"\x08\x01"), "proto: wrong wireType = 0 for field Metadata");
    assert_eq!(reason(b"\x02\x01"), "proto: Pod: illegal tag 0 (wire type 2)");
    assert_eq!(reason(b"\x0c"), "proto: Pod: wiretype end group for non-group");
    assert_eq!(reason(&[0xff; 11]), "proto: integer overflow");
    assert_eq!(
        reason(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        "proto: negative length found during unmarshaling"
    );
    assert_eq!(reason(b"\xf8\x07\xff"), "unexpected EOF", "within an unknown field");
    assert_eq!(reason(b"\xff\x07\x00"), "proto: illegal wireType 7");
}

#[test]
fn unknown_fields_are_skipped() {
    // Fields 1000 to 1004 in every encoding, including nested groups.
    let unknown = b"\xc0\x3e\x05\xc9\x3e12345678\xd2\x3e\x02ab\xdb\x3e\x0b\x0c\xdc\x3e\xe5\x3e1234";
    let pod = decode(&envelope("v1", "Pod", unknown)).unwrap();
    assert_eq!(pod, json!({"apiVersion": "v1", "kind": "Pod"}));
}

#[test]
fn repeated_message_field_is_merged() {
    let pod = decode(&envelope("v1", "Pod", b"\x0a\x03\x0a\x01a\x0a\x03\x12\x01b\x0a\x03\x0a\x01c")).unwrap();
    assert_eq!(pod["metadata"], json!({"name": "c", "generateName": "b"}));
}

#[test]
fn packed_numbers_are_read() {
    // `supplementalGroups` is field 4 of the pod's security context.
    let context =
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"securityContext": {"supplementalGroups": [1, 300, -1]}}});
    assert_eq!(round_trip(&context)["spec"]["securityContext"]["supplementalGroups"], json!([1, 300, -1]));
    let packed = b"\x12\x07\x72\x05\x22\x03\x01\xac\x02";
    let pod = decode(&envelope("v1", "Pod", packed)).unwrap();
    assert_eq!(pod["spec"]["securityContext"]["supplementalGroups"], json!([1, 300]));
}

#[test]
fn too_many_values_or_levels_are_refused() {
    // Containers without any field: two bytes each.
    let mut spec = Vec::new();
    super::write_bytes(&mut spec, 2, &[0x12, 0x00].repeat(600_000));
    assert_eq!(reason(&spec), "exceeded 500000 values");
    let mut schema = Vec::new();
    for _ in 0..2000 {
        // `not` of a schema.
        let mut outer = Vec::new();
        super::write_bytes(&mut outer, 28, &schema);
        schema = outer;
    }
    let mut raw = schema;
    for number in [1, 4, 7, 2] {
        let mut outer = Vec::new();
        super::write_bytes(&mut outer, number, &raw);
        raw = outer;
    }
    let deep = decode(&envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &raw));
    assert!(deep.is_err_and(|error| error.reason.starts_with("exceeded max depth")));
}

#[test]
fn malformed_bytes_never_panic() {
    let whole = deployment();
    let is_whole = |length: &usize| decode(&whole[..*length]).is_ok();
    // After the type, the object, and each of the two empty fields at the end of the envelope.
    assert_eq!((0..=whole.len()).filter(is_whole).collect::<Vec<_>>(), [27, 214, 216, 218]);
    let mut seed = 1_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    for (api_version, kind) in MessageTable::built_in().kinds() {
        for _ in 0..40 {
            let random: Vec<u8> = (0..next() % 64).map(|_| next() as u8 % 0x60).collect();
            if let Ok(object) = decode(&envelope(api_version, kind, &random)) {
                assert!(encode_document(&object).is_some());
            }
        }
    }
    for _ in 0..5000 {
        let mut bytes = whole.clone();
        for _ in 0..=next() % 3 {
            let place = next() % bytes.len();
            bytes[place] = next() as u8;
        }
        if let Ok(object) = decode(&bytes) {
            encode_document(&object);
        }
    }
}

#[test]
fn watch_events_have_a_length_prefix() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let (frame, document) =
        (encode_event("ADDED", &encode_document(&map).unwrap()).unwrap(), encode_document(&map).unwrap());
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
    assert_eq!(length, frame.len() - 4);
    assert_eq!(&frame[4..11], b"\x0a\x05ADDED");
    assert!(frame.ends_with(&document));
    assert_eq!(encode_document(&json!({"apiVersion": "example.com/v1", "kind": "Boat"})), None);
}

#[test]
fn go_form_has_empty_fields_as_in_go() {
    let container = json!({"name": "c", "image": "y"});
    let written = json!({"name": "c", "image": "y", "resources": {}});
    let template = |container: &Value| json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}});
    let deployment = |container: &Value, more: Value, status: Value| {
        let mut body = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template(container)},
        });
        json_patch::merge(&mut body, &json!({"spec": more}));
        json_patch::merge(&mut body, &json!({"status": status}));
        body
    };
    let plain = Object(deployment(&container, json!({}), Value::Null));
    // As printed by kubectl 1.32 after `set image --local`, except for creationTimestamp, which newer versions leave out.
    assert_eq!(go_form(&plain).0, deployment(&written, json!({"strategy": {}}), json!({})));
    let odd = Object(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": 7}}));
    assert_eq!(go_form(&odd), odd, "nothing is lost");
    let custom = Object(json!({"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "b"}, "a": 1}));
    assert_eq!(go_form(&custom), custom);
}
